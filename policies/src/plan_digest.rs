//! The part of a plan that decides which lock a request takes, in the form that gateways publish for each other.
//!
//! If two gateways give different locks to the same request, two requests can change one resource at once. So each
//! gateway publishes its fenced routes, and [`crate::conflicts`] finds the routes whose requests another gateway would
//! send to the same service under another lock. Routes without a fence are not published, because with them the bypass
//! of the lock is explicit in the file.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::{
    client_name::CertificateNameKind,
    graphql::GraphqlOperation,
    host::{HostMatcher, HostPattern},
    key::{GlobRelation, JsonPointer, KeyTemplate, ResourceKey},
    path::{PathTemplate, PathTemplateSegment},
    plan::{
        BodyCondition, CommonServingPlan, ConditionValue, FenceRule, KeyPattern, LeaseGrantSettings,
        LockPlacement, MatchConditions, Route, Upstream,
    },
};

/// The fenced routes of a plan in the order in which they are tried, and the keys that clients may hold by leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedLockRules {
    /// The version of the published form.
    pub format: u32,
    pub routes: Vec<PublishedFencedRoute>,
    /// The lease patterns, sorted, each once. A build that does not know this field compares only the routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<String>,
}

/// A fenced route of a published plan.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PublishedFencedRoute {
    /// The name of the route, only for display: two gateways may use different names.
    pub name: String,
    /// The name of the upstream. Two upstreams are the same service if they share this name or an endpoint.
    pub upstream: String,
    pub endpoints: Vec<String>,
    /// The methods, sorted. Empty means every method.
    pub methods: Vec<String>,
    pub path: Vec<PublishedPathSegment>,
    #[serde(default, skip_serializing_if = "PublishedMatchConditions::is_empty")]
    pub conditions: PublishedMatchConditions,
    /// The locks that each request takes together: the lock of its keys, and the former lock during a migration. So a
    /// request excludes every request that takes one of them.
    pub locks: Vec<PublishedLock>,
}

/// A segment of a path template, without the names of variables.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublishedPathSegment {
    Is(String),
    Any,
    /// All remaining segments.
    Rest,
}

/// The conditions of a route other than method and path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PublishedMatchConditions {
    /// The hosts; empty means every host.
    #[serde(default)]
    pub hosts: Vec<String>,
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    #[serde(default)]
    pub query: Vec<(String, String)>,
    /// The pointers to members, each with its values. A build that does not know this field assumes that the route
    /// takes more requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<(String, Vec<ConditionValue>)>,
    /// `query` or `mutation`. A build that does not know this field assumes that the route takes more requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graphql: Option<String>,
}

/// The lock of one request: all of its keys, in one layout.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PublishedLock {
    /// The key templates, sorted, each once. Variables of the path are named by their position in it, counted from 0.
    pub keys: Vec<String>,
    /// The layout of the nodes; `None` for our own. For a key with permits, `permits` and their number, such as
    /// `permits 3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// The template of the path in a foreign layout, with the names of the key's variables; `None` for our own layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// True if the next holder waits for a delay after a holder that died. A gateway without this setting would not
    /// wait.
    #[serde(default, skip_serializing_if = "is_false")]
    pub delay: bool,
}

/// The reason for which published data cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParsePublishedRulesError {
    #[error("the published plan is of format {found}, and this build reads up to {FORMAT}")]
    UnsupportedFormat { found: u32 },
    #[error("the published plan is malformed: {0}")]
    Malformed(String),
}

/// The newest version of the published form that this build can read.
pub const FORMAT: u32 = 1;

impl PublishedLockRules {
    /// Makes the published form of a plan. `leases`: the leases that the gateway grants, if it does.
    pub fn from_plan(plan: &CommonServingPlan, leases: Option<&LeaseGrantSettings>) -> Self {
        let fenced = |route: &Route| {
            let fence = route.fence.as_ref()?;
            Some(PublishedFencedRoute::new(route, fence, plan.upstream(route.upstream)))
        };
        let principals = leases.map(|leases| &*leases.principals).unwrap_or_default();
        let patterns = principals.iter().flat_map(|principal| &principal.keys).map(ToString::to_string);
        let patterns: BTreeSet<String> = patterns.collect();
        let routes = plan.routes.routes().iter().filter_map(fenced).collect();
        Self { format: FORMAT, routes, leases: patterns.into_iter().collect() }
    }

    /// The routes, then an entry for each lease pattern. Each entry may be compatible with another plan or not.
    pub fn entries(&self) -> Vec<PublishedFencedRoute> {
        let leases =
            self.leases.iter().map(|pattern| PublishedFencedRoute::for_lease_pattern(pattern, &self.routes));
        self.routes.iter().cloned().chain(leases).collect()
    }

