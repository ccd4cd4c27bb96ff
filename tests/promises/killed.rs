//! A gateway that dies with a request in flight blocks its resource for the session timeout, and no longer.

use std::time::{Duration, Instant};

use fencegate::demo::child::Signal;
use fencegate_tests::{client::Ask, site::Site};

const SESSION_TIMEOUT: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(200);

#[tokio::test]
async fn the_next_holder_follows_a_killed_one_within_the_session_timeout_and_two_ticks() {
    let site = Site::fresh();
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let latch = site.origin.holds("/pay/7");
    let lost = one.begin(Ask::post("/pay/7"));
    let first = site.origin.request("/pay/7", 1).await;

    let next = two.begin(Ask::post("/pay/7"));
    let killed = Instant::now();
    one.signal(Signal::KILL);
    assert!(lost.result().await.is_err(), "nobody is left to answer");
    assert_eq!(next.answer().await.status, 200);
    latch.let_go();

    let second = site.origin.request("/pay/7", 2).await;
    let gap = second.arrived - killed;
    assert!(gap <= SESSION_TIMEOUT + 2 * TICK + Duration::from_millis(500), "took {gap:?}");
    // The lock was really held by the session: a beat may have been up to a third of a second old.
    assert!(gap >= SESSION_TIMEOUT - Duration::from_millis(500), "took only {gap:?}");
    assert!(second.stamped() > first.stamped());
}
