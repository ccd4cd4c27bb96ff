//! Tests of identity checks before a request and in the background, while all connections of an endpoint are
//! in use.

use std::sync::Mutex;

use fencegate_http::network::{ConnectTarget, sockets::OsNetwork};
use fencegate_policies::{file::load, plan::Upstream};
use fencegate_process::{
    clock::{MachineClock, SharedClock},
    registry::MetricRegistry,
};
use tokio::{sync::Notify, task::LocalSet};

use super::*;
use crate::upstream::{
    endpoint_set::UpstreamSet,
    identity_check::{
        BoxError, EndpointIdentityVerifier, IdentityCheckDue, IdentityCheckStartSeq, IdentityFuture,
    },
    metrics::EndpointMetrics,
    pooled_connection::PooledConnection,
};

/// An identity check that is due at every address. It records which addresses did not answer.
#[derive(Debug, Default)]
struct FakeIdentityCheck {
    known: Mutex<Vec<Arc<ResolvedEndpoint>>>,
    noted: Notify,
    disagree: bool,
    beside: bool,
}

impl EndpointIdentityVerifier for FakeIdentityCheck {
    fn is_identity_check_required(&self, _: &Upstream) -> bool {
        true
    }

    fn check_identity<'a>(
        &'a self,
        _: &'a mut PooledConnection,
        _: &'a Upstream,
        _: &'a SharedClock,
    ) -> IdentityFuture<'a> {
        Box::pin(async { unreachable!("nobody listens there") })
    }

    fn check_due(&self, _: &Upstream, address: &ResolvedEndpoint) -> IdentityCheckDue {
        match self.known.lock().expect("no panic").iter().any(|known| known.socket == address.socket) {
            true => IdentityCheckDue::NotDue,
            false if self.beside => IdentityCheckDue::Background,
            false => IdentityCheckDue::Before,
        }
    }

    fn start_attempt(&self) -> IdentityCheckStartSeq {
        IdentityCheckStartSeq(0)
    }

    fn record_failure(&self, _: &Upstream, address: &Arc<ResolvedEndpoint>, _: IdentityCheckStartSeq) {
        self.known.lock().expect("no panic").push(address.clone());
        self.noted.notify_one();
    }

    fn check_identities_consistent(&self, _: &Upstream) -> Result<(), BoxError> {
        if self.disagree { Err("they differ".into()) } else { Ok(()) }
    }

    fn is_trusted(&self, _: &Upstream, _: &ResolvedEndpoint, _: &Arc<str>) -> bool {
        true
    }
}

/// Makes one endpoint with two addresses at which nothing listens. It may have one connection.
fn unreachable_upstreams() -> Arc<UpstreamSet> {
    let text = r#"version: 1
listeners: {public: {address: 127.0.0.1:8080}}
zookeeper: {servers: [zk1:2181]}
upstreams:
  ledger:
    endpoints: ["http://ledger.example"]
    fencing: guard
    connect_timeout: 20ms
    pool: {max_connections: 1}
routes:
  - {name: pay, upstream: ledger, match: {methods: [POST], path: "/pay/{id}"}, fence: {key: "{path.id}"}}
"#;
    let loaded = load(text);
    let gateway = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let upstreams = UpstreamSet::new(&gateway.serving, &EndpointMetrics::register(&MetricRegistry::new()))
        .expect("no files");
    let both =
        [1, 2].map(|host| ConnectTarget::parse_literal(&format!("127.0.0.{host}:9")).expect("an address"));
    upstreams.all()[0].endpoints()[0].addresses.update(both.into());
    upstreams
}

async fn assert_both_addresses_asked(check: FakeIdentityCheck) {
    let upstreams = unreachable_upstreams();
    let endpoint_set = &upstreams.all()[0];
    let pool = ConnectionPool::new(OsNetwork, Arc::new(MachineClock), Arc::new(check));
    let long = endpoint_set.endpoints()[0].try_acquire().expect("the only one");
    let result = pool.check_all_identities(endpoint_set).await;
    assert!(matches!(result, Err(ConnectError::LimitReached)), "who is there is not known: {result:?}");
    drop(long);
    let result = pool.check_all_identities(endpoint_set).await;
    assert!(!matches!(result, Err(ConnectError::LimitReached)), "both were asked: {result:?}");
}

/// No request is sent while the identity of an address cannot be checked.
#[tokio::test]
async fn unchecked_address_blocks_requests() {
    LocalSet::new().run_until(assert_both_addresses_asked(FakeIdentityCheck::default())).await;
}

/// If the addresses contradict each other, that is reported only after all of them were checked.
#[tokio::test]
async fn disagreement_is_reported_after_all_checks() {
    LocalSet::new()
        .run_until(assert_both_addresses_asked(FakeIdentityCheck {
            disagree: true,
            ..FakeIdentityCheck::default()
        }))
        .await;
}

/// An address that was unreachable is checked while a request is served, without taking one of the endpoint's
/// connections.
#[tokio::test]
async fn absent_address_is_checked_in_background() {
    let asks = async {
        let upstreams = unreachable_upstreams();
        let check = Arc::new(FakeIdentityCheck { beside: true, ..FakeIdentityCheck::default() });
        let endpoint_set = &upstreams.all()[0];
        let pool = ConnectionPool::new(OsNetwork, Arc::new(MachineClock), check.clone());
        let _long = endpoint_set.endpoints()[0].try_acquire().expect("the only one");
        assert!(pool.check_all_identities(endpoint_set).await.is_ok(), "it waits for nobody");
        while check.known.lock().expect("no panic").len() < 2 {
            check.noted.notified().await;
        }
    };
    LocalSet::new().run_until(asks).await;
}