    /// The plan to publish while `next` takes the place of this plan. Requests and clients may still hold locks of this
    /// plan, so all its locks and leases stay. A route that `next` also has, with the same locks, is published with the
    /// endpoints of `next`, because new requests go to these.
    #[must_use]
    pub fn merge_for_switch_to(&self, next: &Self) -> Self {
        let there: HashMap<RouteIdentity, &PublishedFencedRoute> =
            next.routes.iter().map(|route| (route.identity(), route)).collect();
        let routes = self.routes.iter().map(|route| there.get(&route.identity()).copied().unwrap_or(route));
        Self { format: FORMAT, routes: routes.cloned().collect(), leases: self.leases.clone() }
    }

    /// Adds the lease patterns of `before`, because clients may still hold locks under them.
    #[must_use]
    pub fn with_leases_of(&self, before: &Self) -> Self {
        let leases: BTreeSet<&String> = self.leases.iter().chain(&before.leases).collect();
        Self { leases: leases.into_iter().cloned().collect(), ..self.clone() }
    }

    /// Removes the lease patterns that `next` lacks, except those of a key in `held`, which a client still holds.
    #[must_use]
    pub fn without_leases_gone_in(&self, next: &Self, held: &[ResourceKey]) -> Self {
        let is_held = |written: &String| held.iter().any(|key| KeyPattern::published_matches(written, key));
        let stay = self.leases.iter().filter(|written| next.leases.contains(written) || is_held(written));
        Self { leases: stay.cloned().collect(), ..self.clone() }
    }

    /// The published form. Equal routes give the same bytes from every gateway.
    ///
    /// # Panics
    /// Never panics, because all fields can be serialised.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain fields serialise")
    }

    /// Reads the published form of a plan.
    ///
    /// # Errors
    /// Returns an error if a later build has written the data in a newer form, or if it is not a published plan.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParsePublishedRulesError> {
        #[derive(Deserialize)]
        struct PublishedFormatHeader {
            format: u32,
        }
        let foreign = |error: serde_json::Error| ParsePublishedRulesError::Malformed(error.to_string());
        // The version is read first, because other fields may be missing in a newer form.
        let PublishedFormatHeader { format: found } = serde_json::from_slice(bytes).map_err(foreign)?;
        if found > FORMAT {
            return Err(ParsePublishedRulesError::UnsupportedFormat { found });
        }
        serde_json::from_slice(bytes).map_err(foreign)
    }
}

impl PublishedFencedRoute {
    /// `fence`: the fence of `route`. `upstream`: the upstream of `route`.
    pub fn new(route: &Route, fence: &FenceRule, upstream: &Upstream) -> Self {
        let sorted = |texts: &mut dyn Iterator<Item = String>| -> Vec<String> {
            texts.collect::<BTreeSet<_>>().into_iter().collect()
        };
        Self {
            name: route.name.to_string(),
            upstream: upstream.name.to_string(),
            endpoints: sorted(&mut upstream.endpoints.iter().map(ToString::to_string)),
            methods: sorted(&mut route.methods.iter().cloned()),
            path: route.path.pieces().iter().map(PublishedPathSegment::from).collect(),
            conditions: PublishedMatchConditions::from_conditions(&route.conditions),
            locks: published_locks(fence, upstream, &route.path),
        }
    }
}

impl PublishedFencedRoute {
    /// An entry for the keys of a pattern that clients may lease, in a plan with these routes. No request takes this
    /// entry as its route.
    ///
    /// The entry has the locks of routes for such keys that are not native: with another layout, at another path, or
    /// with a delay. A lease of such a key takes the same lock, or is refused. If the plan loses one of these routes,
    /// it would lease the key under another lock. The entry then differs, so the plan is published again.
    pub fn for_lease_pattern(pattern: &str, routes: &[Self]) -> Self {
        let name = format!("leases of {pattern}");
        let keys = KeyPattern::published_glob(pattern);
        let meets =
            |key: &String| KeyTemplate::published_glob(key).relation_to(&keys) == GlobRelation::Overlapping;
        let locks = routes.iter().flat_map(|route| &route.locks).filter(|lock| !lock.is_native());
        let mut locks: Vec<PublishedLock> =
            locks.filter(|lock| lock.keys.iter().any(meets)).cloned().collect();
        locks.dedup();
        Self {
            upstream: name.clone(),
            name,
            endpoints: Vec::new(),
            methods: Vec::new(),
            path: Vec::new(),
            conditions: PublishedMatchConditions::default(),
            locks,
        }
    }
}

/// The part of a route that identifies it in two plans: requests of routes with an equal identity take the same locks
/// by both, wherever they are sent.
pub type RouteIdentity<'r> =
    (&'r str, &'r [String], &'r [PublishedPathSegment], &'r PublishedMatchConditions, &'r [PublishedLock]);

impl PublishedFencedRoute {
    pub fn identity(&self) -> RouteIdentity<'_> {
        (&self.upstream, &self.methods, &self.path, &self.conditions, &self.locks)
    }
}

