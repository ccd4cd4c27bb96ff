//! Why a tenure is over, in the words of the metrics.

/// The end of a tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub cause: Cause,
    /// How many dispatches were started under it.
    pub dispatches: u32,
    /// What came of all of them is known, whatever else ended it.
    pub known: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Of one request only, which is over.
    Request,
    /// Nobody asked for it any more.
    Idle,
    /// Somebody waited who cannot hold beside us.
    Contended,
    /// As old, or as often used, as a tenure may be.
    Limit,
    /// To make room for others, or because the gateway stops.
    Evicted,
    /// Another plan gives resources other keys.
    Reloaded,
    /// What came of a dispatch is not known: nothing is sent under it any more.
    Retired,
    /// Its session is over.
    Session,
    /// Somebody else removed its lock node.
    TakenAway,
    /// A fault of the gateway itself.
    Failed,
}

impl Cause {
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

    /// The lock went before we gave it up: somebody else may have it while we still send.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::Session | Self::TakenAway)
    }

    pub fn word(self) -> &'static str {
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
