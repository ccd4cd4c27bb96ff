//! Turns refusals of other parts into ours. The table gives the reason; further facts of the refusal are kept.

use fencegate_guard::error as guard;
use fencegate_http::{listen::handler, upstream::pool::ConnectError};
use fencegate_lock::{
    idempotency::error as once,
    manager::{call_chain::CallbackError, lock_manager},
};
use fencegate_policies::key::KeyError;

use super::{Reason, Refusal, SourceError};

impl Refusal {
    fn from_source(below: SourceError<'_>, detail: String) -> Self {
        Self::new(Reason::from(below), detail)
    }

    pub fn from_key_error(bad: &KeyError) -> Self {
        Self::from_source(SourceError::Key(bad), bad.to_string())
    }

    /// A refusal because of the name of an operation.
    pub fn from_name_error(bad: &KeyError) -> Self {
        Self::from_source(SourceError::Name(bad), bad.to_string())
    }

    /// `locked_status`: the status of the route for a key that another holder has.
    pub fn from_lock_error(refused: &lock_manager::AcquireError, locked_status: u16) -> Self {
        let refusal = Self::from_source(SourceError::Lock(refused), refused.to_string());
        match refused {
            lock_manager::AcquireError::Locked => refusal.with_status(locked_status),
            lock_manager::AcquireError::Delayed(rest) => {
                refusal.with_status(locked_status).with_retry_after(*rest)
            }
            _ => refusal,
        }
    }

    /// A refusal of a request that shows in which dispatch it was called.
    pub fn from_callback_error(refused: CallbackError) -> Self {
        Self::from_source(SourceError::Call(refused), refused.to_string())
    }
}

impl From<handler::RequestRejection> for Refusal {
    fn from(refused: handler::RequestRejection) -> Self {
        Self::new(Reason::from(SourceError::Listener(refused)), refused.detail())
    }
}

impl From<once::AdmitOperationError> for Refusal {
    fn from(refused: once::AdmitOperationError) -> Self {
        let refusal = Self::from_source(SourceError::Once(&refused), refused.to_string());
        match refused {
            once::AdmitOperationError::Done { status: Some(status @ 400..) } => {
                refusal.with_status(status).with_recorded_status(status)
            }
            once::AdmitOperationError::Done { status: Some(status) } => refusal.with_recorded_status(status),
            once::AdmitOperationError::Unknown { reference } => refusal.with_reference(reference),
            _ => refusal,
        }
    }
}

impl From<&guard::AdmitError> for Reason {
    fn from(refused: &guard::AdmitError) -> Self {
        SourceError::Guard(refused.code()).into()
    }
}

impl From<guard::AdmitError> for Refusal {
    fn from(refused: guard::AdmitError) -> Self {
        let refusal = Self::new(Reason::from(&refused), refused.to_string());
        match refused {
            guard::AdmitError::OutcomeUnknown { reference } => refusal.with_reference(reference),
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
    use crate::guard_identity::GuardIdentityError;
    use fencegate_http::listen::linger::encode_response;

    #[test]
    fn the_words_of_a_listener_are_those_of_every_other_refusal() {
        let words = encode_response(&Refusal::from(handler::RequestRejection::HeaderTooLarge).into_reply());
        let text = std::str::from_utf8(&words).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
        assert!(head.contains("\r\nfencing-outcome: not-dispatched\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\nconnection: close\r\ndate: ", body.len())));
        assert!(body.contains("\"reason\":\"header-too-large\""), "{body}");
    }

    #[test]
    fn an_operation_that_the_service_refused_has_the_status_of_then() {
        for (status, reason, answered) in [
            (None, Reason::AlreadyDone, 409),
            (Some(200), Reason::AlreadyDone, 409),
            (Some(399), Reason::AlreadyDone, 409),
            (Some(400), Reason::AlreadyRefused, 400),
            (Some(503), Reason::AlreadyRefused, 503),
        ] {
            let refusal = Refusal::from(once::AdmitOperationError::Done { status });
            assert_eq!((refusal.reason, refusal.status().as_u16()), (reason, answered), "{status:?}");
            assert_eq!(refusal.recorded, status);
        }
    }

    #[test]
    fn guards_that_contradict_each_other_are_told_from_one_that_is_not_believed() {
        let refused = |why| Refusal::from(&ConnectError::Distrusted { endpoint: "a:1".into(), why }).reason;
        assert_eq!(refused(Box::new(GuardIdentityError::Split)), Reason::GuardSplit);
        assert_eq!(refused(Box::new(GuardIdentityError::MultipleProcesses)), Reason::GuardSplit);
        assert_eq!(refused(Box::new(GuardIdentityError::Replaced)), Reason::Guard);
        assert_eq!(refused("of another kind".into()), Reason::Guard);
    }
}
