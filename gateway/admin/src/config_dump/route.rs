//! A route: which requests it takes, and how it takes their lock.

use std::time::Duration;

use fencegate_policies::{
    host::{HostMatcher, HostPattern},
    permits::PermitCount,
    plan::{
        BodyTypeRequirement, CachedHoldLimits, FenceRule, HoldPolicy, IdempotencyRule, IdempotencyStore,
        LargeBodyPolicy, LockPlacement, MatchConditions, MigrationSourceLock, NestedRequestPolicy,
        OperationQuota, PeerForwardPolicy, Route, is_credential,
    },
};
use serde::Serialize;

use super::duration::format_duration;

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = EffectiveRoute))]
pub struct EffectiveRoute {
    pub name: String,
    pub upstream: String,
    /// Empty means every method.
    pub methods: Vec<String>,
    pub path: String,
    /// Hosts, and `*.` before a name for all hosts below it. Empty means every host.
    pub hosts: Vec<String>,
    /// The fields that a request must have, each with its value.
    pub headers: Vec<NamedConditionValue>,
    /// The parameters of the query that a request must have, each with its value.
    pub query: Vec<NamedConditionValue>,
    /// Protocols that its requests may switch to.
    pub upgrade: Vec<String>,
    /// Null on unfenced routes.
    pub fence: Option<EffectiveFence>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = EffectiveNamedValue))]
pub struct NamedConditionValue {
    pub name: String,
    /// Absent for a field that authenticates clients, such as `authorization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveFence {
    pub keys: Vec<String>,
    /// Whether a request takes all of its keys together, by `keys`.
    pub set: bool,
    pub layout: &'static str,
    /// Where the lock nodes of another layout lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_path: Option<String>,
    /// The number of permits; absent if one request, or any number of readers, can hold the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u16>,
    /// The lock that requests take as well, while gateways migrate from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrate_from: Option<EffectiveFormerLock>,
    pub mode: &'static str,
    pub wait: String,
    pub queue: usize,
    /// The most requests of one client that wait for or hold keys of the route; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_share: Option<usize>,
    /// `strict`, or `cached` with its linger.
    pub hold: String,
    /// The limits of `cached`; absent with `strict`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_limits: Option<EffectiveHoldLimits>,
    /// `never`, or `holder`.
    pub forward: &'static str,
    /// `ignore`, or `allow`.
    pub nested: &'static str,
    /// The status of a refusal because another request holds the key.
    pub locked_status: u16,
    /// An answer up to this size, in bytes, is buffered in full before the key is handed on.
    pub max_response: usize,
    /// `refuse`, or `stream`.
    pub large_bodies: &'static str,
    /// The longest time from the dispatch to the last byte, with `stream`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_timeout: Option<String>,
    /// What a body must be declared as from which a key is taken: `json`, or `any`.
    pub body_type: &'static str,
    /// Operations that happen at most once: where they are stored.
    pub once: Option<&'static str>,
    /// How operations are named and kept; absent without `once`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<EffectiveIdempotency>,
    /// How many items a list in a body may have of which keys are made; absent if no key is made of an item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<usize>,
    /// The sources of a request that are compared with the values of its keys: `path`, `query`, `form`, `json`, `cookie`.
    pub sources: Vec<&'static str>,
    /// `refuse`, or `pass` if nothing is compared.
    pub conflicts: &'static str,
    /// `refuse`, or `observe`: then what should be refused passes, and is reported.
    pub enforce: &'static str,
    /// `never`, `optional` or `required`.
    pub lease: &'static str,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveFormerLock {
    pub key: String,
    pub layout: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_path: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveHoldLimits {
    pub linger: String,
    pub max_local: u32,
    pub max_hold: String,
    pub max_tenure: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EffectiveOperation))]
pub struct EffectiveIdempotency {
    /// `guard`, or `zookeeper`.
    pub store: &'static str,
    /// The name of the operation.
    pub key: String,
    /// Its owner; absent if operations have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    pub scope: String,
    /// Whether a request without a name is refused.
    pub required: bool,
    pub keep: String,
    /// Statuses that end an operation, beside those that always do.
    #[serde(rename = "final")]
    pub finals: Vec<u16>,
    /// How many operations of the route ZooKeeper may store; absent with the store of a guard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<usize>,
    /// How many of them may be of one client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_share: Option<usize>,
}

impl EffectiveRoute {
    pub(super) fn new(route: &Route, upstream_name: String) -> Self {
        let Route { id: _, name, upstream: _, methods, path, conditions, fence, upgrade } = route;
        let MatchConditions { hosts, headers, query } = conditions;
        Self {
            name: name.to_string(),
            upstream: upstream_name,
            methods: methods.clone(),
            path: path.to_string(),
            hosts: match hosts {
                HostMatcher::Any => Vec::new(),
                HostMatcher::Only(patterns) => patterns.iter().map(format_host).collect(),
            },
            headers: named_values(headers),
            query: named_values(query),
            upgrade: upgrade.clone(),
            fence: fence.as_ref().map(EffectiveFence::new),
        }
    }
}

