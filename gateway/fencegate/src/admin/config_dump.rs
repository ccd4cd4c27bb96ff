//! The plan in force for operators, with every effective value, including defaults. A plan has only the paths of
//! secrets, and not even these are shown.

use std::time::Duration;

use fencegate_policies::{
    permits::Permits,
    plan::{
        Fence, FencingLevel, GatewayPlan, HoldPolicy, LeasePlan, OnceStore, Principal, PrincipalCredential,
        Route, UnmatchedPolicy, Upstream,
    },
};
use serde::Serialize;

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Effective {
    /// Equal in gateways that take the same locks.
    pub fingerprint: String,
    pub listener: String,
    pub tls: bool,
    pub zookeeper: Ensemble,
    pub unmatched: String,
    pub routes: Vec<EffectiveRoute>,
    pub upstreams: Vec<EffectiveUpstream>,
    pub tickets: bool,
    /// Null if the plan grants no leases.
    pub leases: Option<EffectiveLeases>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ensemble {
    pub servers: Vec<String>,
    pub root: String,
    pub session_timeout: String,
    pub sessions: usize,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = EffectiveRoute))]
pub struct EffectiveRoute {
    pub name: String,
    pub upstream: String,
    /// Empty means every method.
    pub methods: Vec<String>,
    pub path: String,
    /// Null on unfenced routes.
    pub fence: Option<EffectiveFence>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveFence {
    pub keys: Vec<String>,
    pub layout: &'static str,
    /// The number of permits; absent if one request, or any number of readers, can hold the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u16>,
    pub mode: &'static str,
    pub wait: String,
    pub queue: usize,
    pub hold: String,
    pub once: Option<&'static str>,
    /// How many items a list in a body may have of which keys are made; absent if no key is made of an item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<usize>,
    /// The sources of a request that are compared with the values of its keys: `path`, `query`, `form`, `json`, `cookie`.
    pub sources: Vec<&'static str>,
    /// `refuse`, or `pass` if nothing is compared.
    pub conflicts: &'static str,
    /// `never`, `optional` or `required`.
    pub lease: &'static str,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveUpstream {
    pub name: String,
    pub endpoints: Vec<String>,
    pub fencing: &'static str,
    /// `ignored` or `enforced`.
    pub not_after: &'static str,
    pub response_timeout: String,
    /// The statuses of an answer that do not tell that its execution is over. Empty with `guard`: the guard tells it.
    pub unfinished: Vec<u16>,
    /// The field in which the upstream gets the value of `Idempotency-Key`, if another one.
    pub operation_field: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveLeases {
    pub min_ttl: String,
    pub default_ttl: String,
    pub max_ttl: String,
    pub max_wait: String,
    pub max_age: String,
    pub most: usize,
    pub per_principal: usize,
    pub principals: Vec<EffectivePrincipal>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectivePrincipal {
    pub name: String,
    /// How the principal is recognised. The file of a token is not shown.
    pub shows: String,
    pub keys: Vec<String>,
    pub operator: bool,
}

impl Effective {
    pub fn new(gateway: &GatewayPlan) -> Self {
        let plan = &gateway.serving;
        let upstream_of = |route: &Route| plan.upstream(route.upstream).name.to_string();
        Self {
            fingerprint: format!("{:016x}", gateway.fingerprint),
            listener: format!("{} at {}", plan.listener.name, plan.listener.address),
            tls: plan.listener.tls.is_some(),
            zookeeper: Ensemble {
                servers: gateway.zookeeper.servers.clone(),
                root: gateway.zookeeper.root.clone(),
                session_timeout: format_duration(gateway.zookeeper.session_timeout),
                sessions: gateway.zookeeper.sessions,
            },
            unmatched: match plan.unmatched {
                UnmatchedPolicy::Reject => "reject".into(),
                UnmatchedPolicy::Pass(id) => format!("pass to {}", plan.upstream(id).name),
            },
            routes: plan
                .routes
                .routes()
                .iter()
                .map(|route| effective_route(route, upstream_of(route)))
                .collect(),
            upstreams: plan.upstreams.iter().map(effective_upstream).collect(),
            tickets: gateway.tickets.is_some(),
            leases: gateway.leases.as_ref().map(EffectiveLeases::new),
        }
    }
}

impl EffectiveLeases {
    fn new(leases: &LeasePlan) -> Self {
        Self {
            min_ttl: format_duration(leases.min_ttl),
            default_ttl: format_duration(leases.default_ttl),
            max_ttl: format_duration(leases.max_ttl),
            max_wait: format_duration(leases.max_wait),
            max_age: format_duration(leases.max_age),
            most: leases.most,
            per_principal: leases.per_principal,
            principals: leases.principals.iter().map(effective_principal).collect(),
        }
    }
}

fn effective_principal(principal: &Principal) -> EffectivePrincipal {
    EffectivePrincipal {
        name: principal.name.to_string(),
        shows: match &principal.shows {
            PrincipalCredential::Bearer(_) => "a token".into(),
            PrincipalCredential::Certificate(name) => format!("the certificate of {name}"),
        },
        keys: principal.keys.iter().map(ToString::to_string).collect(),
        operator: principal.operator,
    }
}

fn effective_route(route: &Route, upstream: String) -> EffectiveRoute {
    EffectiveRoute {
        name: route.name.to_string(),
        upstream,
        methods: route.methods.clone(),
        path: route.path.to_string(),
        fence: route.fence.as_ref().map(effective_fence),
    }
}

fn effective_fence(fence: &Fence) -> EffectiveFence {
    EffectiveFence {
        keys: fence.templates().map(ToString::to_string).collect(),
        layout: fence.placing.layout().as_str(),
        permits: fence.permits().map(Permits::count),
        mode: fence.mode.as_str(),
        wait: format_duration(fence.wait),
        queue: fence.queue,
        hold: match fence.hold {
            HoldPolicy::Strict => "strict".into(),
            HoldPolicy::Cached(rules) => format!("cached, linger {}", format_duration(rules.linger)),
        },
        once: fence.once.as_ref().map(|once| match once.store {
            OnceStore::Guard => "guard",
            OnceStore::ZooKeeper => "zookeeper",
        }),
        only: fence.only,
        sources: fence.conflicts.sources().map(|(word, _)| word).collect(),
        conflicts: fence.conflicts.as_str(),
        lease: fence.lease.as_str(),
    }
}

fn effective_upstream(upstream: &Upstream) -> EffectiveUpstream {
    EffectiveUpstream {
        name: upstream.name.to_string(),
        endpoints: upstream.endpoints.iter().map(|endpoint| upstream.endpoint_url(endpoint)).collect(),
        fencing: upstream.fencing.as_str(),
        not_after: upstream.expiry.as_str(),
        response_timeout: format_duration(upstream.response_timeout),
        unfinished: match upstream.fencing {
            FencingLevel::Guard => Vec::new(),
            FencingLevel::None | FencingLevel::Delay(_) | FencingLevel::Upstream => {
                upstream.unfinished.statuses().to_vec()
            }
        },
        operation_field: upstream.operation_field.as_deref().map(str::to_owned),
    }
}

fn format_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}
