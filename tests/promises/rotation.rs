//! A key whose queue has used up its sequence numbers goes on under a new parent, and its tokens go on growing.
//!
//! The server counts to 2^31, which no test can wait for; so the limit is lowered, and the lock manager runs inside
//! the test.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_lock::manager::{
    lock_manager::{LockManager, create_lock_manager},
    lock_request::{LockRequest, LockWaitPlace},
};
use fencegate_metrics::AllMetricFamilies;
use fencegate_policies::{
    file,
    key::ResourceKey,
    plan::{GatewayPlan, LockMode, LockReusePolicy},
    token::FencingToken,
};
use fencegate_process::{
    clock::{MachineClock, SharedClock},
    randomness::SystemRandomness,
};
use fencegate_tests::site::TestSite;
use fencegate_zookeeper::session::{
    local_member::LocalMember, servers::ZkServers, settings::SessionSettings,
};
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

const LIMIT: u32 = 5;

fn plan(site: &TestSite) -> GatewayPlan {
    let loaded = file::load(&site.policy("gw").with("/zookeeper/session_timeout", "10s").to_string());
    loaded.plan.expect("the policy of the tests is good")
}

/// A lock manager whose queues are full after [`LIMIT`] nodes, and the token that stops it.
fn start_limited_manager(site: &TestSite) -> (LockManager, CancellationToken) {
    let plan = plan(site);
    let clock: SharedClock = Arc::new(MachineClock);
    let (keeper, desks) = create_lock_manager(clock.clone(), 1);
    let stop = CancellationToken::new();
    for desk in desks {
        let settings = SessionSettings {
            log_dedup: Arc::default(),
            policy: plan.zookeeper.clone(),
            gateway: "gw".into(),
            member: LocalMember::new(plan.fingerprint),
            init: true,
            token_history: Arc::default(),
            sequence_limit: LIMIT,
            clock: clock.clone(),
            randomness: Arc::new(SystemRandomness),
            metrics: AllMetricFamilies::for_gateway(&plan).session(0),
        };
        tokio::task::spawn_local(desk.run(
            ZkServers::from_policy(&plan.zookeeper).expect("no files"),
            Rc::new(settings),
            stop.clone(),
        ));
    }
    (keeper, stop)
}

fn key(site: &TestSite) -> ResourceKey {
    let plan = plan(site);
    let path = fencegate_policies::path::CanonicalPath::parse("/pay/7");
    let found = plan.serving.routes.find("POST", &path, &()).ok().flatten().expect("the route of the tests");
    let fence = found.route.fence.as_ref().expect("it fences");
    let values = fencegate_tests::path_values::PathValues(found.bound);
    fence.expand_all(&values).expect("a key").swap_remove(0)
}

async fn acquire_token(keeper: &LockManager, key: &ResourceKey) -> FencingToken {
    let wish = LockRequest {
        keys: std::slice::from_ref(key),
        sites: &[],
        mode: LockMode::Exclusive,
        hold: LockReusePolicy::Strict,
        wait: Duration::from_secs(20),
        queue: 100,
        waits: LockWaitPlace::Here,
        delay: None,
        route: &"pay".into(),
    };
    let tenure = keeper.acquire(wish).await.expect("granted");
    tenure.next_dispatch().expect("a dispatch").token
}

/// A queue that has used up its numbers is replaced, and tokens go on growing.
#[tokio::test]
async fn full_queue_rotates_and_tokens_grow() {
    let site = TestSite::fresh().await;
    LocalSet::new()
        .run_until(async {
            let (one, stop_one) = start_limited_manager(&site);
            let (two, stop_two) = start_limited_manager(&site);
            while !(one.is_ready() && two.is_ready()) {
                tokio::task::yield_now().await;
            }
            let key = key(&site);
            let mut last = None;
            let mut full = 0;
            for wave in 0..6 {
                // More requests wait at once than there are numbers, and all under one parent, because none of them
                // leaves it empty.
                let waiting =
                    (0..2 * LIMIT).map(|n| acquire_token(if n % 2 == 0 { &one } else { &two }, &key));
                let mut tokens = futures_util::future::join_all(waiting).await;
                tokens.sort_unstable();
                tokens.dedup();
                assert_eq!(tokens.len(), 2 * LIMIT as usize, "wave {wave}");
                assert!(tokens.first().copied() > last, "{tokens:?} after {last:?}");
                assert!(tokens.iter().all(|token| token.sequence() <= LIMIT), "{tokens:?}");
                full += tokens.iter().filter(|token| token.sequence() == LIMIT).count();
                last = tokens.last().copied();
            }
            assert!(full >= 3, "not exercised: {full} queues became full");
            stop_one.cancel();
            stop_two.cancel();
        })
        .await;
}
