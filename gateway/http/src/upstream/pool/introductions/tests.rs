//! Introductions before a request and in the background, while all connections of an endpoint are in use.

use std::sync::Mutex;

use fencegate_policies::{file::load, plan::Upstream};
use fencegate_process::{
    clock::{MachineClock, SharedClock},
    families::Families,
};
use tokio::{sync::Notify, task::LocalSet};

use super::*;
use crate::{
    network::{remote::Remote, sockets::Sockets},
    upstream::{
        fleet::Fleets,
        introduce::{Attempt, Doubt, Due, Introduced, Introductions},
        metrics::EndpointMetrics,
        pooled::Pooled,
    },
};

/// Introductions that every address needs. It notes which addresses did not answer.
#[derive(Debug, Default)]
struct Introducer {
    known: Mutex<Vec<Arc<Address>>>,
    noted: Notify,
    disagree: bool,
    beside: bool,
}

impl Introductions for Introducer {
    fn are_needed(&self, _: &Upstream) -> bool {
        true
    }

    fn introduce<'a>(&'a self, _: &'a mut Pooled, _: &'a Upstream, _: &'a SharedClock) -> Introduced<'a> {
        Box::pin(async { unreachable!("nobody listens there") })
    }

    fn due(&self, _: &Upstream, address: &Address) -> Due {
        match self.known.lock().expect("no panic").iter().any(|known| known.socket == address.socket) {
            true => Due::Not,
            false if self.beside => Due::Beside,
            false => Due::Before,
        }
    }

    fn attempt(&self) -> Attempt {
        Attempt(0)
    }

    fn lost(&self, _: &Upstream, address: &Arc<Address>, _: Attempt) {
        self.known.lock().expect("no panic").push(address.clone());
        self.noted.notify_one();
    }

    fn agree(&self, _: &Upstream) -> Result<(), Doubt> {
        if self.disagree { Err("they differ".into()) } else { Ok(()) }
    }

    fn is_believed(&self, _: &Upstream, _: &Address, _: &Arc<str>) -> bool {
        true
    }
}

/// One endpoint with two addresses, where nobody listens, and one connection.
fn fleets() -> Arc<Fleets> {
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
    let fleets =
        Fleets::of(&gateway.serving, &EndpointMetrics::register(&Families::new())).expect("no files");
    let both = [1, 2].map(|host| Remote::literal(&format!("127.0.0.{host}:9")).expect("an address"));
    fleets.all()[0].endpoints()[0].addresses.found(both.into());
    fleets
}

async fn asks(introducer: Introducer) {
    let fleets = fleets();
    let fleet = &fleets.all()[0];
    let pool = Pool::new(Sockets, Arc::new(MachineClock), Arc::new(introducer));
    let long = fleet.endpoints()[0].place().expect("the only one");
    let asked = pool.ask_all(fleet).await;
    assert!(matches!(asked, Err(NotConnected::Full)), "who is there is not known: {asked:?}");
    drop(long);
    let asked = pool.ask_all(fleet).await;
    assert!(!matches!(asked, Err(NotConnected::Full)), "both were asked: {asked:?}");
}

#[tokio::test]
async fn nothing_is_sent_while_an_address_cannot_be_asked() {
    LocalSet::new().run_until(asks(Introducer::default())).await;
}

#[tokio::test]
async fn that_they_disagree_is_told_only_when_all_were_asked() {
    LocalSet::new().run_until(asks(Introducer { disagree: true, ..Introducer::default() })).await;
}

#[tokio::test]
async fn who_was_away_is_asked_beside_a_request_and_without_a_place_of_one() {
    let asks = async {
        let (fleets, introducer) = (fleets(), Arc::new(Introducer { beside: true, ..Introducer::default() }));
        let fleet = &fleets.all()[0];
        let pool = Pool::new(Sockets, Arc::new(MachineClock), introducer.clone());
        let _long = fleet.endpoints()[0].place().expect("the only one");
        assert!(pool.ask_all(fleet).await.is_ok(), "it waits for nobody");
        while introducer.known.lock().expect("no panic").len() < 2 {
            introducer.noted.notified().await;
        }
    };
    LocalSet::new().run_until(asks).await;
}
