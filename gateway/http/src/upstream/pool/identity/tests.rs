//! Introductions before a request and in the background, while all connections of an endpoint are in use.

use std::sync::Mutex;

use fencegate_policies::{file::load, plan::Upstream};
use fencegate_process::{
    clock::{MachineClock, SharedClock},
    registry::MetricRegistry,
};
use tokio::{sync::Notify, task::LocalSet};

use super::*;
use crate::{
    network::{connect_target::ConnectTarget, sockets::Sockets},
    upstream::{
        endpoint_set::Upstreams,
        identity_check::{BoxError, CheckAttempt, CheckDue, IdentityCheck, IdentityFuture},
        metrics::EndpointMetrics,
        pooled_connection::PooledConnection,
    },
};

/// Introductions that every address needs. It notes which addresses did not answer.
#[derive(Debug, Default)]
struct FakeIdentityCheck {
    known: Mutex<Vec<Arc<Address>>>,
    noted: Notify,
    disagree: bool,
    beside: bool,
}

impl IdentityCheck for FakeIdentityCheck {
    fn is_required(&self, _: &Upstream) -> bool {
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

    fn due(&self, _: &Upstream, address: &Address) -> CheckDue {
        match self.known.lock().expect("no panic").iter().any(|known| known.socket == address.socket) {
            true => CheckDue::NotDue,
            false if self.beside => CheckDue::Background,
            false => CheckDue::Before,
        }
    }

    fn start_attempt(&self) -> CheckAttempt {
        CheckAttempt(0)
    }

    fn record_failure(&self, _: &Upstream, address: &Arc<Address>, _: CheckAttempt) {
        self.known.lock().expect("no panic").push(address.clone());
        self.noted.notify_one();
    }

    fn check_consistent(&self, _: &Upstream) -> Result<(), BoxError> {
        if self.disagree { Err("they differ".into()) } else { Ok(()) }
    }

    fn is_trusted(&self, _: &Upstream, _: &Address, _: &Arc<str>) -> bool {
        true
    }
}

/// One endpoint with two addresses, where nobody listens, and one connection.
fn fleets() -> Arc<Upstreams> {
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
    let fleets = Upstreams::new(&gateway.serving, &EndpointMetrics::register(&MetricRegistry::new()))
        .expect("no files");
    let both =
        [1, 2].map(|host| ConnectTarget::parse_literal(&format!("127.0.0.{host}:9")).expect("an address"));
    fleets.all()[0].endpoints()[0].addresses.update(both.into());
    fleets
}

async fn asks(introducer: FakeIdentityCheck) {
    let fleets = fleets();
    let fleet = &fleets.all()[0];
    let pool = Pool::new(Sockets, Arc::new(MachineClock), Arc::new(introducer));
    let long = fleet.endpoints()[0].try_acquire().expect("the only one");
    let asked = pool.check_all(fleet).await;
    assert!(matches!(asked, Err(ConnectError::LimitReached)), "who is there is not known: {asked:?}");
    drop(long);
    let asked = pool.check_all(fleet).await;
    assert!(!matches!(asked, Err(ConnectError::LimitReached)), "both were asked: {asked:?}");
}

#[tokio::test]
async fn nothing_is_sent_while_an_address_cannot_be_asked() {
    LocalSet::new().run_until(asks(FakeIdentityCheck::default())).await;
}

#[tokio::test]
async fn that_they_disagree_is_told_only_when_all_were_asked() {
    LocalSet::new()
        .run_until(asks(FakeIdentityCheck { disagree: true, ..FakeIdentityCheck::default() }))
        .await;
}

#[tokio::test]
async fn who_was_away_is_asked_beside_a_request_and_without_a_place_of_one() {
    let asks = async {
        let (fleets, introducer) =
            (fleets(), Arc::new(FakeIdentityCheck { beside: true, ..FakeIdentityCheck::default() }));
        let fleet = &fleets.all()[0];
        let pool = Pool::new(Sockets, Arc::new(MachineClock), introducer.clone());
        let _long = fleet.endpoints()[0].try_acquire().expect("the only one");
        assert!(pool.check_all(fleet).await.is_ok(), "it waits for nobody");
        while introducer.known.lock().expect("no panic").len() < 2 {
            introducer.noted.notified().await;
        }
    };
    LocalSet::new().run_until(asks).await;
}
