//! Ten thousand requests for keys with several permits, while the gateways are killed one after the other.

use std::time::Duration;

use fencegate_tests::{
    crowd::{RestartLoad, max_concurrent},
    guarded::GuardedSite,
};

const PERMITS: usize = 3;

/// Of ten thousand requests never more than there are permits run behind a guard, while gateways are killed.
#[tokio::test]
async fn permits_hold_across_gateway_kills() {
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
