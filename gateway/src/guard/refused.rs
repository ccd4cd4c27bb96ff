//! Why the guard does not let a dispatch through, in the words that gateways understand.

use fencegate_policies::token::{BadToken, Token};
use fencegate_process::clock::Boot;

use crate::refusal::{Reason, Refusal};

/// Nothing was sent upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("a newer token was announced: {newest}")]
    Stale { newest: Token },
    /// After an unclean stop only the epoch of a mark is known: its tenure is refused once and comes back larger.
    #[error("of epoch {epoch}, which ran before the guard was restarted")]
    Recovered { epoch: u64 },
    #[error("this token or a later one of its tenure was announced before: {newest}")]
    Duplicate { newest: Token },
    #[error("not above the floor {floor}, below which marks are forgotten")]
    Floor { floor: u64 },
    #[error(
        "more than 2^48 above {highest}, the largest epoch that this guard has seen: forged, or of another installation"
    )]
    Future { highest: u64 },
    #[error("no token")]
    TokenMissing,
    #[error("{0}")]
    TokenMalformed(Malformed),
    #[error("no ticket")]
    TicketMissing,
    #[error("the ticket is not valid: {0}")]
    TicketInvalid(String),
    #[error("the ticket has expired")]
    TicketExpired,
    #[error("the ticket is of another key, token or mode")]
    TicketKey,
    #[error("an older execution did not end within the time to settle")]
    Busy,
    #[error("the end of an older execution was not seen")]
    InDoubt { until: Boot },
    #[error("an earlier guard may have something at work on the key")]
    Quarantine { until: Boot },
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

/// What is wrong with the fields of a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error(transparent)]
    Token(#[from] BadToken),
    #[error("`{0}` stands there more than once")]
    Repeated(&'static str),
    #[error("`{0}` is missing beside the token")]
    Missing(&'static str),
    #[error("`{0}` cannot be read")]
    Unreadable(&'static str),
    #[error("the number is not that of the token")]
    OtherNumber,
    #[error("a dispatch is numbered from 1")]
    NoDispatch,
    #[error("an announcement has the dispatch number 0")]
    NoAnnouncement,
}

impl Refused {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Stale { .. } | Self::Recovered { .. } => Reason::Stale,
            Self::Duplicate { .. } => Reason::Duplicate,
            Self::Floor { .. } => Reason::Floor,
            Self::Future { .. } => Reason::TokenFuture,
            Self::TokenMissing => Reason::TokenMissing,
            Self::TokenMalformed(_) => Reason::TokenMalformed,
            Self::TicketMissing => Reason::TicketMissing,
            Self::TicketInvalid(_) => Reason::TicketInvalid,
            Self::TicketExpired => Reason::TicketExpired,
            Self::TicketKey => Reason::TicketKey,
            Self::Busy => Reason::Busy,
            Self::InDoubt { .. } => Reason::InDoubt,
            Self::Quarantine { .. } => Reason::Quarantine,
            Self::Store(_) | Self::JournalFull { .. } => Reason::Store,
            Self::InProgress => Reason::InProgress,
            Self::Mismatch => Reason::IdempotencyMismatch,
            Self::OutcomeUnknown { .. } => Reason::OutcomeRecordedUnknown,
        }
    }

    /// For the metric of decisions. A token that only a restart made stale is told apart: it is no accident.
    pub fn decision(&self) -> &'static str {
        match self {
            Self::Recovered { .. } => "recovered",
            Self::JournalFull { .. } => "journal-full",
            other => other.reason().word(),
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let refusal = Self::new(refused.reason(), refused.to_string());
        match refused {
            Refused::OutcomeUnknown { reference } => refusal.about(reference),
            _ => refusal,
        }
    }
}
