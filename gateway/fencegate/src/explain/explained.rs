//! What a request meets, part by part, as it is told to people and to programs.

use hyper::StatusCode;
use serde::Serialize;

use super::sent::Sent;
use crate::refusal::{Outcome, Refusal};

/// What a request meets. Absent parts are not known at the point where it is refused.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Explained {
    pub method: String,
    pub target: String,
    /// `None` for what no route takes.
    pub route: Option<String>,
    pub upstream: Option<Destination>,
    pub lock: Option<TakenLock>,
    pub once: Option<Operation>,
    /// The reason why it would be refused, on a route that only observes.
    pub observed: Option<&'static str>,
    pub sent: Option<Sent>,
    pub refused: Option<Refused>,
    /// The status of an answer that the gateway gives by itself, and that is no refusal.
    pub answered: Option<u16>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Destination {
    pub name: String,
    pub endpoints: Vec<String>,
    /// Who compares tokens.
    pub fencing: &'static str,
    /// How long the next holder waits after one that left without a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
}

/// What is held while the request runs.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct TakenLock {
    pub keys: Vec<HeldKey>,
    /// How the nodes below it are called, where other programs stand in the same line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<&'static str>,
    /// How many hold a key at once; absent where one does, or readers do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u16>,
    /// Other routes whose requests may lock the same keys.
    pub also: Vec<String>,
    pub mode: &'static str,
    pub wait: String,
    /// The answer when the wait is over.
    pub locked_status: u16,
    pub queue: usize,
    /// Of it, for one client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_share: Option<usize>,
    pub hold: Kept,
    /// What becomes of a request that shows the lease of a client: `optional` or `required`. Absent where it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<&'static str>,
    /// Where another gateway keeps the key, the request is sent on to it: `holder`. Absent where it waits here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward: Option<&'static str>,
    /// How long a body may go up that is too large to be taken in full; absent where it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_timeout: Option<String>,
    pub enforce: &'static str,
}

/// A key, and the node in ZooKeeper that stands for it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct HeldKey {
    pub key: String,
    pub path: String,
}

/// How long a key is kept after its request.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum Kept {
    Strict,
    Cached { linger: String, max_local: u32, max_hold: String, max_tenure: String },
}

/// What happens at most once.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Operation {
    pub name: String,
    /// Empty where the route asks for none.
    pub principal: String,
    pub store: &'static str,
    pub keep: String,
    /// What an operator finds it by.
    pub reference: String,
    /// Where ZooKeeper remembers it.
    pub path: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// `None` where the HTTP library refuses, before any of the steps.
    pub reason: Option<&'static str>,
    pub status: u16,
    pub outcome: &'static str,
    pub detail: String,
}

impl Refused {
    pub(super) fn of(refusal: &Refusal) -> Self {
        Self {
            reason: Some(refusal.reason.word()),
            status: refusal.status().as_u16(),
            outcome: refusal.outcome().word(),
            detail: format!("{} ({})", refusal.reason.title(), refusal.detail),
        }
    }

    /// The HTTP library answers before the gateway has seen anything.
    pub(super) fn unreadable(status: StatusCode, why: &dyn std::error::Error) -> Self {
        let outcome = Outcome::NotDispatched.word();
        Self { reason: None, status: status.as_u16(), outcome, detail: format!("no HTTP request: {why}") }
    }
}
