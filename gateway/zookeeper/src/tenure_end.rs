//! The cause of a tenure's end, with its label in the metrics.

/// The end of a tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenureEnd {
    pub cause: TenureEndCause,
    /// The number of dispatches that were started under the tenure.
    pub dispatches: u32,
    /// Whether the outcome of all its dispatches is known.
    pub known: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenureEndCause {
    /// The tenure was for one request only, and that request is over.
    Request,
    /// No request wanted the lock any more.
    Idle,
    /// Another contender waited that cannot hold together with this tenure.
    Contended,
    /// The tenure has reached its largest age, or its largest number of dispatches.
    Limit,
    /// The tenure was ended to free capacity for other keys, or because the gateway stops.
    Evicted,
    /// A new plan gives its resource another key.
    Reloaded,
    /// The outcome of a dispatch is unknown, so nothing more is sent under the tenure.
    Retired,
    /// The session of the tenure is over.
    Session,
    /// Another client removed the lock node of the tenure.
    TakenAway,
    /// The gateway itself has failed, by a fault of its own.
    Failed,
}

impl TenureEndCause {
    pub const ALL: [Self; 10] = [
        Self::Request,
        Self::Idle,
        Self::Contended,
        Self::Limit,
        Self::Evicted,
        Self::Reloaded,
        Self::Retired,
        Self::Session,
        Self::TakenAway,
        Self::Failed,
    ];

    /// Whether the lock was lost before it was released, so that another holder may have it while this gateway still
    /// sends.
    pub(crate) fn is_lock_loss(self) -> bool {
        matches!(self, Self::Session | Self::TakenAway)
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Idle => "idle",
            Self::Contended => "contended",
            Self::Limit => "limit",
            Self::Evicted => "evicted",
            Self::Reloaded => "reloaded",
            Self::Retired => "retired",
            Self::Session => "session",
            Self::TakenAway => "taken-away",
            Self::Failed => "failed",
        }
    }
}
