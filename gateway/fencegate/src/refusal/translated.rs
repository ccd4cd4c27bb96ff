//! Turns refusals of other parts into ours. The table gives the reason; further facts of the refusal are kept.

use fencegate_guard::refused as guard;
use fencegate_http::{listen::responder, upstream::pool::NotConnected};
use fencegate_lock::{
    once::denied as once,
    tenures::{chain::NotInside, keeper},
};
use fencegate_policies::key::BadKey;

use super::{Below, Reason, Refusal};

impl Refusal {
    fn translated(below: Below<'_>, detail: String) -> Self {
        Self::new(Reason::from(below), detail)
    }

    pub fn of_key(bad: &BadKey) -> Self {
        Self::translated(Below::Key(bad), bad.to_string())
    }

    /// A refusal because of the name of an operation.
    pub fn of_name(bad: &BadKey) -> Self {
        Self::translated(Below::Name(bad), bad.to_string())
    }

    /// `locked_status`: the status of the route for a key that another holder has.
    pub fn of_lock(refused: &keeper::Refused, locked_status: u16) -> Self {
        let refusal = Self::translated(Below::Lock(refused), refused.to_string());
        match refused {
            keeper::Refused::Locked => refusal.with_status(locked_status),
            keeper::Refused::Delayed(rest) => refusal.with_status(locked_status).after(*rest),
            _ => refusal,
        }
    }

    /// A refusal of a request that shows in which dispatch it was called.
    pub fn of_call(refused: NotInside) -> Self {
        Self::translated(Below::Call(refused), refused.to_string())
    }
}

impl From<responder::Refused> for Refusal {
    fn from(refused: responder::Refused) -> Self {
        Self::new(Reason::from(Below::Listener(refused)), refused.detail())
    }
}

impl From<once::Denied> for Refusal {
    fn from(refused: once::Denied) -> Self {
        let refusal = Self::translated(Below::Once(&refused), refused.to_string());
        match refused {
            once::Denied::Done { status: Some(status @ 400..) } => {
                refusal.with_status(status).recorded(status)
            }
            once::Denied::Done { status: Some(status) } => refusal.recorded(status),
            once::Denied::Unknown { reference } => refusal.about(reference),
            _ => refusal,
        }
    }
}

impl From<&guard::Refused> for Reason {
    fn from(refused: &guard::Refused) -> Self {
        Below::Guard(refused.word()).into()
    }
}

impl From<guard::Refused> for Refusal {
    fn from(refused: guard::Refused) -> Self {
        let refusal = Self::new(Reason::from(&refused), refused.to_string());
        match refused {
            guard::Refused::OutcomeUnknown { reference } => refusal.about(reference),
            _ => refusal,
        }
    }
}

impl From<&NotConnected> for Refusal {
    fn from(error: &NotConnected) -> Self {
        Self::translated(error.into(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::Distrust;
    use fencegate_http::listen::farewell::words;

    #[test]
    fn the_words_of_a_listener_are_those_of_every_other_refusal() {
        let words = words(&Refusal::from(responder::Refused::HeaderTooLarge).into_reply());
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
            let refusal = Refusal::from(once::Denied::Done { status });
            assert_eq!((refusal.reason, refusal.status().as_u16()), (reason, answered), "{status:?}");
            assert_eq!(refusal.recorded, status);
        }
    }

    #[test]
    fn guards_that_contradict_each_other_are_told_from_one_that_is_not_believed() {
        let refused = |why| Refusal::from(&NotConnected::Distrusted { endpoint: "a:1".into(), why }).reason;
        assert_eq!(refused(Box::new(Distrust::Split)), Reason::GuardSplit);
        assert_eq!(refused(Box::new(Distrust::Several)), Reason::GuardSplit);
        assert_eq!(refused(Box::new(Distrust::Replaced)), Reason::Guard);
        assert_eq!(refused("of another kind".into()), Reason::Guard);
    }
}
