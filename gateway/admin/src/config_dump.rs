//! The plan in force for operators, with every effective value, including defaults. A plan has only the paths of
//! secrets, and not even these are shown.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::PathBuf};

use fencegate_policies::plan::{
    AclMode, AdminListenerSettings, EffectiveClientTls, EffectiveIssuer, EffectiveRoute, EffectiveUpstream,
    GatewayPlan, LeaseGrantSettings, LeasePrincipal, ListenerSettings, LogSettings, MixedPlanPolicy,
    PeerListenerSettings, PrincipalCredential, Route, UnmatchedRequestPolicy, ZooKeeperSettings,
    format_duration,
};
use serde::Serialize;

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
    /// Null for the host name.
    pub name: Option<String>,
    /// The listener by its name, with all of its fields as `policies/REFERENCE.md` describes them.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Object>))]
    pub listeners: BTreeMap<String, ListenerSettings>,
    /// The issuers whose bearer tokens are verified.
    pub jwt: Vec<EffectiveIssuer>,
    /// All fields of `admin`; `auth` tells whether a token is required.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub admin: AdminListenerSettings,
    /// All fields of `peer`. Null if other gateways do not reach this one.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub peer: Option<PeerListenerSettings>,
    /// All fields of `log`.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub log: LogSettings,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub state_dir: Option<PathBuf>,
    pub allow_mixed: bool,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Ensemble))]
pub struct EffectiveEnsemble {
    pub servers: Vec<String>,
    pub root: String,
    pub session_timeout: String,
    pub sessions: usize,
    pub tick: String,
    /// How long before the end of the session nothing is sent any more, with the requested `session_timeout`.
    pub safety_margin: String,
    /// `checked`, `open` or `closed`.
    pub acl: &'static str,
    /// Who may do everything with our nodes, beside ourselves.
    pub identities: Vec<String>,
    /// Absent for plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<EffectiveClientTls>,
    /// The user as whom the gateway authenticates itself; absent without `digest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
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
            zookeeper: EffectiveEnsemble::new(&gateway.zookeeper),
            unmatched: match plan.unmatched {
                UnmatchedRequestPolicy::Reject => "reject".into(),
                UnmatchedRequestPolicy::Pass(id) => format!("pass to {}", plan.upstream(id).name),
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
            name: plan.name.clone(),
            listeners: BTreeMap::from([(plan.listener.name.clone(), plan.listener.clone())]),
            jwt: plan.jwt.issuers.iter().map(EffectiveIssuer::new).collect(),
            admin: plan.admin.clone(),
            peer: gateway.peer.clone(),
            log: plan.log.clone(),
            state_dir: gateway.state_dir.clone(),
            allow_mixed: gateway.mixed == MixedPlanPolicy::Allow,
        }
    }
}

impl EffectiveEnsemble {
    fn new(zookeeper: &ZooKeeperSettings) -> Self {
        let ZooKeeperSettings {
            servers,
            root,
            session_timeout,
            tick,
            safety_margin: _,
            sessions,
            acl,
            identities,
            tls,
            digest,
        } = zookeeper;
        Self {
            servers: servers.clone(),
            root: root.clone(),
            session_timeout: format_duration(*session_timeout),
            sessions: *sessions,
            tick: format_duration(*tick),
            safety_margin: format_duration(zookeeper.margin(*session_timeout)),
            acl: AclMode::as_str(*acl),
            identities: identities.clone(),
            tls: tls.as_ref().map(EffectiveClientTls::new),
            digest: digest.as_ref().map(|digest| digest.user.clone()),
        }
    }
}

impl EffectiveLeases {
    fn new(leases: &LeaseGrantSettings) -> Self {
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
