//! Tests which announcements are trusted.

use std::net::SocketAddr;

use fencegate_policies::file::load;

use super::*;

const POLICY: &str = r#"version: 1
listeners: {public: {address: 127.0.0.1:0}}
zookeeper: {servers: [zk1:2181]}
upstreams: {ledger: {endpoints: ["http://127.0.0.1:8000"], fencing: guard, direct: true}}
routes: [{name: pay, upstream: ledger, match: {path: "/{id}"}, fence: {key: "{path.id}"}}]
"#;

struct RegistryFixture {
    guards: UpstreamGuardRegistry,
    upstream: Upstream,
    address: Arc<ResolvedEndpoint>,
}

impl RegistryFixture {
    fn new() -> Self {
        let upstream = load(POLICY).plan.expect("sound").serving.upstreams.remove(0);
        let address = ResolvedEndpoint::new(
            "127.0.0.1:8000".parse::<SocketAddr>().expect("an address"),
            "127.0.0.1:8000".into(),
        );
        Self { guards: UpstreamGuardRegistry::new(Arc::default()), upstream, address }
    }

    fn announce(
        &self,
        asking: GuardIdentityCheckSnapshot,
        store: &str,
        instance: &str,
        highest: u64,
    ) -> Result<Arc<str>, GuardIdentityError> {
        self.announce_at(&self.address, asking, store, instance, highest)
    }

    fn announce_at(
        &self,
        address: &Arc<ResolvedEndpoint>,
        asking: GuardIdentityCheckSnapshot,
        store: &str,
        instance: &str,
        highest: u64,
    ) -> Result<Arc<str>, GuardIdentityError> {
        let announced = announcement(store, instance, highest);
        self.guards.record_announcement(
            &self.upstream,
            address,
            &announced,
            asking,
            BootInstant::from_nanos(0),
        )
    }

    /// The announcement of one of several guards that share a store.
    fn announce_shared(
        &self,
        address: &Arc<ResolvedEndpoint>,
        instance: &str,
        database: &str,
        highest: u64,
    ) -> Result<Arc<str>, GuardIdentityError> {
        let alone = announcement("s", instance, highest);
        let announced = GuardIdentityResponse { shared: Some(database.into()), ..alone };
        let asking = self.guards.begin_check(&self.upstream);
        self.guards.record_announcement(
            &self.upstream,
            address,
            &announced,
            asking,
            BootInstant::from_nanos(0),
        )
    }

    /// Another address of the same name.
    fn other_address(&self) -> Arc<ResolvedEndpoint> {
        ResolvedEndpoint::new(
            "127.0.0.2:8000".parse::<SocketAddr>().expect("an address"),
            self.address.name.clone(),
        )
    }

    fn check_and_announce(
        &self,
        address: &Arc<ResolvedEndpoint>,
        store: &str,
        instance: &str,
    ) -> Result<Arc<str>, GuardIdentityError> {
        self.announce_at(address, self.guards.begin_check(&self.upstream), store, instance, 20)
    }

    fn is_trusted(&self, address: &ResolvedEndpoint, instance: &str) -> bool {
        self.guards.is_trusted(&self.upstream, address, &instance.into())
    }

    fn record_admitted(&self, instance: &str, epoch: u64) {
        let now = BootInstant::from_nanos(0);
        self.guards.record_admitted(&self.upstream, &self.address, &instance.into(), epoch, now);
    }
}

fn announcement(store: &str, instance: &str, highest: u64) -> GuardIdentityResponse {
    GuardIdentityResponse {
        format: 1,
        store: store.into(),
        shared: None,
        instance: instance.into(),
        ensemble: "e".into(),
        floor: 0,
        highest,
        settle: 1,
        max_execution: 1,
        observes: false,
        up: None,
    }
}

/// Guards that share a store are trusted at the same time, whichever of them answers at which address.
#[test]
fn guards_sharing_store_are_trusted_together() {
    let met = RegistryFixture::new();
    let beside = met.other_address();
    let both = met.announce_shared(&met.address, "one", "d", 20).expect("the first");
    for (address, instance) in
        [(&beside, "two"), (&met.address, "one"), (&met.address, "two"), (&met.address, "one")]
    {
        assert_eq!(met.announce_shared(address, instance, "d", 20), Ok(both.clone()), "{instance}");
    }
    assert!(met.is_trusted(&met.address, &both) && met.is_trusted(&beside, &both));
    assert_eq!(met.guards.check_consistent(&met.upstream), Ok(()));
}

