//! Tests that a switch to another plan pauses leases for its duration, and no longer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fencegate_config::{active_config::ActiveConfig, process_context::ProcessContext};
use fencegate_http_client::upstream::endpoint_set::UpstreamSet;
use fencegate_lock::manager::lock_manager;
use fencegate_metrics::ProcessMetricFamilies;
use fencegate_peers::plan_compat::PlanCompat;
use fencegate_policies::file::load;
use fencegate_process::clock::ManualClock;

use super::{config_switch::ConfigSwitchGuard, *};
use crate::lease::{CheckedLeaseLocks, GrantName};

const POLICY: &str = include_str!("../../../../policies/tests/two_services.yaml");
const LEASES: &str =
    "leases: {principals: [{name: jobs, bearer: {file: /etc/fencegate/jobs.token}, keys: [\"job/*\"]}]}\n";

/// Together with the dependencies that must live as long.
fn lease_table() -> (LeaseTable, mpsc::UnboundedReceiver<LeaseCommand>) {
    let plan = load(&format!("{POLICY}{LEASES}"));
    let gateway = plan.plan.unwrap_or_else(|| panic!("{:?}", plan.diagnostics));
    let clock = Arc::<ManualClock>::default();
    let (sender, commands) = mpsc::unbounded_channel();
    let (locks, _session_workers) = lock_manager::create_lock_manager(clock.clone(), 1);
    let settings =
        LeaseSettings { bounds: gateway.leases.clone(), authority: LeaseAuth::load(None).expect("no file") };
    let all = ProcessMetricFamilies::for_gateway(&gateway);
    let context = LeaseContext {
        compat: PlanCompat::new(&gateway, all.clone()),
        config: CurrentConfig::new(gateway),
        gateway: "gw-1".into(),
        locks,
        process: ProcessContext::new(clock, all),
    };
    (LeaseTable::new(context, sender, settings), commands)
}

impl LeaseTable {
    fn try_admit(&self) -> bool {
        self.admit_by_plan(self.config().plan()).is_ok()
    }

    /// The request for the lease was checked by `plan`.
    fn admit_by_plan(&self, plan: Arc<GatewayPlan>) -> Result<Arc<Lease>, RefusalReason> {
        self.admit_named(plan, None)
    }

    fn admit_named(
        &self,
        plan: Arc<GatewayPlan>,
        name: Option<GrantName>,
    ) -> Result<Arc<Lease>, RefusalReason> {
        let second = Duration::from_secs(1);
        let wanted = NewLease {
            keys: [ResourceKey::parse("job/1").expect("a key")].into(),
            placed: CheckedLeaseLocks { sites: vec![LockLocation::Native], plan: plan.clone(), session: 1 },
            mode: LockMode::Exclusive,
            permits: None,
            ttl: second,
            principal: "jobs".into(),
            note: None,
            max_age: second,
            unheard: Duration::ZERO,
            request: None,
            name,
        };
        let id = LeaseId::new("gw-1-01".into(), &SystemRandomness);
        let lease = Arc::new(Lease::new(id, wanted, self.context.process.clock.clone()));
        self.admit(&lease, &plan).map_err(|refusal| refusal.reason)?;
        Ok(lease)
    }

    fn begin_unchanged_switch(&self) -> ConfigSwitchGuard<'_> {
        self.begin_switch(|key| Some(self.config().site(key))).unwrap_or_else(|why| panic!("{why}"))
    }
}

