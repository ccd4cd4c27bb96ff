//! Why there is no tenure.

use std::time::Duration;

use crate::{not_granted::NotGranted, reach::Way};

/// Why there is no tenure. Nothing was dispatched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("held by another and the wait is over")]
    Locked,
    #[error("too many requests wait for this key")]
    QueueFull,
    /// Its last holder left without a word. The delay is sat out, whoever asks.
    #[error("what the last holder sent may go on for {0:?}")]
    Delayed(Duration),
    /// Another gateway keeps it, and can be asked instead.
    #[error("gateway {} keeps the key", .0.gateway)]
    Elsewhere(Way),
    /// Another gateway has sent the request here, and the key is not kept here.
    #[error("this gateway does not keep the key")]
    NotHolder,
    /// Whoever holds it, or stands before us, asks for another number of permits.
    #[error("others ask for another number of permits of it")]
    PermitsDiffer,
    #[error("no more locks can be taken: {0}")]
    KeyLimit(&'static str),
    #[error("no lock service: {0}")]
    Service(String),
    #[error("{0}")]
    NotInitialised(String),
    #[error("{0}")]
    RolledBack(String),
}

impl Refused {
    /// Somebody else has the key, or is before us; else it was never found out.
    pub fn is_for_another_holder(&self) -> bool {
        !matches!(self, Self::KeyLimit(_) | Self::Service(_) | Self::NotInitialised(_) | Self::RolledBack(_))
    }
}

impl From<NotGranted> for Refused {
    fn from(why: NotGranted) -> Self {
        match why {
            NotGranted::Locked => Self::Locked,
            NotGranted::Delayed(rest) => Self::Delayed(rest),
            NotGranted::Elsewhere(way) => Self::Elsewhere(way),
            NotGranted::NotHolder => Self::NotHolder,
            NotGranted::PermitsDiffer => Self::PermitsDiffer,
            NotGranted::KeyLimit(which) => Self::KeyLimit(which),
            NotGranted::Lost => Self::Service("the session ended".into()),
            NotGranted::Service(why) => Self::Service(why),
        }
    }
}
