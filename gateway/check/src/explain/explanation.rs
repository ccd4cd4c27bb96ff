//! The explanation of a request, part by part, for people and for programs.

use fencegate_policies::{
    key::SourceValue,
    plan::{EffectiveRoute, EffectiveUpstream},
};
use fencegate_refusal::{DispatchOutcome, Refusal};
use hyper::StatusCode;
use serde::Serialize;

use super::request_diff::ForwardedRequestDiff;

/// The explanation of a request. A part is absent if the request is refused before the part is known.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestExplanation {
    pub method: String,
    pub target: String,
    /// `None` if no route matches the request.
    pub route: Option<String>,
    pub upstream: Option<UpstreamExplanation>,
    /// The values for the variables of keys and of operations; empty on an unfenced route, and if the request is refused before
    /// they are read.
    pub sources: Vec<SourceValue>,
    pub lock: Option<LockExplanation>,
    pub once: Option<OperationExplanation>,
    /// The reason for which a route that only observes would refuse the request.
    pub observed: Option<&'static str>,
    pub sent: Option<ForwardedRequestDiff>,
    pub refused: Option<RefusalExplanation>,
    /// The status of a response that the gateway gives by itself, and that is no refusal.
    pub answered: Option<u16>,
    /// `None` if no route matches the request.
    pub policy: Option<MatchedRouteConfig>,
    /// The results of the spellings next to the request; absent unless they are requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variants: Option<Vec<RespelledRequestExplanation>>,
}

impl RequestExplanation {
    /// The keys that the request holds while it runs; none without a lock.
    fn keys(&self) -> Vec<String> {
        self.lock.iter().flat_map(|lock| &lock.keys).map(|held| held.key.clone()).collect()
    }

    /// The name of the operation, and its principal.
    fn operation(&self) -> Option<(&str, &str)> {
        self.once.as_ref().map(|once| (&*once.name, &*once.principal))
    }
}

/// The result of a request in another spelling.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct RespelledRequestExplanation {
    /// The difference in spelling, such as `leading zero of `42``.
    pub spelling: String,
    /// The part of the request that differs: its target, a header field, or its body.
    pub written: String,
    pub gives: RespellingOutcome,
    /// `None` if no route matches the request.
    pub route: Option<String>,
    /// Empty without a lock.
    pub keys: Vec<String>,
    pub refused: Option<RefusalExplanation>,
    /// The status of a response that the gateway gives by itself, and that is no refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<u16>,
}

/// The result of a request in another spelling, compared with the request to explain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RespellingOutcome {
    /// The same keys, and no other.
    SameKey,
    /// The same keys, and an operation of another name: it is no repeat, and runs again.
    AnotherOperation,
    /// The same keys, and others beside them.
    MoreKeys,
    /// Not all of the same keys: the two requests do not take turns, or not for all of it.
    AnotherKey,
    /// No lock.
    Unfenced,
    Refused,
    /// The gateway answers by itself, and that is no refusal.
    Answered,
}

impl RespellingOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SameKey => "same key",
            Self::AnotherOperation => "another operation",
            Self::MoreKeys => "more keys",
            Self::AnotherKey => "another key",
            Self::Unfenced => "unfenced",
            Self::Refused => "refused",
            Self::Answered => "answered",
        }
    }

    /// True if the service must take the spelling for another resource, or both requests may run at once.
    pub fn is_outside_lock(self) -> bool {
        matches!(self, Self::AnotherKey | Self::Unfenced)
    }
}

impl RespelledRequestExplanation {
    pub(super) fn new(
        spelling: String,
        written: String,
        asked: &RequestExplanation,
        given: RequestExplanation,
    ) -> Self {
        let keys = given.keys();
        let is_same_operation = given.operation() == asked.operation();
        let asked = asked.keys();
        let gives = match () {
            () if given.refused.is_some() => RespellingOutcome::Refused,
            () if given.answered.is_some() => RespellingOutcome::Answered,
            () if keys.is_empty() => RespellingOutcome::Unfenced,
            () if keys == asked && is_same_operation => RespellingOutcome::SameKey,
            () if keys == asked => RespellingOutcome::AnotherOperation,
            () if !asked.is_empty() && asked.iter().all(|key| keys.contains(key)) => {
                RespellingOutcome::MoreKeys
            }
            () => RespellingOutcome::AnotherKey,
        };
        let RequestExplanation { route, refused, answered, .. } = given;
        Self { spelling, written, gives, route, keys, refused, answered }
    }
}

/// All fields of the route and of its upstream, as `GET /api/v1/config` shows them.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct MatchedRouteConfig {
    pub route: EffectiveRoute,
    pub upstream: EffectiveUpstream,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamExplanation {
    pub name: String,
    pub endpoints: Vec<String>,
    /// The level of fencing, which tells the process that compares tokens.
    pub fencing: &'static str,
    /// The time for which the next holder waits after a holder that ended without releasing the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
}

/// The lock that the request holds while it runs.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct LockExplanation {
    pub keys: Vec<ExplainedKey>,
    /// The layout of the lock's nodes, if other programs use the same queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<&'static str>,
    /// The number of permits; absent if one request, or any number of readers, can hold the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u16>,
    /// Other routes whose requests may lock the same keys.
    pub also: Vec<String>,
    pub mode: &'static str,
    pub wait: String,
    /// The status of a refusal when the wait is over.
    pub locked_status: u16,
    pub queue: usize,
    /// The most requests of one client that wait for or hold keys of the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_share: Option<usize>,
    /// The client for which they are counted, as far as it was verified; absent if its address counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_client: Option<String>,
    pub hold: LockReuseExplanation,
    /// `optional` or `required` for requests under the lease of a client. Absent if such requests are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<&'static str>,
    /// `holder` if the request is forwarded to the gateway that holds the key. Absent if it waits here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward: Option<&'static str>,
    /// The time limit for a body too large to be taken in full; absent if such bodies are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_timeout: Option<String>,
    pub enforce: &'static str,
}

/// A key, and its node in ZooKeeper.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedKey {
    pub key: String,
    pub path: String,
}

/// The time for which a key is kept after its request.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum LockReuseExplanation {
    Strict,
    Cached { linger: String, max_local: u32, max_hold: String, max_tenure: String },
}

/// The operation of the request.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct OperationExplanation {
    pub name: String,
    /// Empty if the route has no principals.
    pub principal: String,
    pub store: &'static str,
    pub keep: String,
    /// The reference by which an operator finds the operation.
    pub reference: String,
    /// The node that records the operation, if ZooKeeper does.
    pub path: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct RefusalExplanation {
    /// `None` if the HTTP library refuses the request before the first step.
    pub reason: Option<&'static str>,
    pub status: u16,
    pub outcome: &'static str,
    pub detail: String,
}

impl RefusalExplanation {
    pub(super) fn new(refusal: &Refusal) -> Self {
        Self {
            reason: Some(refusal.reason.word()),
            status: refusal.status().as_u16(),
            outcome: refusal.outcome().as_str(),
            detail: format!("{} ({})", refusal.reason.title(), refusal.detail),
        }
    }

    /// The refusal of a request that the HTTP library answers before any step receives it.
    pub(super) fn for_unreadable_request(status: StatusCode, why: &dyn std::error::Error) -> Self {
        let outcome = DispatchOutcome::NotDispatched.as_str();
        Self { reason: None, status: status.as_u16(), outcome, detail: format!("no HTTP request: {why}") }
    }
}