/// A name stands for one lease. It is free again when that lease has ended without its lock.
#[test]
fn grant_name_stands_for_one_lease() {
    let (leases, _tasks) = lease_table();
    let plan = || leases.config().plan();
    let key: Arc<str> = "run-7".into();
    let name = || Some(GrantName { key: key.clone(), fingerprint: 1 });
    let first = leases.admit_named(plan(), name()).expect("admitted");
    let found = leases.find_named(&first.principal, &key).expect("it waits");
    assert!(Arc::ptr_eq(&found, &first));
    assert!(leases.find_named(&"other".into(), &key).is_none(), "names are of one principal");
    assert_eq!(leases.admit_named(plan(), name()).err(), Some(RefusalReason::InProgress));
    leases.end(&first, LeaseEndReason::GaveUp);
    assert!(leases.find_named(&first.principal, &key).is_none());
    let second = leases.admit_named(plan(), name()).expect("the name is free");
    let found = leases.find_named(&first.principal, &key).expect("it waits");
    assert!(Arc::ptr_eq(&found, &second));
}

/// No lease is admitted during a reload, and leases are admitted again after a reload that panicked.
#[test]
fn panicked_reload_restores_lease_admission() {
    let (leases, _tasks) = lease_table();
    assert!(leases.try_admit());
    let turned = catch_unwind(AssertUnwindSafe(|| {
        let _turning = leases.begin_unchanged_switch();
        assert!(!leases.try_admit(), "another plan is being taken over");
        panic!("on purpose");
    }));
    assert!(turned.is_err());
    assert!(leases.try_admit(), "the plan has stayed");
}

/// A plan that would move a leased lock is refused, and leases are admitted as before.
#[test]
fn refused_switch_keeps_lease_admission() {
    let (leases, _tasks) = lease_table();
    assert!(leases.try_admit());
    assert!(leases.begin_switch(|_| None).is_err());
    assert!(leases.try_admit(), "the plan has stayed");
    let terms = LeaseSettings { bounds: None, authority: LeaseAuth::load(None).expect("no file") };
    leases.begin_unchanged_switch().set_settings(terms);
    assert!(!leases.try_admit(), "nobody is granted one by the new plan");
}

/// A request that was checked by the plan before begins no lease. The worker of the client was paused in between.
#[test]
fn replaced_plan_admits_no_lease() {
    let (leases, _tasks) = lease_table();
    let before = leases.config().plan();
    let turning = leases.begin_unchanged_switch();
    let plan = Arc::new(before.serving.clone());
    let fleets = UpstreamSet::for_display(&plan, ProcessMetricFamilies::for_gateway(&before).endpoints());
    leases.config().replace((*before).clone(), ActiveConfig::initial(plan, fleets));
    drop(turning);
    assert_eq!(leases.admit_by_plan(before).err(), Some(RefusalReason::LockService));
    assert!(leases.try_admit());
}

/// A principal that may no longer lock a key is granted no lease.
#[test]
fn withdrawn_key_refuses_lease() {
    let (leases, _tasks) = lease_table();
    let mut bounds = leases.settings().bounds.clone().expect("the plan grants leases");
    bounds.principals[0].keys.clear();
    let authority = LeaseAuth::load(None).expect("no file");
    leases.begin_unchanged_switch().set_settings(LeaseSettings { bounds: Some(bounds), authority });
    assert_eq!(leases.admit_by_plan(leases.config().plan()).err(), Some(RefusalReason::LeaseForbidden));
}

/// A lease is rekeyed for exactly the routes whose keys changed after it was admitted.
#[test]
fn lease_records_routes_rekeyed_since() {
    let (leases, _tasks) = lease_table();
    let older = leases.admit_by_plan(leases.config().plan()).expect("granted");
    leases.begin_unchanged_switch().mark_rekeyed(&[]);
    leases.begin_unchanged_switch().mark_rekeyed(&["pay".to_owned(), "book".to_owned()]);
    leases.begin_unchanged_switch().mark_rekeyed(&["pay".to_owned()]);
    let newer = leases.admit_by_plan(leases.config().plan()).expect("granted");
    let outlived = |lease: &Lease| ["pay", "book", "other"].map(|route| lease.is_rekeyed(route));
    assert_eq!((outlived(&older), outlived(&newer)), ([true, true, false], [false; 3]));
}
