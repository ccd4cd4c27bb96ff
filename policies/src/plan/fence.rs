//! How a route takes its lock, which keys that lock has, and how long it is kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    layout::{LockLocation, LockPlacement},
    once::IdempotencyRule,
};
use crate::key::{
    ContentDeclaration, ExtractKeyError, JsonPointer, KeyTemplate, ParameterConflictPolicy,
    RequestParameterSources, RequestValues, ResourceKey, compare_with_other_sources,
    json::{BodyValues, ParseBodyError},
};
use crate::permits::PermitCount;
use crate::plan::peer_listener::PeerForwardPolicy;

/// How a route takes its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceRule {
    /// At least one, and exactly one unless [`FenceRule::set`]; in the order of the file.
    pub keys: Vec<KeyTemplate>,
    /// The key or keys of a request are a set: all are taken at once, and released after the request. True also for a
    /// set with one key.
    pub set: bool,
    /// Where the locks lie, and how many holders one has; always native for a set.
    pub placing: LockPlacement,
    /// The lock that requests take as well, while the gateways migrate from it to the lock of this fence.
    pub former: Option<MigrationSourceLock>,
    pub mode: LockModeRule,
    /// How long a request waits for its lock. Default 5 s.
    pub wait: Duration,
    /// Waiting requests per key and gateway. Default 100.
    pub queue: usize,
    /// The most requests of one client that wait for or hold keys of the route at this gateway. Default: no limit.
    pub client_share: Option<usize>,
    /// Always [`HoldPolicy::Strict`] for a set and for permits.
    pub hold: HoldPolicy,
    pub forward: PeerForwardPolicy,
    pub nested: NestedRequestPolicy,
    /// The status of a refusal because another request holds the key: 423, or 409, 429 or 503 where configured.
    pub locked_status: u16,
    /// An answer up to this size is buffered in full before the key is handed on. Default 1 MiB.
    pub max_response: usize,
    pub large_bodies: LargeBodyPolicy,
    pub body_type: BodyTypeRequirement,
    /// How many items a list in a body may have of which keys are made; `None` where no key is made of an item. Each of these
    /// items is in a key.
    pub only: Option<usize>,
    /// The other sources in which a request may not have another value of a key.
    pub conflicts: ParameterConflictPolicy,
    pub enforce: Enforcement,
    /// Operations of this route happen at most once.
    pub once: Option<IdempotencyRule>,
    pub lease: LeasePolicy,
}

/// A lock from which a fence is migrated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationSourceLock {
    pub key: KeyTemplate,
    pub placing: LockPlacement,
}

/// What a request must declare about a body from which a key is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BodyTypeRequirement {
    /// The body is JSON in UTF-8, and not compressed.
    #[default]
    Json,
    /// Nothing: the service reads every body as JSON, whatever is declared.
    Any,
}

/// What happens to a request whose body is too large to be buffered in full before the lock is requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LargeBodyPolicy {
    #[default]
    Refuse,
    /// The body is sent under the lock, while it arrives.
    Stream {
        /// The longest time from the dispatch to the last byte: a slow client holds the lock no longer than that.
        within: Duration,
    },
}

impl LargeBodyPolicy {
    /// The default of `within`.
    pub const WITHIN: Duration = Duration::from_secs(60);
}

/// What happens to a request that a service sends while it works on a dispatch, and that shows the ticket and the
/// token of that dispatch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NestedRequestPolicy {
    /// The gateway ignores ticket and token. The request waits for its key as any other.
    #[default]
    Ignore,
    /// A request for the same key runs inside that dispatch, and waits for nothing. Dispatches then carry tickets at
    /// every level of the upstream.
    Allow,
}

/// What happens to requests with the lease of a client (`Fencing-Lease`), and to requests without one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LeasePolicy {
    /// A request with a lease is refused: it would wait for its own lock.
    #[default]
    Never,
    /// A request with a lease runs under it. A request without one takes the lock itself.
    Optional,
    /// A request with a lease runs under it. A request without one is refused.
    Required,
}

/// Whether the gateway refuses requests that should be refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Enforcement {
    #[default]
    Refuse,
    /// Such a request passes and is reported. Adoption in production begins with this.
    Observe,
}

impl Enforcement {
    /// The word of `enforce` in a policy.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Observe => "observe",
        }
    }
}

impl LeasePolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

impl FenceRule {
    /// True if some request of this fence and some request of `other` can lock one key, as far as the templates show.
    pub fn may_share_key(&self, other: &Self) -> bool {
        self.templates().any(|ours| other.templates().any(|theirs| ours.shape() == theirs.shape()))
    }

    /// True if a key or an operation is not known before the body is: see [`FenceRule::parse_body`].
    pub fn reads_body(&self) -> bool {
        self.pointers().next().is_some()
    }

    /// Reads a request body for [`RequestValues`](crate::key::RequestValues), and keeps the values that this fence's
    /// keys and operations need.
    ///
    /// # Errors
    /// Another reader could take other values from it.
    pub fn parse_body(
        &self,
        declaration: &ContentDeclaration<'_>,
        bytes: &[u8],
    ) -> Result<BodyValues, ParseBodyError> {
        if self.body_type == BodyTypeRequirement::Json {
            declaration.require_json()?;
        }
        BodyValues::parse(bytes, self.pointers())
    }

    /// The number of permits of a key; `None` where one request, or any number of readers, can hold it.
    pub fn permits(&self) -> Option<PermitCount> {
        self.placing.permits()
    }