/// A guard whose shared store is behind an epoch that another guard of the store has admitted is refused.
#[test]
fn sharing_guard_behind_peer_is_refused() {
    let met = RegistryFixture::new();
    let both = met.announce_shared(&met.address, "one", "d", 20).expect("the first");
    met.record_admitted(&both, 30);
    let behind = GuardIdentityError::RolledBack { announced: 20, known: 30 };
    assert_eq!(met.announce_shared(&met.other_address(), "two", "d", 20), Err(behind));
    assert_eq!(met.announce_shared(&met.other_address(), "two", "d", 30), Ok(both));
}

/// One store in two databases is a copy: neither guard is used, nor a guard alone with a store of this name.
#[test]
fn store_in_two_databases_is_split() {
    let met = RegistryFixture::new();
    met.announce_shared(&met.address, "one", "d", 20).expect("the first");
    assert_eq!(met.announce_shared(&met.other_address(), "two", "e", 20), Err(GuardIdentityError::Split));
    // The first guard returns with another database.
    assert!(met.announce_shared(&met.address, "one", "e", 20).is_ok());
    // A guard that uses its store alone does not belong to guards that share one, even if the stores have one name.
    assert_eq!(met.check_and_announce(&met.other_address(), "s", "three"), Err(GuardIdentityError::Split));
}

/// An epoch that a guard admits after it was asked for its announcement does not make the announcement a rollback.
#[test]
fn admission_during_check_is_no_rollback() {
    let met = RegistryFixture::new();
    let asking = met.guards.begin_check(&met.upstream);
    assert!(met.announce(asking, "s", "one", 20).is_ok());
    let slow = met.guards.begin_check(&met.upstream);
    met.record_admitted("one", 30);
    assert!(met.announce(slow, "s", "one", 20).is_ok(), "it has answered before");
    let later = met.guards.begin_check(&met.upstream);
    let older = Err(GuardIdentityError::RolledBack { announced: 20, known: 30 });
    assert_eq!(met.announce(later, "s", "one", 20), older);
}

/// A new store, whatever its name, is refused if it is behind an epoch that the store before has admitted.
#[test]
fn next_store_behind_epoch_is_refused() {
    let met = RegistryFixture::new();
    assert!(met.announce(met.guards.begin_check(&met.upstream), "s", "one", 20).is_ok());
    let slow = met.guards.begin_check(&met.upstream);
    met.record_admitted("one", 30);
    let older = Err(GuardIdentityError::RolledBack { announced: 29, known: 30 });
    assert_eq!(
        met.announce(slow, "other", "two", 29),
        older,
        "another process cannot have let it in meanwhile"
    );
    assert!(met.announce(met.guards.begin_check(&met.upstream), "new", "three", 30).is_ok());
}

/// A connection is trusted while its process is the last that answered, and no longer once two processes answer.
#[test]
fn connection_is_trusted_for_current_process() {
    let met = RegistryFixture::new();
    let one = met.announce(met.guards.begin_check(&met.upstream), "s", "one", 20).expect("believed");
    assert!(met.is_trusted(&met.address, &one));
    let two = met.announce(met.guards.begin_check(&met.upstream), "s", "two", 20).expect("believed");
    assert!(!met.is_trusted(&met.address, &one) && met.is_trusted(&met.address, &two));
    assert_eq!(
        met.announce(met.guards.begin_check(&met.upstream), "s", "one", 20),
        Err(GuardIdentityError::MultipleProcesses)
    );
    assert!(!met.is_trusted(&met.address, &two));
}

/// Two names at one address are two guards: a TLS name or a host name can route to a different guard at the same
/// address.
#[test]
fn names_at_one_address_are_separate() {
    let one = RegistryFixture::new();
    let socket = one.address.socket.clone();
    let at = |name: &str| ResolvedEndpoint::new(socket.clone(), name.into());
    let mut met = one;
    for _ in 0..3 {
        for (name, store, instance) in [("a", "s", "one"), ("b", "t", "two")] {
            (met.upstream.name, met.address) = (name.into(), at(&format!("{name}.example:80")));
            let said = met.announce(met.guards.begin_check(&met.upstream), store, instance, 20);
            assert!(met.is_trusted(&met.address, &said.expect("believed")), "{name}");
        }
    }
    met.upstream.name = "a".into();
    assert!(met.is_trusted(&at("a.example:80"), "one"), "the other one has not taken its place");
    met.upstream.name = "b".into();
    // Under one name they count as two guards.
    let said = met.announce(met.guards.begin_check(&met.upstream), "s", "one", 20);
    assert!(said.is_ok(), "it is new there");
    let said = met.announce(met.guards.begin_check(&met.upstream), "t", "two", 20);
    assert_eq!(said, Err(GuardIdentityError::MultipleProcesses));
}

