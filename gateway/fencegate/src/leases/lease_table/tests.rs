//! Whoever takes another plan over keeps leases waiting for that long, and no longer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fencegate_http::upstream::endpoint_set::Upstreams;
use fencegate_lock::manager::lock_manager;
use fencegate_policies::file::load;
use fencegate_process::clock::ManualClock;

use super::{config_switch::ConfigSwitchGuard, *};
use crate::{active_config::ActiveConfig, leases::lease::LockPlacement, metrics::Metrics};

const POLICY: &str = include_str!("../../../../../policies/tests/two_services.yaml");
const LEASES: &str =
    "leases: {principals: [{name: jobs, bearer: {file: /etc/fencegate/jobs.token}, keys: [\"job/*\"]}]}\n";

/// With what has to be there for as long as they are.
fn leases() -> (LeaseTable, mpsc::UnboundedReceiver<LeaseCommand>) {
    let plan = load(&format!("{POLICY}{LEASES}"));
    let gateway = plan.plan.unwrap_or_else(|| panic!("{:?}", plan.diagnostics));
    let (clock, (tasks, given)) = (Arc::<ManualClock>::default(), mpsc::unbounded_channel());
    let (keeper, _desks) = lock_manager::lock_manager(clock.clone(), 1);
    let terms =
        LeaseSettings { bounds: gateway.leases.clone(), authority: LeaseAuth::load(None).expect("no file") };
    let all = Metrics::for_gateway(&gateway);
    let (metrics, agreement) = (all.leases(), PlanCompat::new(&gateway, all.clone()));
    let (in_force, drain) = (CurrentConfig::new(gateway), CancellationToken::new());
    let gateway = "gw-1".into();
    let parts = LeaseTableDeps { gateway, keeper, clock, tasks, drain, metrics, in_force, agreement };
    (LeaseTable::new(parts, terms), given)
}

impl LeaseTable {
    fn admits(&self) -> bool {
        self.admits_by(self.in_force.plan()).is_ok()
    }

    /// What is asked about the lease is asked of `plan`.
    fn admits_by(&self, plan: Arc<GatewayPlan>) -> Result<Arc<Lease>, Reason> {
        let second = Duration::from_secs(1);
        let wanted = NewLease {
            keys: [ResourceKey::parse("job/1").expect("a key")].into(),
            placed: LockPlacement { sites: vec![LockSite::Native], plan: plan.clone(), session: 1 },
            mode: Mode::Exclusive,
            permits: None,
            ttl: second,
            principal: "jobs".into(),
            note: None,
            max_age: second,
            unheard: Duration::ZERO,
            request: None,
        };
        let id = LeaseId::new("gw-1-01".into(), &SystemRandomness);
        let lease = Arc::new(Lease::new(id, wanted, self.clock.clone()));
        self.admit(&lease, &plan).map_err(|refusal| refusal.reason)?;
        Ok(lease)
    }

    fn turns(&self) -> ConfigSwitchGuard<'_> {
        self.begin_switch(|key| Some(self.in_force.site(key))).unwrap_or_else(|why| panic!("{why}"))
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
    assert!(leases.begin_switch(|_| None).is_err());
    assert!(leases.admits(), "the plan has stayed");
    let terms = LeaseSettings { bounds: None, authority: LeaseAuth::load(None).expect("no file") };
    leases.turns().set_settings(terms);
    assert!(!leases.admits(), "nobody is granted one by the new plan");
}

/// The worker of the client stands still in between.
#[test]
fn what_was_asked_of_the_plan_before_begins_no_lease() {
    let (leases, _tasks) = leases();
    let before = leases.in_force.plan();
    let turning = leases.turns();
    let plan = Arc::new(before.serving.clone());
    let fleets = Upstreams::for_display(&plan, Metrics::for_gateway(&before).endpoints());
    leases.in_force.replace((*before).clone(), ActiveConfig::initial(plan, fleets));
    drop(turning);
    assert_eq!(leases.admits_by(before).err(), Some(Reason::LockService));
    assert!(leases.admits());
}

#[test]
fn who_may_not_take_a_key_any_more_begins_no_lease() {
    let (leases, _tasks) = leases();
    let mut bounds = leases.settings().bounds.clone().expect("the plan grants leases");
    bounds.principals[0].keys.clear();
    let authority = LeaseAuth::load(None).expect("no file");
    leases.turns().set_settings(LeaseSettings { bounds: Some(bounds), authority });
    assert_eq!(leases.admits_by(leases.in_force.plan()).err(), Some(Reason::LeaseForbidden));
}

#[test]
fn a_lease_knows_the_routes_whose_keys_have_changed_since() {
    let (leases, _tasks) = leases();
    let older = leases.admits_by(leases.in_force.plan()).expect("granted");
    leases.turns().mark_rekeyed(&[]);
    leases.turns().mark_rekeyed(&["pay".to_owned(), "book".to_owned()]);
    leases.turns().mark_rekeyed(&["pay".to_owned()]);
    let newer = leases.admits_by(leases.in_force.plan()).expect("granted");
    let outlived = |lease: &Lease| ["pay", "book", "other"].map(|route| lease.is_rekeyed(route));
    assert_eq!((outlived(&older), outlived(&newer)), ([true, true, false], [false; 3]));
}