    /// The templates of the fence's keys, and of the lock from which it is migrated.
    pub fn templates(&self) -> impl Iterator<Item = &KeyTemplate> {
        self.keys.iter().chain(self.former.iter().map(|former| &former.key))
    }

    /// The same, each with the place of its locks.
    pub fn locks(&self) -> impl Iterator<Item = (&KeyTemplate, &LockPlacement)> {
        let former = self.former.iter().map(|former| (&former.key, &former.placing));
        self.keys.iter().map(|key| (key, &self.placing)).chain(former)
    }

    fn pointers(&self) -> impl Iterator<Item = &JsonPointer> {
        let once = self.once.iter().flat_map(IdempotencyRule::templates);
        self.templates().chain(once).flat_map(KeyTemplate::pointers)
    }

    /// The rule by which a request with that method is an operation; `None` where the method only reads.
    pub fn once_rule(&self, method: &str) -> Option<&IdempotencyRule> {
        self.once.as_ref().filter(|_| self.mode.mode(method) == LockMode::Exclusive)
    }

    /// Where the lock of each of `keys` lies, which [`FenceRule::expand_all`] has made.
    ///
    /// # Errors
    /// The values of a key make no path that ZooKeeper accepts.
    pub fn sites(&self, keys: &[ResourceKey]) -> Result<Vec<LockLocation>, ExtractKeyError> {
        match (&self.former, &*self.keys) {
            (Some(former), _)
                if former.placing != LockPlacement::Native || self.placing != LockPlacement::Native =>
            {
                keys.iter().map(|key| self.migrated_site(former, key)).collect()
            }
            (None, [template]) => keys.iter().map(|key| self.placing.site(template, key)).collect(),
            _ => Ok(vec![LockLocation::Native; keys.len()]),
        }
    }

    /// The site of one key of a migrated fence. The key shows to which of the two locks it belongs.
    fn migrated_site(
        &self,
        former: &MigrationSourceLock,
        key: &ResourceKey,
    ) -> Result<LockLocation, ExtractKeyError> {
        match self.keys.iter().find(|template| template.parse_values(key).is_some()) {
            Some(template) => self.placing.site(template, key),
            None => former.placing.site(&former.key, key),
        }
    }

    /// Where the lock of `key` lies, if some request of this fence may take it.
    pub fn site_of(&self, key: &ResourceKey) -> Option<LockLocation> {
        let (template, placing) = self.locks().find(|(template, _)| template.parse_values(key).is_some())?;
        placing.site(template, key).ok()
    }

    /// Compares the values of the request's keys, and of the name of its operation, with the other sources of the
    /// request.
    ///
    /// # Errors
    /// The service may read another value than the one in the key.
    pub fn compare_sources(
        &self,
        method: &str,
        values: &dyn RequestValues,
        sent: &RequestParameterSources<'_>,
    ) -> Result<(), ExtractKeyError> {
        let once = self.once_rule(method).into_iter().flat_map(IdempotencyRule::templates);
        compare_with_other_sources(self.templates().chain(once), &self.conflicts, values, sent)
    }

    /// The keys of one request: at least one, each once, in the order that all gateways use.
    pub fn expand_all(&self, values: &dyn RequestValues) -> Result<Vec<ResourceKey>, ExtractKeyError> {
        let keys = self.templates().map(|key| key.expand(values));
        let mut keys = keys.collect::<Result<Vec<_>, _>>()?;
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

/// Who else may hold a key at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Mode))]
pub enum LockMode {
    /// Nobody.
    Exclusive,
    /// Other requests that share the key.
    Shared,
}

impl LockMode {
    /// Reads [`LockMode::as_str`] back.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Exclusive, Self::Shared].into_iter().find(|mode| mode.as_str() == word)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            LockMode::Exclusive => "exclusive",
            LockMode::Shared => "shared",
        }
    }
}

/// How a route finds the mode of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockModeRule {
    Exclusive,
    Shared,
    /// Shared for GET and HEAD, which change nothing (RFC 9110, 9.2.1), exclusive for all others.
    ByMethod,
}

impl LockModeRule {
    /// Methods compare exactly: `get` is exclusive.
    pub fn mode(self, method: &str) -> LockMode {
        match (self, method) {
            (Self::Shared, _) | (Self::ByMethod, "GET" | "HEAD") => LockMode::Shared,
            (Self::Exclusive | Self::ByMethod, _) => LockMode::Exclusive,
        }
    }

    /// True if some request shares its key.
    pub fn has_shared_requests(self) -> bool {
        self != Self::Exclusive
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::ByMethod => "by-method",
        }
    }
}

/// What happens to a lock node after its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldPolicy {
    /// One lock node per request.
    Strict,
    /// The node is kept for the requests to come.
    Cached(CachedHoldLimits),
}

/// How long a gateway keeps a key for its own requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedHoldLimits {
    /// A key that no request wants is released after this long. Default 250 ms.
    pub linger: Duration,
    /// Requests that may still be granted once another gateway wants the key; at least 1. Default 64.
    pub max_local: u32,
    /// No request is granted later than this after another gateway began to want the key. Default 100 ms.
    pub max_hold: Duration,
    /// The longest that one node is kept, even when no other gateway wants it. Default 10 min.
    pub max_tenure: Duration,
}

impl Default for CachedHoldLimits {
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(250),
            max_local: 64,
            max_hold: Duration::from_millis(100),
            max_tenure: Duration::from_secs(600),
        }
    }
}

#[cfg(test)]
mod tests;
