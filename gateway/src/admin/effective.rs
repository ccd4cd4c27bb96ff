//! The plan in force as operators see it: every value that counts, also those that nobody has written. Of secrets only
//! where they are read from is in a plan, and not even that is shown.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use fencegate_policies::plan::{Fence, Gateway, Hold, OnceStore, Route, Unmatched, Upstream};
use serde::Serialize;

/// The plan in force, for whoever looks. Clones see the same one.
#[derive(Debug, Clone)]
pub struct InForce(Arc<ArcSwap<Gateway>>);

impl InForce {
    pub fn new(gateway: Gateway) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(gateway)))
    }

    pub fn turn_to(&self, gateway: Gateway) {
        self.0.store(Arc::new(gateway));
    }

    pub fn plan(&self) -> Arc<Gateway> {
        self.0.load_full()
    }
}

#[derive(Debug, Serialize)]
pub struct Effective {
    /// Equal among gateways whose locks mean the same.
    pub fingerprint: String,
    pub listener: String,
    pub tls: bool,
    pub zookeeper: Ensemble,
    pub unmatched: String,
    pub routes: Vec<Shown>,
    pub upstreams: Vec<Fenced>,
    pub tickets: bool,
}

#[derive(Debug, Serialize)]
pub struct Ensemble {
    pub servers: Vec<String>,
    pub root: String,
    pub session_timeout: String,
    pub sessions: usize,
}

#[derive(Debug, Serialize)]
pub struct Shown {
    pub name: String,
    pub upstream: String,
    /// Empty: all.
    pub methods: Vec<String>,
    pub path: String,
    /// None on unfenced routes.
    pub fence: Option<Keys>,
}

#[derive(Debug, Serialize)]
pub struct Keys {
    pub keys: Vec<String>,
    pub mode: &'static str,
    pub wait: String,
    pub queue: usize,
    pub hold: String,
    pub once: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub struct Fenced {
    pub name: String,
    pub endpoints: Vec<String>,
    pub fencing: &'static str,
    pub response_timeout: String,
}

impl Effective {
    pub fn of(gateway: &Gateway) -> Self {
        let plan = &gateway.serving;
        let upstream = |route: &Route| plan.upstream(route.upstream).name.to_string();
        Self {
            fingerprint: format!("{:016x}", gateway.fingerprint),
            listener: format!("{} at {}", plan.listener.name, plan.listener.address),
            tls: plan.listener.tls.is_some(),
            zookeeper: Ensemble {
                servers: gateway.zookeeper.servers.clone(),
                root: gateway.zookeeper.root.clone(),
                session_timeout: text(gateway.zookeeper.session_timeout),
                sessions: gateway.zookeeper.sessions,
            },
            unmatched: match plan.unmatched {
                Unmatched::Reject => "reject".into(),
                Unmatched::Pass(id) => format!("pass to {}", plan.upstream(id).name),
            },
            routes: plan.routes.routes().iter().map(|route| shown(route, upstream(route))).collect(),
            upstreams: plan.upstreams.iter().map(fenced).collect(),
            tickets: gateway.tickets.is_some(),
        }
    }
}

fn shown(route: &Route, upstream: String) -> Shown {
    Shown {
        name: route.name.to_string(),
        upstream,
        methods: route.methods.clone(),
        path: route.path.to_string(),
        fence: route.fence.as_ref().map(keys),
    }
}

fn keys(fence: &Fence) -> Keys {
    Keys {
        keys: fence.keys.iter().map(ToString::to_string).collect(),
        mode: fence.mode.word(),
        wait: text(fence.wait),
        queue: fence.queue,
        hold: match fence.hold {
            Hold::Strict => "strict".into(),
            Hold::Cached(rules) => format!("cached, linger {}", text(rules.linger)),
        },
        once: fence.once.as_ref().map(|once| match once.store {
            OnceStore::Guard => "guard",
            OnceStore::ZooKeeper => "zookeeper",
        }),
    }
}

fn fenced(upstream: &Upstream) -> Fenced {
    let scheme = upstream.scheme();
    Fenced {
        name: upstream.name.to_string(),
        endpoints: upstream.endpoints.iter().map(|endpoint| format!("{scheme}://{endpoint}")).collect(),
        fencing: upstream.fencing.word(),
        response_timeout: text(upstream.response_timeout),
    }
}

fn text(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}
