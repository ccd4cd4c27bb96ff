//! Converts the errors of other modules into refusals. The table gives the reason; further facts of the error are
//! kept.

use fencegate_guard_store::error as guard;
use fencegate_http::listen::handler;
use fencegate_http_client::upstream::pool::ConnectError;
use fencegate_idempotency::error as once;
use fencegate_lock::manager::{call_chain::NestedCallbackError, lock_manager};
use fencegate_policies::{key::ExtractKeyError, plan::OperationNameError};

use super::{Refusal, RefusalReason, RefusalSourceError};

impl Refusal {
    fn from_source(below: RefusalSourceError<'_>, detail: String) -> Self {
        Self::new(RefusalReason::from(below), detail)
    }

    pub fn from_key_error(bad: &ExtractKeyError) -> Self {
        let refusal = Self::from_source(RefusalSourceError::Key(bad), bad.to_string());
        match bad {
            // The text has numbers only, so the client learns nothing of other keys.
            ExtractKeyError::TooManyKeys { .. } | ExtractKeyError::SetTooLong { .. } => {
                refusal.with_advice(bad.to_string())
            }
            _ => refusal,
        }
    }

    /// A refusal because of the name of an operation.
    pub fn from_name_error(bad: &OperationNameError) -> Self {
        let source = match bad {
            OperationNameError::Name(bad) => RefusalSourceError::Name(bad),
            OperationNameError::Principal(bad) => RefusalSourceError::Principal(bad),
        };
        Self::from_source(source, bad.to_string())
    }

    /// The refusal of a request that got no lock. `locked_status`: the status that the route sets for a key that
    /// another holder has.
    pub fn from_lock_error(refused: &lock_manager::AcquireError, locked_status: u16) -> Self {
        let refusal = Self::from_source(RefusalSourceError::Lock(refused), refused.to_string());
        match refused {
            lock_manager::AcquireError::Locked => refusal.with_status(locked_status),
            lock_manager::AcquireError::Delayed(rest) => {
                refusal.with_status(locked_status).with_retry_after(*rest)
            }
            _ => refusal,
        }
    }

    /// The refusal of a callback, which names the dispatch in which it was called.
    pub fn from_callback_error(refused: NestedCallbackError) -> Self {
        Self::from_source(RefusalSourceError::Call(refused), refused.to_string())
    }
}

impl From<handler::RequestRejection> for Refusal {
    fn from(refused: handler::RequestRejection) -> Self {
        Self::new(RefusalReason::from(RefusalSourceError::Listener(refused)), refused.log_detail())
    }
}

impl From<once::AdmitOperationError> for Refusal {
    fn from(refused: once::AdmitOperationError) -> Self {
        let refusal = Self::from_source(RefusalSourceError::Once(&refused), refused.to_string());
        match refused {
            once::AdmitOperationError::Done { status: Some(status @ 400..) } => {
                refusal.with_status(status).with_recorded_status(status)
            }
            once::AdmitOperationError::Done { status: Some(status) } => refusal.with_recorded_status(status),
            once::AdmitOperationError::Unknown { reference } => refusal.with_operation_reference(reference),
            _ => refusal,
        }
    }
}

impl From<&guard::DispatchRefusedError> for RefusalReason {
    fn from(refused: &guard::DispatchRefusedError) -> Self {
        RefusalSourceError::Guard(refused.code()).into()
    }
}

impl From<guard::DispatchRefusedError> for Refusal {
    fn from(refused: guard::DispatchRefusedError) -> Self {
        let refusal = Self::new(RefusalReason::from(&refused), refused.to_string());
        match refused {
            guard::DispatchRefusedError::OutcomeUnknown { reference } => {
                refusal.with_operation_reference(reference)
            }
            _ => refusal,
        }
    }
}

impl From<&ConnectError> for Refusal {
    fn from(error: &ConnectError) -> Self {
        Self::from_source(error.into(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_guard_client::guard_identity::GuardIdentityError;
    use fencegate_http::listen::linger::encode_http1_response;

    /// A refusal of the listener has the status line, the fields and the body of every other refusal.
    #[test]
    fn listener_refusal_matches_other_refusals() {
        let words =
            encode_http1_response(&Refusal::from(handler::RequestRejection::HeaderTooLarge).into_reply());
        let text = std::str::from_utf8(&words).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
        assert!(head.contains("\r\nfencing-outcome: not-dispatched\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\nconnection: close\r\ndate: ", body.len())));
        assert!(body.contains("\"reason\":\"header-too-large\""), "{body}");
    }

    /// A repeat of an operation that the service refused is answered with the recorded status; a repeat of one that
    /// was done is answered with 409.
    #[test]
    fn refused_operation_repeats_recorded_status() {
        for (status, reason, answered) in [
            (None, RefusalReason::AlreadyDone, 409),
            (Some(200), RefusalReason::AlreadyDone, 409),
            (Some(399), RefusalReason::AlreadyDone, 409),
            (Some(400), RefusalReason::AlreadyRefused, 400),
            (Some(503), RefusalReason::AlreadyRefused, 503),
        ] {
            let refusal = Refusal::from(once::AdmitOperationError::Done { status });
            assert_eq!((refusal.reason, refusal.status().as_u16()), (reason, answered), "{status:?}");
            assert_eq!(refusal.recorded, status);
        }
    }

    /// Guards that contradict each other are refused for another reason than a guard that is not trusted.
    #[test]
    fn split_differs_from_distrusted_guard() {
        let refused = |why| Refusal::from(&ConnectError::Distrusted { endpoint: "a:1".into(), why }).reason;
        assert_eq!(refused(Box::new(GuardIdentityError::Split)), RefusalReason::GuardSplit);
        assert_eq!(refused(Box::new(GuardIdentityError::MultipleProcesses)), RefusalReason::GuardSplit);
        assert_eq!(refused(Box::new(GuardIdentityError::Replaced)), RefusalReason::Guard);
        assert_eq!(refused("of another kind".into()), RefusalReason::Guard);
    }
}
