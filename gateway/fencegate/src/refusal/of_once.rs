//! What ZooKeeper's record of operations refuses, as reasons of ours.

use fencegate_lock::once::refused::Refused;

use super::{Reason, Refusal};

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let detail = refused.to_string();
        let reason = match refused {
            Refused::Done { status: Some(status @ 400..) } => {
                return Self::new(Reason::AlreadyRefused, detail).with_status(status).recorded(status);
            }
            Refused::Done { status: Some(status) } => {
                return Self::new(Reason::AlreadyDone, detail).recorded(status);
            }
            Refused::Done { status: None } => Reason::AlreadyDone,
            Refused::Mismatch => Reason::IdempotencyMismatch,
            Refused::InProgress => Reason::InProgress,
            Refused::Unknown { reference } => {
                return Self::new(Reason::OutcomeRecordedUnknown, detail).about(reference);
            }
            Refused::Lost => Reason::Suspended,
            Refused::Full => Reason::OperationsFull,
            Refused::RouteFull => Reason::RouteOperations,
            Refused::ClientFull => Reason::ClientOperations,
            Refused::Foreign(_) => Reason::Store,
            Refused::Service(_) => Reason::LockService,
        };
        Self::new(reason, detail)
    }
}
