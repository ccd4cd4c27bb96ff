//! Which dispatches wait for which others, and for how long.

use std::{
    pin::Pin,
    task::{Context, Waker},
};

use super::*;
use crate::waiter::WaitingClient;

/// Longer than any test: a longer wait fails at the limit of [`soon`].
const LONG: Duration = Duration::from_secs(60);

/// A client that has gone away.
struct DisconnectedClient;

impl WaitingClient for DisconnectedClient {
    async fn wait_client_disconnected(&mut self) {}
}

/// Polls the future once, and reports whether it is still pending.
fn is_waiting(future: &mut (impl Future + Unpin)) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// Awaits a result that has to come without waiting until a time limit.
async fn soon<T>(happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG / 4, happens).await.expect("soon")
}

fn metrics_text(site: &TestGuard) -> String {
    String::from_utf8(site.families.encode()).expect("text")
}

async fn admitted(
    site: &TestGuard,
    claim: PresentedDispatch,
    wait_limit: Duration,
    mut client: impl WaitingClient,
) -> Result<AdmittedExecution, error::DispatchRefusedError> {
    soon(site.guard.admit(claim, None, &mut ClientWaitLimit::new(&mut client, wait_limit))).await
}

/// A dispatch of the next tenure is admitted when the running one is over; it is counted after its wait.
#[tokio::test]
async fn next_grant_waits_for_running_dispatch() {
    let site = new_test_guard("");
    let first =
        admitted(&site, TestGuard::claim("a", 50), LONG, AlwaysWaitingClient).await.expect("the newest");
    let mut next = Box::pin(admitted(&site, TestGuard::claim("a", 51), LONG, AlwaysWaitingClient));
    assert!(is_waiting(&mut next));
    first.complete(stored_response(200, None)).await.expect("known");
    next.await.expect("the newest").complete(stored_response(200, None)).await.expect("known");
    let text = metrics_text(&site);
    // The dispatch that had to wait is counted when it is admitted: as the second one of a new tenure.
    assert!(text.contains(r#"guard_decisions_total{decision="admit_new_tenure"} 2"#), "{text}");
    // A further dispatch of the same tenure.
    let more =
        PresentedDispatch { token: FencingToken::new(51, 1, 2).expect("small"), ..TestGuard::claim("a", 51) };
    admitted(&site, more, LONG, AlwaysWaitingClient).await.expect("the newest");
    let text = metrics_text(&site);
    assert!(text.contains(r#"guard_decisions_total{decision="admit"} 1"#), "{text}");
}

/// A waiter whose time is over, or whose client is gone, is refused as busy.
#[tokio::test]
async fn waiter_timeout_or_disconnect_returns_busy() {
    let site = new_test_guard("");
    let _running =
        admitted(&site, TestGuard::claim("a", 50), LONG, AlwaysWaitingClient).await.expect("the newest");
    let refused = admitted(&site, TestGuard::claim("a", 51), Duration::ZERO, AlwaysWaitingClient).await;
    assert_eq!(refused.err(), Some(error::DispatchRefusedError::Busy));
    let refused = admitted(&site, TestGuard::claim("a", 52), LONG, DisconnectedClient).await;
    assert_eq!(refused.err(), Some(error::DispatchRefusedError::Busy));
}

/// A guard with an execution of key `a` that stays in doubt for the time `left`.
async fn in_doubt(left: Duration) -> TestGuard {
    let site = new_test_guard("");
    let running =
        admitted(&site, TestGuard::claim("a", 50), LONG, AlwaysWaitingClient).await.expect("the newest");
    let longest = site.guard.config.max_execution;
    site.clock.advance(longest);
    let last = site.guard.now() - (longest - left);
    running.mark_in_doubt(last, None);
    site
}

/// A request that would not wait until the end of a doubt is refused at once.
#[tokio::test]
async fn wait_shorter_than_doubt_is_refused() {
    let left = Duration::from_secs(30);
    let site = in_doubt(left).await;
    let refused =
        admitted(&site, TestGuard::claim("a", 51), left - Duration::from_secs(1), AlwaysWaitingClient).await;
    let until = site.guard.now() + left;
    assert_eq!(refused.err(), Some(error::DispatchRefusedError::InDoubt { until }));
}

#[tokio::test]
async fn waiter_runs_after_doubt_ends() {
    let left = Duration::from_millis(50);
    let site = in_doubt(left).await;
    let mut next = Box::pin(admitted(&site, TestGuard::claim("a", 51), LONG, AlwaysWaitingClient));
    assert!(is_waiting(&mut next));
    site.clock.advance(left);
    next.await.expect("the doubt is over");
}

/// A guard that only observes admits a stale dispatch, counts it as in flight, and keeps its watermark.
#[tokio::test]
async fn observing_guard_admits_stale_keeps_watermark() {
    let site = new_test_guard("");
    let newer =
        admitted(&site, TestGuard::claim("a", 51), LONG, AlwaysWaitingClient).await.expect("the newest");
    newer.complete(stored_response(200, None)).await.expect("known");
    let stale = site.guard.admit_unchecked(TestGuard::claim("a", 50)).await.expect("let in");
    assert!(metrics_text(&site).contains("guard_in_flight 1"), "{}", metrics_text(&site));
    let refused = admitted(&site, TestGuard::claim("a", 50), LONG, AlwaysWaitingClient).await;
    assert!(
        matches!(refused.err(), Some(error::DispatchRefusedError::Stale { newest }) if newest.number() == 51)
    );
    // The stale dispatch blocks a newer one, as any dispatch in flight does.
    let refused = admitted(&site, TestGuard::claim("a", 52), Duration::ZERO, AlwaysWaitingClient).await;
    assert_eq!(refused.err(), Some(error::DispatchRefusedError::Busy));
    stale.complete(stored_response(200, None)).await.expect("known");
    admitted(&site, TestGuard::claim("a", 53), LONG, AlwaysWaitingClient).await.expect("free");
}

/// A claim that waits in vain stays announced: its watermark is written, its journal entry is not.
#[tokio::test]
async fn timed_out_claim_leaves_only_watermark() {
    let site = new_test_guard("");
    let running =
        admitted(&site, TestGuard::claim("a", 50), LONG, AlwaysWaitingClient).await.expect("the newest");
    let claim = TestGuard::claim("a", 51);
    let mut client = AlwaysWaitingClient;
    let mut wait_limit = ClientWaitLimit::new(&mut client, Duration::ZERO);
    let Ok(JournalLookup::New(reserved)) =
        site.guard.reserve_and_look_up(operation_request(1, 60, &claim), &mut wait_limit).await
    else {
        panic!("it is new")
    };
    let refused = site.guard.admit(claim, Some(reserved), &mut wait_limit).await;
    assert_eq!(refused.err(), Some(error::DispatchRefusedError::Busy));
    assert!(!site.is_known(1));
    running.complete(stored_response(200, None)).await.expect("known");
    let refused = admitted(&site, TestGuard::claim("a", 50), LONG, AlwaysWaitingClient).await;
    assert!(
        matches!(refused.err(), Some(error::DispatchRefusedError::Stale { newest }) if newest.number() == 51)
    );
    // The operation is not reserved any more.
    site.complete_operation(1, 60).await.expect("done");
}

/// Time in which the guard stood still, between its read of the clock and its decision, ends no doubt.
#[tokio::test]
async fn standstill_of_guard_ends_no_doubt() {
    let site = in_doubt(Duration::from_secs(20)).await;
    let alone = site.local_backend();
    alone.start_pause_detection();
    site.clock.advance_after_next_read(Duration::from_secs(60));
    alone.delist_idle_keys();
    let left = |site: &TestGuard| {
        site.local_backend().doubts().first().map(|doubt| doubt.until.since(site.guard.now()))
    };
    assert_eq!(left(&site), Some(Duration::from_secs(20)));
    let refused = admitted(&site, TestGuard::claim("a", 51), Duration::ZERO, AlwaysWaitingClient).await;
    assert!(matches!(refused.err(), Some(error::DispatchRefusedError::InDoubt { .. })));
}
