//! The reasons for which the guard does not admit a dispatch, and their codes for gateways, metrics and logs.

use fencegate_policies::token::{FencingToken, InvalidFencingTokenError};
use fencegate_process::clock::BootInstant;
use fencegate_ticket::TicketError;

/// The guard has refused a dispatch. Nothing was sent upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchRefusedError {
    #[error("a newer token was announced: {newest}")]
    Stale { newest: FencingToken },
    /// After an unclean stop only the epoch of a watermark is known. So the tenure of that epoch is refused, and
    /// its gateway needs a new tenure, with a larger epoch.
    #[error("of epoch {epoch}, which ran before the guard was restarted")]
    Recovered { epoch: u64 },
    #[error("this token or a later one of its tenure was announced before: {newest}")]
    Duplicate { newest: FencingToken },
    #[error("not above the floor {floor}, below which watermarks are forgotten")]
    Floor { floor: u64 },
    #[error(
        "more than 2^48 above {highest}, the largest epoch that this guard has seen: forged, or of another installation"
    )]
    Future { highest: u64 },
    #[error("it came after the moment until which it might be begun, or the clocks differ")]
    Expired,
    #[error("no moment until which it may be begun")]
    NotAfterMissing,
    #[error("no token")]
    TokenMissing,
    #[error("{0}")]
    TokenMalformed(MalformedTokenError),
    #[error("no ticket")]
    TicketMissing,
    #[error("the ticket is not valid: {0}")]
    TicketInvalid(String),
    #[error("the ticket has expired")]
    TicketExpired,
    #[error("the ticket is of another key, token or mode")]
    TicketKey,
    #[error(
        "what is called from a dispatch is let in beside it only where tickets are verified: the guard has no `tickets`"
    )]
    CallbackWithoutTickets,
    #[error("an older execution did not end within the time to settle")]
    Busy,
    #[error("the end of an older execution was not seen")]
    InDoubt { until: BootInstant },
    #[error("an earlier guard may have something at work on the key")]
    Quarantine { until: BootInstant },
    #[error("the store does not take what has to be remembered: {0}")]
    Store(String),
    #[error("the journal is full ({bytes} of {most} bytes): finished operations leave it after `keep`")]
    JournalFull { bytes: u64, most: u64 },
    #[error("the same operation is running")]
    InProgress,
    #[error("the operation was recorded with another request")]
    Mismatch,
    #[error("what came of the operation is not known")]
    OutcomeUnknown { reference: String },
}

/// The defect of a token's fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedTokenError {
    #[error(transparent)]
    Token(#[from] InvalidFencingTokenError),
    #[error("`{0}` stands there more than once")]
    Repeated(&'static str),
    /// A gateway writes each field name in one spelling. The service behind the guard may take a field in
    /// another spelling for the same field, although the guard does not.
    #[error("`{0}` stands there in another spelling")]
    Misspelled(&'static str),
    #[error("`{0}` is missing beside the token")]
    Missing(&'static str),
    #[error("`{0}` cannot be read")]
    Unreadable(&'static str),
    #[error("the number is not that of the token")]
    NumberMismatch,
    #[error("a dispatch is numbered from 1")]
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

impl From<TicketError> for DispatchRefusedError {
    fn from(bad: TicketError) -> Self {
        match bad {
            TicketError::Missing => Self::TicketMissing,
            TicketError::Expired { .. } => Self::TicketExpired,
            TicketError::Key(_) => Self::TicketKey,
            other @ TicketError::Invalid(_) => Self::TicketInvalid(other.to_string()),
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
            (TicketError::Missing, "ticket-missing"),
            (TicketError::Expired { expires: 1, now: 2 }, "ticket-expired"),
            (TicketError::Key(TicketMismatchError::Mode), "ticket-key"),
            (TicketError::Invalid(InvalidTenureTicketError::Future), "ticket-invalid"),
        ] {
            assert_eq!(DispatchRefusedError::from(error).code().as_str(), code);
        }
    }
}
