//! The response that a client got: the whole message, its times, and the meaning of its fields.

use std::time::{Duration, Instant};

use bytes::Bytes;
use fencegate_policies::token::FencingToken;
use fencegate_refusal::PROBLEMS;
use http_body_util::BodyExt;
use hyper::{HeaderMap, body::Incoming};

/// A complete response.
#[derive(Debug, Clone)]
pub struct ClientResponse {
    pub status: u16,
    pub fields: HeaderMap,
    pub body: Bytes,
    pub trailers: HeaderMap,
    pub invoked: Instant,
    pub completed: Instant,
}

/// The value of `Fencing-Outcome`, without its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FencingOutcome {
    Done,
    Replayed,
    NotDispatched,
    Unknown,
}

impl ClientResponse {
    pub(super) async fn read(response: hyper::Response<Incoming>, invoked: Instant) -> hyper::Result<Self> {
        let (head, body) = response.into_parts();
        let collected = body.collect().await?;
        let trailers = collected.trailers().cloned().unwrap_or_default();
        Ok(Self {
            status: head.status.as_u16(),
            fields: head.headers,
            body: collected.to_bytes(),
            trailers,
            invoked,
            completed: Instant::now(),
        })
    }

    /// The value of a field; `None` if it is missing.
    ///
    /// # Panics
    /// If the field occurs twice, or is not text.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.get_all(name).iter();
        let value = values.next().map(|value| value.to_str().expect("a text field"));
        assert!(values.next().is_none(), "`{name}` stands twice in {self:?}");
        value
    }

    /// The outcome; `None` if the response has none.
    ///
    /// # Panics
    /// If the value is not an outcome.
    pub fn outcome(&self) -> Option<FencingOutcome> {
        let word = self.field("fencing-outcome")?.split(';').next().unwrap_or_default().trim();
        Some(match word {
            "done" => FencingOutcome::Done,
            "replayed" => FencingOutcome::Replayed,
            "not-dispatched" => FencingOutcome::NotDispatched,
            "unknown" => FencingOutcome::Unknown,
            other => panic!("no outcome: `{other}`"),
        })
    }

    /// The fencing token; `None` if the response has none.
    ///
    /// # Panics
    /// If the token does not parse.
    pub fn token(&self) -> Option<FencingToken> {
        Some(FencingToken::parse(self.field("fencing-token")?).expect("a token as the gateway writes it"))
    }

    /// The reason of a refusal. Checks that the fields and the body of the refusal agree.
    ///
    /// # Panics
    /// If the response is not a well-formed refusal.
    pub fn reason(&self) -> String {
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).expect("a problem is JSON");
        let text = |member: &str| problem[member].as_str().unwrap_or_default().to_owned();
        let reason = text("reason");
        assert_eq!(text("type"), format!("{PROBLEMS}#{reason}"), "{problem}");
        assert_eq!(problem["status"], self.status, "{problem}");
        assert!(!text("title").is_empty(), "{problem}");
        let header = self.field("fencing-outcome").and_then(|value| value.split(';').next());
        if let Some(header) = header {
            assert_eq!(text("outcome"), header.trim(), "{problem}");
        }
        reason
    }

    pub fn took(&self) -> Duration {
        self.completed - self.invoked
    }
}
