//! Tests that a switch to another plan pauses leases for its duration, and no longer, and that a name has one lease.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fencegate_config::{active_config::ActiveConfig, process_context::ProcessContext};
use fencegate_http_client::upstream::endpoint_set::UpstreamSet;
use fencegate_lock::manager::lock_manager;
use fencegate_metrics::AllMetricFamilies;
use fencegate_peers::plan_compat::PlanCompatRegistry;
use fencegate_policies::{file::load, plan::GatewayPlan};
use fencegate_process::{clock::ManualClock, randomness::SystemRandomness};

use super::{config_switch::ConfigSwitchGuard, *};
use crate::lease::{CheckedLeaseLocks, LeaseIdempotencyKey, LeaseSpec};

const POLICY: &str = include_str!("../../../../policies/tests/two_services.yaml");
const LEASES: &str =
    "leases: {principals: [{name: jobs, bearer: {file: /etc/fencegate/jobs.token}, keys: [\"job/*\"]}]}\n";

/// A table of leases, and the commands for its worker.
pub(crate) fn lease_table(
    clock: Arc<ManualClock>,
) -> (Arc<LeaseTable>, mpsc::UnboundedReceiver<LeaseThreadCommand>) {
    let plan = load(&format!("{POLICY}{LEASES}"));
    let gateway = plan.plan.unwrap_or_else(|| panic!("{:?}", plan.diagnostics));
    let (sender, commands) = mpsc::unbounded_channel();
    let (locks, _session_workers) = lock_manager::create_lock_manager(clock.clone(), 1);
    let settings =
        LeaseSettings { bounds: gateway.leases.clone(), authority: LeaseAuth::load(None).expect("no file") };
    let all = AllMetricFamilies::for_gateway(&gateway);
    let context = LeaseContext {
        compat: PlanCompatRegistry::new(&gateway, all.clone()),
        config: CurrentConfig::new(gateway),
        gateway: "gw-1".into(),
        locks,
        process: ProcessContext::new(clock, all),
    };
    (Arc::new(LeaseTable::new(context, sender, settings)), commands)
}

/// The lease of `job/1` for a second, by `plan`.
pub(crate) fn new_lease(plan: Arc<GatewayPlan>, name: Option<LeaseIdempotencyKey>) -> LeaseSpec {
    let second = Duration::from_secs(1);
    LeaseSpec {
        keys: [ResourceKey::parse("job/1").expect("a key")].into(),
        placed: CheckedLeaseLocks { sites: vec![LockLocation::Native], plan, session: 1 },
        mode: LockMode::Exclusive,
        permits: None,
        ttl: second,
        principal: "jobs".into(),
        note: None,
        max_age: second,
        unheard: Duration::ZERO,
        request: None,
        name,
    }
}

impl LeaseTable {
    fn try_admit(&self) -> bool {
        self.admit_by_plan(self.config().plan()).is_ok()
    }

    /// Admits a lease whose request was checked by `plan`.
    fn admit_by_plan(&self, plan: Arc<GatewayPlan>) -> Result<Arc<Lease>, RefusalReason> {
        self.admit_named(plan, None)
    }

    /// Admits a new lease, or returns the one that has the name already.
    fn admit_named(
        &self,
        plan: Arc<GatewayPlan>,
        name: Option<LeaseIdempotencyKey>,
    ) -> Result<Arc<Lease>, RefusalReason> {
        let id = LeaseId::new("gw-1-01".into(), &SystemRandomness);
        let lease =
            Arc::new(Lease::new(id, new_lease(plan.clone(), name), self.context.process.clock.clone()));
        let named = self.find_named_or_insert(&lease, &plan).map_err(|refusal| refusal.reason)?;
        Ok(named.unwrap_or(lease))
    }

    fn begin_unchanged_switch(&self) -> ConfigSwitchGuard<'_> {
        self.begin_switch(|key| Some(self.config().site(key))).unwrap_or_else(|why| panic!("{why}"))
    }
}

