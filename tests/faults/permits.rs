//! Ten thousand requests for keys with several permits. The gateways are killed one after the other.

use std::time::Duration;

use fencegate_tests::{
    crowd::{RestartLoad, max_concurrent},
    guarded::GuardedSite,
};

const PERMITS: usize = 3;

#[tokio::test]
async fn of_ten_thousand_requests_never_more_than_so_many_are_at_work_behind_a_guard() {
    let guarded = GuardedSite::fresh().await;
    guarded.site.origin.set_work_time(Duration::from_millis(5));
    let guard = guarded.guard().await;
    let storm = RestartLoad { accounts: 4, clients: 24, rounds: 20, requests: 500 };
    let policy = |name: &str| {
        let policy = guarded.policy(name, &[guard.public]).with("/routes/0/fence/queue", 200);
        policy.with("/routes/0/fence/permits", PERMITS)
    };
    let crowd = storm.run(&guarded.site.origin, policy).await;
    crowd.history.assert_holds();
    println!("{} executions, {} told", crowd.history.executions.len(), crowd.told.len());
    assert!(crowd.history.executions.len() >= 10_000);
    assert_eq!(max_concurrent(&crowd.history), PERMITS);
}
