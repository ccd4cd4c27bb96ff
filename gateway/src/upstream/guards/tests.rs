//! Which announcements are believed.

use fencegate_policies::file::load;

use super::*;

const POLICY: &str = r#"version: 1
listeners: {public: {address: 127.0.0.1:0}}
zookeeper: {servers: [zk1:2181]}
upstreams: {ledger: {endpoints: ["http://127.0.0.1:8000"], fencing: guard, direct: true}}
routes: [{name: pay, upstream: ledger, match: {path: "/{id}"}, fence: {key: "{path.id}"}}]
"#;

struct Met {
    guards: Guards,
    upstream: Upstream,
    address: Arc<Address>,
}

impl Met {
    fn new() -> Self {
        let upstream = load(POLICY).plan.expect("sound").serving.upstreams.remove(0);
        let address = Address::new("127.0.0.1:8000".parse().expect("an address"), "127.0.0.1:8000".into());
        Self { guards: Guards::new(Arc::default()), upstream, address }
    }

    fn says(
        &self,
        asking: Asking,
        (store, instance): (&str, &str),
        highest: u64,
    ) -> Result<Arc<str>, Distrust> {
        let announced = Announcement {
            format: 1,
            store: store.into(),
            instance: instance.into(),
            ensemble: "e".into(),
            floor: 0,
            highest,
            settle: 1,
            max_execution: 1,
            observes: false,
            up: None,
        };
        self.guards.meet(&self.upstream, &self.address, &announced, asking, Boot::from_nanos(0))
    }

    fn let_in(&self, instance: &str, epoch: u64) {
        let guard = (&*self.address, &instance.into());
        self.guards.let_in(&self.upstream, guard, epoch, Boot::from_nanos(0));
    }
}

#[test]
fn what_a_guard_lets_in_while_its_announcement_is_on_its_way_does_not_tell_against_it() {
    let met = Met::new();
    let asking = met.guards.ask(&met.upstream);
    assert!(met.says(asking, ("s", "one"), 20).is_ok());
    let slow = met.guards.ask(&met.upstream);
    met.let_in("one", 30);
    assert!(met.says(slow, ("s", "one"), 20).is_ok(), "it has answered before");
    let later = met.guards.ask(&met.upstream);
    let older = Err(Distrust::RolledBack { announced: 20, known: 30 });
    assert_eq!(met.says(later, ("s", "one"), 20), older);
}

#[test]
fn what_one_store_has_let_in_the_next_one_has_to_know_whatever_its_name() {
    let met = Met::new();
    assert!(met.says(met.guards.ask(&met.upstream), ("s", "one"), 20).is_ok());
    let slow = met.guards.ask(&met.upstream);
    met.let_in("one", 30);
    let older = Err(Distrust::RolledBack { announced: 29, known: 30 });
    assert_eq!(
        met.says(slow, ("other", "two"), 29),
        older,
        "another process cannot have let it in meanwhile"
    );
    assert!(met.says(met.guards.ask(&met.upstream), ("new", "three"), 30).is_ok());
}

#[test]
fn a_connection_is_believed_while_its_process_is_the_one_that_answers() {
    let met = Met::new();
    let one = met.says(met.guards.ask(&met.upstream), ("s", "one"), 20).expect("believed");
    assert!(met.guards.is_there(&met.address, &one));
    let two = met.says(met.guards.ask(&met.upstream), ("s", "two"), 20).expect("believed");
    assert!(!met.guards.is_there(&met.address, &one) && met.guards.is_there(&met.address, &two));
    assert_eq!(met.says(met.guards.ask(&met.upstream), ("s", "one"), 20), Err(Distrust::Several));
    assert!(!met.guards.is_there(&met.address, &two));
}

/// What stands there goes by the name, of TLS or of the host.
#[test]
fn two_names_at_one_address_lead_to_two_guards() {
    let one = Met::new();
    let socket = one.address.socket;
    let at = |name: &str| Address::new(socket, name.into());
    let mut met = one;
    for _ in 0..3 {
        for (name, store, instance) in [("a", "s", "one"), ("b", "t", "two")] {
            (met.upstream.name, met.address) = (name.into(), at(&format!("{name}.example:80")));
            let said = met.says(met.guards.ask(&met.upstream), (store, instance), 20);
            assert!(met.guards.is_there(&met.address, &said.expect("believed")), "{name}");
        }
    }
    assert!(met.guards.is_there(&at("a.example:80"), &"one".into()), "the other one has not taken its place");
    // Behind one name they are two as ever.
    let said = met.says(met.guards.ask(&met.upstream), ("s", "one"), 20);
    assert!(said.is_ok(), "it is new there");
    let said = met.says(met.guards.ask(&met.upstream), ("t", "two"), 20);
    assert_eq!(said, Err(Distrust::Several));
}
