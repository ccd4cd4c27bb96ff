//! What those who ask for a lock are refused, as reasons of ours.

use fencegate_lock::tenures::keeper::Refused;

use super::{Reason, Refusal};

impl From<&Refused> for Reason {
    fn from(refused: &Refused) -> Self {
        match refused {
            Refused::Locked => Self::Locked,
            Refused::QueueFull => Self::QueueFull,
            Refused::NotHolder | Refused::Elsewhere(_) => Self::NotHolder,
            Refused::KeyLimit(_) => Self::KeyLimit,
            Refused::Service(_) => Self::LockService,
            Refused::NotInitialised(_) => Self::NotInitialised,
            Refused::RolledBack(_) => Self::RolledBack,
        }
    }
}

impl Refusal {
    /// `locked_status`: what a route answers where somebody else has the resource.
    pub fn of_lock(refused: &Refused, locked_status: u16) -> Self {
        let refusal = Self::new(refused.into(), refused.to_string());
        match refused {
            Refused::Locked => refusal.with_status(locked_status),
            _ => refusal,
        }
    }
}
