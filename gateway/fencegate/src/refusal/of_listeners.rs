//! What a listener refuses before it was a request, as reasons of ours.

use fencegate_http::listen::answers::Refused;

use super::{Reason, Refusal};

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let reason = match refused {
            Refused::Malformed(_) => Reason::Malformed,
            Refused::TargetTooLarge => Reason::TargetTooLarge,
            Refused::HeaderTooLarge => Reason::HeaderTooLarge,
            Refused::Slow => Reason::SlowRequest,
            Refused::Displaced => Reason::Overloaded,
        };
        Self::new(reason, refused.detail())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_http::listen::farewell::words;

    #[test]
    fn the_words_are_those_of_every_other_refusal() {
        let words = words(&Refusal::from(Refused::HeaderTooLarge).into_reply());
        let text = std::str::from_utf8(&words).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
        assert!(head.contains("\r\nfencing-outcome: not-dispatched\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\nconnection: close\r\ndate: ", body.len())));
        assert!(body.contains("\"reason\":\"header-too-large\""), "{body}");
    }
}
