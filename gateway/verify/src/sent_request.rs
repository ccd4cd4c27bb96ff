//! One request of a case: its content, its time, and its answer.

use fencegate_protocol::headers::FENCING_REFUSAL;
use tokio::time::Instant;

use super::{
    connection::{ServiceRequestError, ServiceResponse},
    token_headers::SyntheticToken,
};

/// A request that was sent, or that could not be sent.
#[derive(Debug, Clone)]
pub struct TestRequestRecord {
    /// Method and target, and the token fields.
    pub sent: String,
    /// The token, if the request has one in the form of a gateway.
    pub mint: Option<SyntheticToken>,
    /// The moment from which the service could act on the request.
    pub began: Instant,
    pub ended: Instant,
    pub came: ServiceRequestOutcome,
    /// Whether the answer has `Fencing-Outcome`, which only gateways write.
    pub passed_a_gateway: bool,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceRequestOutcome {
    /// 2xx
    Accepted(u16),
    /// 412 with `Fencing-Refusal: stale`
    Stale,
    /// 412 with `Fencing-Refusal: expired`
    Expired,
    /// Any other 4xx, with the beginning of its body.
    Refused(u16, String),
    /// Neither accepted nor refused: 1xx, 3xx or 5xx.
    Unclear(u16, String),
    /// No answer in time. The request may have been executed.
    TimedOut(String),
    /// The connection ended without an answer. The request may have been executed.
    Disconnected(String),
    /// Nothing was sent.
    Unreachable(String),
}

/// The most characters of an answer that are reported.
const EXCERPT: usize = 160;

impl ServiceRequestOutcome {
    pub fn from_response(answer: Result<ServiceResponse, ServiceRequestError>) -> Self {
        let answer = match answer {
            Ok(answer) => answer,
            Err(ServiceRequestError::Unreachable(error)) => return Self::Unreachable(error.to_string()),
            Err(ServiceRequestError::Broken(reason)) => return Self::Disconnected(reason),
            Err(late @ ServiceRequestError::Timeout(_)) => return Self::TimedOut(late.to_string()),
        };
        let status = answer.status.as_u16();
        let refusal = answer.fields.get(FENCING_REFUSAL);
        match status {
            200..=299 => Self::Accepted(status),
            412 if refusal.is_some_and(|reason| reason.as_bytes().eq_ignore_ascii_case(b"stale")) => {
                Self::Stale
            }
            412 if refusal.is_some_and(|reason| reason.as_bytes().eq_ignore_ascii_case(b"expired")) => {
                Self::Expired
            }
            400..=499 => Self::Refused(status, excerpt(&answer.body)),
            _ => Self::Unclear(status, excerpt(&answer.body)),
        }
    }

    /// The status of the answer; `None` if there was none.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Accepted(status) | Self::Refused(status, _) | Self::Unclear(status, _) => Some(*status),
            Self::Stale | Self::Expired => Some(412),
            Self::TimedOut(_) | Self::Disconnected(_) | Self::Unreachable(_) => None,
        }
    }

    /// True if the request may have had an effect.
    pub(crate) fn may_have_been_done(&self) -> bool {
        matches!(self, Self::Accepted(_) | Self::Unclear(..) | Self::TimedOut(_) | Self::Disconnected(_))
    }
}

impl std::fmt::Display for ServiceRequestOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accepted(status) => write!(f, "{status}"),
            Self::Stale => f.write_str("412 with `Fencing-Refusal: stale`"),
            Self::Expired => f.write_str("412 with `Fencing-Refusal: expired`"),
            Self::Refused(412, body) => write!(f, "412 without `Fencing-Refusal: stale` {body}"),
            Self::Refused(status, body) | Self::Unclear(status, body) => write!(f, "{status} {body}"),
            Self::TimedOut(reason) => write!(f, "no answer: {reason}"),
            Self::Disconnected(reason) => write!(f, "no answer, but the end of the connection: {reason}"),
            Self::Unreachable(reason) => write!(f, "not sent: {reason}"),
        }
    }
}

/// The beginning of a body, on one line.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(EXCERPT)]);
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).collect();
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::{HeaderMap, StatusCode, header::HeaderValue};

    use super::*;

    fn outcome_of(status: u16, refusal: Option<&'static str>) -> ServiceRequestOutcome {
        let mut fields = HeaderMap::new();
        if let Some(refusal) = refusal {
            fields.insert(FENCING_REFUSAL, HeaderValue::from_static(refusal));
        }
        let status = StatusCode::from_u16(status).expect("a status");
        ServiceRequestOutcome::from_response(Ok(ServiceResponse {
            status,
            fields,
            body: Bytes::from_static(b"so\r\n\x1b[1m it is"),
        }))
    }

    /// Only a status 412 whose reason is `stale` counts as stale.
    #[test]
    fn only_marked_412_is_stale() {
        assert_eq!(outcome_of(412, Some("stale")), ServiceRequestOutcome::Stale);
        assert_eq!(outcome_of(412, Some("expired")), ServiceRequestOutcome::Expired);
        assert!(!ServiceRequestOutcome::Expired.may_have_been_done());
        assert_eq!(outcome_of(412, None), ServiceRequestOutcome::Refused(412, "so [1m it is".into()));
        assert_eq!(
            outcome_of(412, Some("floor")),
            ServiceRequestOutcome::Refused(412, "so [1m it is".into())
        );
        assert_eq!(
            outcome_of(409, Some("stale")),
            ServiceRequestOutcome::Refused(409, "so [1m it is".into())
        );
        assert_eq!(outcome_of(204, Some("stale")), ServiceRequestOutcome::Accepted(204));
        assert!(matches!(outcome_of(500, None), ServiceRequestOutcome::Unclear(500, _)));
        assert!(outcome_of(500, None).may_have_been_done() && !outcome_of(412, None).may_have_been_done());
    }
}