/// A lost address contradicts no guard; a guard that answers there again does.
#[test]
fn lost_address_counts_when_reachable_again() {
    let met = RegistryFixture::new();
    let here = met.address.clone();
    let beside = met.other_address();
    assert!(
        met.check_and_announce(&here, "s", "one").is_ok()
            && met.check_and_announce(&beside, "s", "one").is_ok()
    );
    assert_eq!(met.guards.check_due(&met.upstream, &here), IdentityCheckDue::NotDue, "they agree");
    // The guard at `here` was restarted, and the announcement of the other address is out of date.
    assert_eq!(met.check_and_announce(&here, "s", "two"), Err(GuardIdentityError::Split));
    assert!(
        [&here, &beside]
            .iter()
            .all(|address| met.guards.check_due(&met.upstream, address) == IdentityCheckDue::Before)
    );
    met.guards.record_no_guard(&met.upstream, &beside, met.guards.begin_attempt());
    assert!(met.check_and_announce(&here, "s", "two").is_ok() && met.is_trusted(&here, "two"));
    assert_eq!(
        met.guards.check_due(&met.upstream, &beside),
        IdentityCheckDue::NotDue,
        "who connects there is told"
    );
    // Another guard starts at the other address.
    assert_eq!(met.check_and_announce(&beside, "t", "three"), Err(GuardIdentityError::Split));
    assert!(!met.is_trusted(&here, "two") && !met.is_trusted(&beside, "three"));
}

/// A connection to a guard that could not be reached is not used once another guard has announced itself. A guard
/// whose address cannot be reached for a moment may still be running.
#[test]
fn lost_guard_connection_yields_to_another() {
    let met = RegistryFixture::new();
    let here = met.address.clone();
    let beside = met.other_address();
    assert!(met.check_and_announce(&here, "s", "one").is_ok());
    met.guards.record_no_guard(&met.upstream, &here, met.guards.begin_attempt());
    assert!(met.is_trusted(&here, "one"), "nobody else is known");
    assert!(met.check_and_announce(&beside, "t", "two").is_ok());
    assert!(met.is_trusted(&beside, "two") && !met.is_trusted(&here, "one"));
}

/// A failed attempt does not remove the announcement of a guard that arrived after the attempt had begun.
#[test]
fn failed_attempt_keeps_newer_announcement() {
    let met = RegistryFixture::new();
    let here = met.address.clone();
    let beside = met.other_address();
    assert!(met.check_and_announce(&here, "s", "one").is_ok());
    let slow = met.guards.begin_attempt();
    assert_eq!(met.check_and_announce(&beside, "t", "two"), Err(GuardIdentityError::Split));
    met.guards.record_no_guard(&met.upstream, &beside, slow);
    assert_eq!(met.guards.check_consistent(&met.upstream), Err(GuardIdentityError::Split));
    met.guards.record_no_guard(&met.upstream, &beside, met.guards.begin_attempt());
    assert_eq!(met.guards.check_consistent(&met.upstream), Ok(()));
}

/// A guard at an endpoint that is not in the plan does not contradict the guards of the plan.
#[test]
fn guard_outside_plan_causes_no_split() {
    let met = RegistryFixture::new();
    let elsewhere = ResolvedEndpoint::new(
        "127.0.0.3:8000".parse::<SocketAddr>().expect("an address"),
        "127.0.0.3:8000".into(),
    );
    assert!(met.check_and_announce(&met.address, "s", "one").is_ok());
    assert!(met.check_and_announce(&elsewhere, "t", "two").is_ok() && met.is_trusted(&met.address, "one"));
}

/// An address without a guard is checked again after a while, by one request. A guard there may serve another
/// gateway, without the admissions of the guard that serves this one.
#[test]
fn lost_address_is_rechecked_once() {
    let met = RegistryFixture::new();
    let here = met.address.clone();
    let beside = met.other_address();
    assert!(met.check_and_announce(&here, "s", "one").is_ok());
    met.guards.record_no_guard(&met.upstream, &beside, met.guards.begin_attempt());
    let due = |address| met.guards.check_due(&met.upstream, address);
    assert_eq!(
        (due(&here), due(&beside)),
        (IdentityCheckDue::NotDue, IdentityCheckDue::NotDue),
        "nobody was there just now"
    );
    met.guards.age_by(met.upstream.sharing.dns.refresh);
    assert_eq!((due(&here), due(&beside)), (IdentityCheckDue::NotDue, IdentityCheckDue::Background));
    assert_eq!(due(&beside), IdentityCheckDue::NotDue, "somebody is on the way");
    assert_eq!(met.check_and_announce(&beside, "t", "two"), Err(GuardIdentityError::Split));
    assert_eq!(met.guards.check_consistent(&met.upstream), Err(GuardIdentityError::Split));
}
