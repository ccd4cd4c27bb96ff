//! The plan in force for operators, with every effective value, including defaults. A plan has only the paths of
//! secrets, and not even these are shown.
//!
//! Routes, fences and upstreams are taken apart field by field, without `..`: a field that is added to one of them does not
//! compile until it is shown here.

mod duration;
mod route;
#[cfg(test)]
mod tests;
mod upstream;

use fencegate_policies::plan::{
    GatewayPlan, LeasePlan, LeasePrincipal, PrincipalCredential, Route, UnmatchedPolicy,
};
use serde::Serialize;

use self::{duration::format_duration, route::EffectiveRoute, upstream::EffectiveUpstream};

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Effective))]
pub struct EffectiveConfig {
    /// Equal in gateways that take the same locks.
    pub fingerprint: String,
    pub listener: String,
    pub tls: bool,
    pub zookeeper: EffectiveEnsemble,
    pub unmatched: String,
    pub routes: Vec<EffectiveRoute>,
    pub upstreams: Vec<EffectiveUpstream>,
    pub tickets: bool,
    /// Null if the plan grants no leases.
    pub leases: Option<EffectiveLeases>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Ensemble))]
pub struct EffectiveEnsemble {
    pub servers: Vec<String>,
    pub root: String,
    pub session_timeout: String,
    pub sessions: usize,
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

impl EffectiveConfig {
    pub fn new(gateway: &GatewayPlan) -> Self {
        let plan = &gateway.serving;
        let upstream_of = |route: &Route| plan.upstream(route.upstream).name.to_string();
        Self {
            fingerprint: format!("{:016x}", gateway.fingerprint),
            listener: format!("{} at {}", plan.listener.name, plan.listener.address),
            tls: plan.listener.tls.is_some(),
            zookeeper: EffectiveEnsemble {
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
                .map(|route| EffectiveRoute::new(route, upstream_of(route)))
                .collect(),
            upstreams: plan.upstreams.iter().map(EffectiveUpstream::new).collect(),
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

fn effective_principal(principal: &LeasePrincipal) -> EffectivePrincipal {
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
