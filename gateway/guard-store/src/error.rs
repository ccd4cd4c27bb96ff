//! The reasons for which the guard does not admit a dispatch, and their codes for gateways, metrics and logs.

use fencegate_policies::token::{FencingToken, InvalidFencingTokenError};
use fencegate_process::clock::BootInstant;
use fencegate_ticket::TicketVerificationError;

/// The guard has refused a dispatch. Nothing was sent upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchRefusedError {
    #[error("a newer token was announced: {newest}")]
    Stale { newest: FencingToken },
    /// After an unclean stop only the epoch of a watermark is known. So the tenure of that epoch is refused, and
    /// its gateway needs a new tenure, with a larger epoch.
    #[error("the token is of epoch {epoch}, which ran before the guard was restarted")]
    Recovered { epoch: u64 },
    #[error("this token or a later one of its tenure was announced before: {newest}")]
    Duplicate { newest: FencingToken },
    #[error("the token is not above the floor {floor}, below which watermarks are forgotten")]
    Floor { floor: u64 },
    #[error(
        "the token is more than 2^48 above {highest}, the largest epoch that this guard has seen: it is forged, \
         or of another installation"
    )]
    Future { highest: u64 },
    #[error("the dispatch came after its `Fencing-Not-After`, or the clocks differ")]
    Expired,
    #[error("the dispatch has no `Fencing-Not-After`")]
    NotAfterMissing,
    #[error("the request has no fencing token")]
    TokenMissing,
    #[error("{0}")]
    TokenMalformed(MalformedTokenError),
    #[error("the request has no ticket")]
    TicketMissing,
    #[error("{0}")]
    TicketInvalid(String),
    #[error("the ticket has expired")]
    TicketExpired,
    #[error("the ticket is for another key, token or mode")]
    TicketKey,
    #[error(
        "a callback is admitted beside its dispatch only where tickets are verified, and the guard has no \
         `tickets`"
    )]
    CallbackWithoutTickets,
    #[error("an older execution did not end within the time to settle")]
    Busy,
    #[error("the end of an older execution was not seen")]
    InDoubt { until: BootInstant },
    #[error("a request that an earlier guard admitted may still run on the key")]
    Quarantine { until: BootInstant },
    #[error("the store cannot record the request: {0}")]
    Store(String),
    #[error("the journal is full ({bytes} of {most} bytes): finished operations leave it after `keep`")]
    JournalFull { bytes: u64, most: u64 },
    #[error("the same operation is running")]
    InProgress,
    #[error("the operation was recorded with another request")]
    Mismatch,
    #[error("the outcome of the operation is unknown")]
    OutcomeUnknown { reference: String },
}

/// The defect of a token's fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedTokenError {
    #[error(transparent)]
    Token(#[from] InvalidFencingTokenError),
    #[error("the request has `{0}` more than once")]
    Repeated(&'static str),
    /// A gateway writes each field name in one spelling. The service behind the guard may take a field in
    /// another spelling for the same field, although the guard does not.
    #[error("the request has `{0}` in another spelling")]
    Misspelled(&'static str),
    #[error("`{0}` is missing beside the token")]
    Missing(&'static str),
    #[error("`{0}` cannot be read")]
    Unreadable(&'static str),
    #[error("`fencing-number` is not the number of the token")]
    NumberMismatch,
    #[error("the number of the dispatch is 0, and the first is 1")]
    ZeroDispatch,
}

macro_rules! words {
    ($($name:ident = $word:literal),* $(,)?) => {
        /// The code of a refusal in metrics, in logs, and to gateways.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum RefusalCode { $($name,)* }

        impl RefusalCode {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

words! {
    Stale = "stale",
    Floor = "floor",
    Duplicate = "duplicate",
    Expired = "expired",
    NotAfterMissing = "not-after-missing",
    TokenFuture = "token-future",
    TokenMalformed = "token-malformed",
    TokenMissing = "token-missing",
    TicketMissing = "ticket-missing",
    TicketInvalid = "ticket-invalid",
    TicketExpired = "ticket-expired",
    TicketKey = "ticket-key",
    DeadlockAvoided = "deadlock-avoided",
    Busy = "busy",
    InDoubt = "in-doubt",
    Quarantine = "quarantine",
    Store = "store",
    InProgress = "in-progress",
    IdempotencyMismatch = "idempotency-mismatch",
    OutcomeUnknown = "outcome-unknown",
}

impl DispatchRefusedError {
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::Stale { .. } | Self::Recovered { .. } => RefusalCode::Stale,
            Self::Duplicate { .. } => RefusalCode::Duplicate,
            Self::Floor { .. } => RefusalCode::Floor,
            Self::Future { .. } => RefusalCode::TokenFuture,
            Self::Expired => RefusalCode::Expired,
            Self::NotAfterMissing => RefusalCode::NotAfterMissing,
            Self::TokenMissing => RefusalCode::TokenMissing,
            Self::TokenMalformed(_) => RefusalCode::TokenMalformed,
            Self::TicketMissing => RefusalCode::TicketMissing,
            Self::TicketInvalid(_) => RefusalCode::TicketInvalid,
            Self::TicketExpired => RefusalCode::TicketExpired,
            Self::TicketKey => RefusalCode::TicketKey,
            Self::CallbackWithoutTickets => RefusalCode::DeadlockAvoided,
            Self::Busy => RefusalCode::Busy,
            Self::InDoubt { .. } => RefusalCode::InDoubt,
            Self::Quarantine { .. } => RefusalCode::Quarantine,
            Self::Store(_) | Self::JournalFull { .. } => RefusalCode::Store,
            Self::InProgress => RefusalCode::InProgress,
            Self::Mismatch => RefusalCode::IdempotencyMismatch,
            Self::OutcomeUnknown { .. } => RefusalCode::OutcomeUnknown,
        }
    }

    /// The label in the metric of decisions. A token that only a restart has made stale has a label of its own.
    pub fn decision_label(&self) -> &'static str {
        match self {
            Self::Recovered { .. } => "recovered",
            Self::JournalFull { .. } => "journal-full",
            other => other.code().as_str(),
        }
    }
}

impl From<TicketVerificationError> for DispatchRefusedError {
    fn from(bad: TicketVerificationError) -> Self {
        match bad {
            TicketVerificationError::Missing => Self::TicketMissing,
            TicketVerificationError::Expired { .. } => Self::TicketExpired,
            TicketVerificationError::Key(_) => Self::TicketKey,
            other @ TicketVerificationError::Invalid(_) => Self::TicketInvalid(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_ticket::{InvalidTenureTicketError, TicketMismatchError};

    /// Each error of a ticket has the code that the gateway gets.
    #[test]
    fn ticket_errors_have_their_codes() {
        for (error, code) in [
            (TicketVerificationError::Missing, "ticket-missing"),
            (TicketVerificationError::Expired { expires: 1, now: 2 }, "ticket-expired"),
            (TicketVerificationError::Key(TicketMismatchError::Mode), "ticket-key"),
            (TicketVerificationError::Invalid(InvalidTenureTicketError::Future), "ticket-invalid"),
        ] {
            assert_eq!(DispatchRefusedError::from(error).code().as_str(), code);
        }
    }
}