/// The locks of a fence: two while it is migrated from one to the other, else one.
fn published_locks(fence: &FenceRule, upstream: &Upstream, path: &PathTemplate) -> Vec<PublishedLock> {
    let lock = |keys, placing| PublishedLock::new(keys, placing, path, fence.client_name);
    let ours = lock(&fence.keys, &fence.placing);
    let former = fence.former.as_ref();
    let former = former.map(|former| lock(std::slice::from_ref(&former.key), &former.placing));
    let delay = upstream.fencing.handover_delay().is_some();
    std::iter::once(ours).chain(former).map(|lock| PublishedLock { delay, ..lock }).collect()
}

impl PublishedLock {
    fn new(
        keys: &[KeyTemplate],
        placing: &LockPlacement,
        route: &PathTemplate,
        client_name: Option<CertificateNameKind>,
    ) -> Self {
        let (layout, path) = match placing {
            LockPlacement::Native => (None, None),
            // The number of permits is part of the layout and not a field of its own, because a build that does not
            // know permits would ignore such a field and count as compatible.
            LockPlacement::Semaphore { permits } => (Some(format!("permits {permits}")), None),
            LockPlacement::Foreign { layout, path } => {
                (Some(layout.as_str().to_owned()), Some(path.to_string()))
            }
        };
        let keys: BTreeSet<String> = keys.iter().map(|key| key.with_positions(route, client_name)).collect();
        Self { keys: keys.into_iter().collect(), layout, path, delay: false }
    }

    /// Whether the lock is of the kind that leases take by default.
    pub(crate) fn is_native(&self) -> bool {
        self.layout.is_none() && self.path.is_none() && !self.delay
    }

    /// Whether both locks are the same for one key. The key templates may differ in the positions of their variables.
    pub(crate) fn has_placement_of(&self, other: &Self) -> bool {
        let shapes =
            |lock: &Self| lock.keys.iter().map(|key| KeyTemplate::published_shape(key)).collect::<Vec<_>>();
        (&self.layout, &self.path, self.delay) == (&other.layout, &other.path, other.delay)
            && shapes(self) == shapes(other)
    }
}

impl From<&PathTemplateSegment> for PublishedPathSegment {
    fn from(piece: &PathTemplateSegment) -> Self {
        match piece {
            PathTemplateSegment::Literal(literal) => Self::Is(literal.to_string()),
            // The text around a variable is published with the keys that use the variable, see
            // [`PathTemplate::variable_position`].
            PathTemplateSegment::Variable(_) | PathTemplateSegment::Affixed(_) => Self::Any,
            PathTemplateSegment::Rest(_) => Self::Rest,
        }
    }
}

impl PublishedMatchConditions {
    fn from_conditions(conditions: &MatchConditions) -> Self {
        let sorted = |pairs: &[(String, String)]| pairs.iter().cloned().collect::<BTreeSet<_>>();
        let member = |BodyCondition { pointer, values }: &BodyCondition| {
            let values: BTreeSet<ConditionValue> = values.iter().cloned().collect();
            (pointer.to_string(), values.into_iter().collect())
        };
        let members: BTreeSet<(String, Vec<ConditionValue>)> = conditions.body.iter().map(member).collect();
        Self {
            hosts: match &conditions.hosts {
                HostMatcher::Any => Vec::new(),
                HostMatcher::Only(served) => {
                    served.iter().map(ToString::to_string).collect::<BTreeSet<_>>().into_iter().collect()
                }
            },
            headers: sorted(&conditions.headers).into_iter().collect(),
            query: sorted(&conditions.query).into_iter().collect(),
            body: members.into_iter().collect(),
            graphql: conditions.graphql.map(|graphql| graphql.as_str().to_owned()),
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The conditions in the form of a plan. A host or a member that this build cannot read counts as any.
    pub(crate) fn conditions(&self) -> MatchConditions {
        let served: Option<Vec<HostPattern>> =
            self.hosts.iter().map(|host| HostPattern::parse(host).ok()).collect();
        let member = |(pointer, values): &(String, Vec<ConditionValue>)| {
            let pointer = JsonPointer::parse(pointer).ok()?;
            Some(BodyCondition { pointer, values: values.clone() })
        };
        MatchConditions {
            hosts: served.filter(|served| !served.is_empty()).map_or(HostMatcher::Any, HostMatcher::Only),
            headers: self.headers.clone(),
            query: self.query.clone(),
            body: self.body.iter().filter_map(member).collect(),
            graphql: GraphqlOperation::WORDS
                .iter()
                .find(|(word, _)| Some(*word) == self.graphql.as_deref())
                .map(|(_, graphql)| *graphql),
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}