/// A name stands for one lease of one principal and for one request. It is free again when that lease has ended and no
/// client can have used it.
#[test]
fn grant_name_stands_for_one_lease() {
    let (leases, _tasks) = lease_table(Arc::default());
    let plan = || leases.config().plan();
    let name = LeaseIdempotencyKey { key: "run-7".into(), fingerprint: 1 };
    let first = leases.admit_named(plan(), Some(name.clone())).expect("admitted");
    let repeat = leases.admit_named(plan(), Some(name.clone())).expect("it has a lease");
    assert!(Arc::ptr_eq(&repeat, &first));
    let found = |principal: &Arc<str>, name: &LeaseIdempotencyKey| {
        let found = leases.find_repeated(principal, name).map_err(|refusal| refusal.reason);
        found.map(|delivery| delivery.map(|delivery| delivery.lease().clone()))
    };
    assert!(found(&first.principal, &name).is_ok_and(|lease| Arc::ptr_eq(&lease.expect("it waits"), &first)));
    assert!(found(&"other".into(), &name).is_ok_and(|lease| lease.is_none()), "names are of one principal");
    let other = LeaseIdempotencyKey { fingerprint: 2, ..name.clone() };
    assert_eq!(found(&first.principal, &other).err(), Some(RefusalReason::IdempotencyMismatch));
    leases.end(&first, LeaseEndReason::GaveUp);
    assert!(found(&first.principal, &name).is_ok_and(|lease| lease.is_none()));
    let second = leases.admit_named(plan(), Some(name.clone())).expect("the name is free");
    assert!(!Arc::ptr_eq(&second, &first));
    assert!(
        found(&first.principal, &name).is_ok_and(|lease| Arc::ptr_eq(&lease.expect("it waits"), &second))
    );
}

/// A repeat needs no lease of its own: it is admitted where its principal has all the leases that it may have.
#[test]
fn repeat_is_admitted_at_limit() {
    let (leases, _tasks) = lease_table(Arc::default());
    let mut bounds = leases.settings().bounds.clone().expect("the plan grants leases");
    bounds.per_principal = 1;
    let authority = LeaseAuth::load(None).expect("no file");
    leases.begin_unchanged_switch().set_settings(LeaseSettings { bounds: Some(bounds), authority });
    let plan = || leases.config().plan();
    let name = |key: &str| Some(LeaseIdempotencyKey { key: key.into(), fingerprint: 1 });
    let first = leases.admit_named(plan(), name("run-7")).expect("admitted");
    let repeat = leases.admit_named(plan(), name("run-7"));
    assert!(repeat.is_ok_and(|lease| Arc::ptr_eq(&lease, &first)));
    assert_eq!(leases.admit_named(plan(), name("run-8")).err(), Some(RefusalReason::LeaseLimit));
}

/// No lease is admitted during a reload, and leases are admitted again after a reload that panicked.
#[test]
fn panicked_reload_restores_lease_admission() {
    let (leases, _tasks) = lease_table(Arc::default());
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
    let (leases, _tasks) = lease_table(Arc::default());
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
    let (leases, _tasks) = lease_table(Arc::default());
    let before = leases.config().plan();
    let turning = leases.begin_unchanged_switch();
    let plan = Arc::new(before.serving.clone());
    let fleets = UpstreamSet::for_display(&plan, AllMetricFamilies::for_gateway(&before).endpoints());
    leases.config().replace((*before).clone(), ActiveConfig::initial(plan, fleets, None));
    drop(turning);
    assert_eq!(leases.admit_by_plan(before).err(), Some(RefusalReason::LockService));
    assert!(leases.try_admit());
}

/// A principal that may no longer lock a key is granted no lease.
#[test]
fn withdrawn_key_refuses_lease() {
    let (leases, _tasks) = lease_table(Arc::default());
    let mut bounds = leases.settings().bounds.clone().expect("the plan grants leases");
    bounds.principals[0].keys.clear();
    let authority = LeaseAuth::load(None).expect("no file");
    leases.begin_unchanged_switch().set_settings(LeaseSettings { bounds: Some(bounds), authority });
    assert_eq!(leases.admit_by_plan(leases.config().plan()).err(), Some(RefusalReason::LeaseForbidden));
}

/// A lease is rekeyed for exactly the routes whose keys changed after it was admitted.
#[test]
fn lease_records_routes_rekeyed_since() {
    let (leases, _tasks) = lease_table(Arc::default());
    let older = leases.admit_by_plan(leases.config().plan()).expect("granted");
    leases.begin_unchanged_switch().mark_rekeyed(&[]);
    leases.begin_unchanged_switch().mark_rekeyed(&["pay".to_owned(), "book".to_owned()]);
    leases.begin_unchanged_switch().mark_rekeyed(&["pay".to_owned()]);
    let newer = leases.admit_by_plan(leases.config().plan()).expect("granted");
    let outlived = |lease: &Lease| ["pay", "book", "other"].map(|route| lease.is_rekeyed(route));
    assert_eq!((outlived(&older), outlived(&newer)), ([true, true, false], [false; 3]));
}