fn format_host(pattern: &HostPattern) -> String {
    match pattern {
        HostPattern::Host(name) => name.clone(),
        HostPattern::Below(suffix) => format!("*{suffix}"),
    }
}

fn named_values(pairs: &[(String, String)]) -> Vec<NamedConditionValue> {
    let shown = |(name, value): &(String, String)| NamedConditionValue {
        name: name.clone(),
        value: (!is_credential(name)).then(|| value.clone()),
    };
    pairs.iter().map(shown).collect()
}

impl EffectiveFence {
    fn new(fence: &FenceRule) -> Self {
        let FenceRule {
            keys,
            set,
            placing,
            former,
            mode,
            wait,
            queue,
            client_share,
            hold,
            forward,
            nested,
            locked_status,
            max_response,
            large_bodies,
            body_type,
            only,
            conflicts,
            enforce,
            once,
            lease,
        } = fence;
        Self {
            keys: keys.iter().map(ToString::to_string).collect(),
            set: *set,
            layout: placing.layout().as_str(),
            lock_path: lock_path(placing),
            permits: placing.permits().map(PermitCount::count),
            migrate_from: former.as_ref().map(EffectiveFormerLock::new),
            mode: mode.as_str(),
            wait: format_duration(*wait),
            queue: *queue,
            client_share: *client_share,
            hold: match hold {
                HoldPolicy::Strict => "strict".into(),
                HoldPolicy::Cached(limits) => format!("cached, linger {}", format_duration(limits.linger)),
            },
            hold_limits: match hold {
                HoldPolicy::Strict => None,
                HoldPolicy::Cached(limits) => Some(EffectiveHoldLimits::new(limits)),
            },
            forward: match forward {
                PeerForwardPolicy::Never => "never",
                PeerForwardPolicy::Holder => "holder",
            },
            nested: match nested {
                NestedRequestPolicy::Ignore => "ignore",
                NestedRequestPolicy::Allow => "allow",
            },
            locked_status: *locked_status,
            max_response: *max_response,
            large_bodies: match large_bodies {
                LargeBodyPolicy::Refuse => "refuse",
                LargeBodyPolicy::Stream { .. } => "stream",
            },
            upload_timeout: upload_timeout(*large_bodies).map(format_duration),
            body_type: match body_type {
                BodyTypeRequirement::Json => "json",
                BodyTypeRequirement::Any => "any",
            },
            once: once.as_ref().map(|once| store_name(&once.store)),
            operation: once.as_ref().map(EffectiveIdempotency::new),
            only: *only,
            sources: conflicts.sources().map(|(word, _)| word).collect(),
            conflicts: conflicts.as_str(),
            enforce: enforce.as_str(),
            lease: lease.as_str(),
        }
    }
}

fn lock_path(placing: &LockPlacement) -> Option<String> {
    match placing {
        LockPlacement::Native | LockPlacement::Semaphore { permits: _ } => None,
        LockPlacement::Foreign { layout: _, path } => Some(path.to_string()),
    }
}

fn upload_timeout(large_bodies: LargeBodyPolicy) -> Option<Duration> {
    match large_bodies {
        LargeBodyPolicy::Refuse => None,
        LargeBodyPolicy::Stream { within } => Some(within),
    }
}

fn store_name(store: &IdempotencyStore) -> &'static str {
    match store {
        IdempotencyStore::Guard => "guard",
        IdempotencyStore::ZooKeeper => "zookeeper",
    }
}

impl EffectiveFormerLock {
    fn new(former: &MigrationSourceLock) -> Self {
        let MigrationSourceLock { key, placing } = former;
        Self { key: key.to_string(), layout: placing.layout().as_str(), lock_path: lock_path(placing) }
    }
}

impl EffectiveHoldLimits {
    fn new(limits: &CachedHoldLimits) -> Self {
        let CachedHoldLimits { linger, max_local, max_hold, max_tenure } = limits;
        Self {
            linger: format_duration(*linger),
            max_local: *max_local,
            max_hold: format_duration(*max_hold),
            max_tenure: format_duration(*max_tenure),
        }
    }
}

impl EffectiveIdempotency {
    fn new(rule: &IdempotencyRule) -> Self {
        let IdempotencyRule { store, key, principal, scope, required, keep, finals, memory } = rule;
        let OperationQuota { route, client } = memory;
        let in_zookeeper = matches!(store, IdempotencyStore::ZooKeeper);
        Self {
            store: store_name(store),
            key: key.to_string(),
            principal: principal.as_ref().map(ToString::to_string),
            scope: scope.clone(),
            required: *required,
            keep: format_duration(*keep),
            finals: finals.clone(),
            share: in_zookeeper.then_some(*route),
            client_share: client.filter(|_| in_zookeeper),
        }
    }
}
