//! Whoever takes another plan over keeps leases waiting for that long, and no longer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fencegate_lock::tenures::keeper;
use fencegate_policies::file::load;
use fencegate_process::clock::ManualClock;

use super::*;
use crate::metrics::Metrics;

const POLICY: &str = include_str!("../../../../../policies/tests/two_services.yaml");
const LEASES: &str =
    "leases: {principals: [{name: jobs, bearer: {file: /etc/fencegate/jobs.token}, keys: [\"job/*\"]}]}\n";

/// With what has to be there for as long as they are.
fn leases() -> (Leases, mpsc::UnboundedReceiver<Task>) {
    let plan = load(&format!("{POLICY}{LEASES}"));
    let gateway = plan.plan.unwrap_or_else(|| panic!("{:?}", plan.diagnostics));
    let (clock, (tasks, given)) = (Arc::<ManualClock>::default(), mpsc::unbounded_channel());
    let (keeper, _desks) = keeper::keeper(clock.clone(), 1);
    let terms =
        LeaseTerms { bounds: gateway.leases.clone(), authority: Authority::of(None).expect("no file") };
    let metrics = Metrics::of_gateway(&gateway).leases();
    let (in_force, drain) = (InForce::new(gateway), CancellationToken::new());
    let parts = HoldingsParts { gateway: "gw-1".into(), keeper, clock, tasks, drain, metrics, in_force };
    (Leases::new(parts, terms), given)
}

impl Leases {
    fn admits(&self) -> bool {
        let second = Duration::from_secs(1);
        let wanted = Wanted {
            keys: [ResourceKey::parse("job/1").expect("a key")].into(),
            sites: vec![LockSite::Native],
            mode: Mode::Exclusive,
            permits: None,
            ttl: second,
            principal: "jobs".into(),
            note: None,
            max_age: second,
            unheard: Duration::ZERO,
        };
        let id = LeaseId::new("gw-1-01".into(), &SystemRandomness);
        self.admit(&Arc::new(Lease::new(id, wanted, self.clock.clone()))).is_ok()
    }

    fn turns(&self) -> Turning<'_> {
        self.may_turn_to(|key| Some(self.in_force.site(key))).unwrap_or_else(|why| panic!("{why}"))
    }
}

#[test]
fn a_reload_that_panics_does_not_keep_leases_from_beginning() {
    let (leases, _tasks) = leases();
    assert!(leases.admits());
    let turned = catch_unwind(AssertUnwindSafe(|| {
        let _turning = leases.turns();
        assert!(!leases.admits(), "another plan is being taken over");
        panic!("on purpose");
    }));
    assert!(turned.is_err());
    assert!(leases.admits(), "the plan has stayed");
}

#[test]
fn a_plan_that_would_move_a_leased_lock_is_refused_and_leases_go_on() {
    let (leases, _tasks) = leases();
    assert!(leases.admits());
    assert!(leases.may_turn_to(|_| None).is_err());
    assert!(leases.admits(), "the plan has stayed");
    let terms = LeaseTerms { bounds: None, authority: Authority::of(None).expect("no file") };
    leases.turns().done(terms);
    assert!(!leases.admits(), "nobody is granted one by the new plan");
}
