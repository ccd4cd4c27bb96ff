//! Which dispatches wait for which others, and for how long.

use std::{
    pin::Pin,
    task::{Context, Waker},
};

use super::*;
use crate::waiter::Waiter;

/// Longer than any test: whoever waits for so long is found out by the limit of [`soon`].
const LONG: Duration = Duration::from_secs(60);

/// A client that has gone away.
struct DisconnectedClient;

impl Waiter for DisconnectedClient {
    async fn wait_closed(&mut self) {}
}

/// Begins it, and tells whether it goes on later.
fn is_waiting(future: &mut (impl Future + Unpin)) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// What is to happen without a wait for somebody's patience.
async fn soon<T>(happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG / 4, happens).await.expect("soon")
}

fn text_of(site: &TestSite) -> String {
    String::from_utf8(site.families.encode()).expect("text")
}

async fn admitted(
    site: &TestSite,
    claim: Claim,
    patience: Duration,
    mut client: impl Waiter,
) -> Result<Execution, error::AdmitError> {
    soon(site.guard.admit(claim, None, &mut WaitLimit::new(&mut client, patience))).await
}

#[tokio::test]
async fn the_next_tenure_begins_when_the_dispatch_before_it_is_over() {
    let site = site("");
    let first = admitted(&site, TestSite::claim("a", 50), LONG, AlwaysWaiting).await.expect("the newest");
    let mut next = Box::pin(admitted(&site, TestSite::claim("a", 51), LONG, AlwaysWaiting));
    assert!(is_waiting(&mut next));
    first.complete(answer(200, None)).await.expect("known");
    next.await.expect("the newest").complete(answer(200, None)).await.expect("known");
    let text = text_of(&site);
    // The second one was counted after its wait.
    assert!(text.contains(r#"guard_decisions_total{decision="admit_new_tenure"} 2"#), "{text}");
    // A further dispatch of the same tenure.
    let more = Claim { token: Token::new(51, 1, 2).expect("small"), ..TestSite::claim("a", 51) };
    admitted(&site, more, LONG, AlwaysWaiting).await.expect("the newest");
    let text = text_of(&site);
    assert!(text.contains(r#"guard_decisions_total{decision="admit"} 1"#), "{text}");
}

#[tokio::test]
async fn who_has_waited_long_enough_or_is_gone_is_refused_as_busy() {
    let site = site("");
    let _running = admitted(&site, TestSite::claim("a", 50), LONG, AlwaysWaiting).await.expect("the newest");
    let refused = admitted(&site, TestSite::claim("a", 51), Duration::ZERO, AlwaysWaiting).await;
    assert_eq!(refused.err(), Some(error::AdmitError::Busy));
    let refused = admitted(&site, TestSite::claim("a", 52), LONG, DisconnectedClient).await;
    assert_eq!(refused.err(), Some(error::AdmitError::Busy));
}

/// A site with an execution of key `a` that is in doubt for so long.
async fn in_doubt(left: Duration) -> TestSite {
    let site = site("");
    let running = admitted(&site, TestSite::claim("a", 50), LONG, AlwaysWaiting).await.expect("the newest");
    let longest = site.guard.config.max_execution;
    site.clock.advance(longest);
    let last = site.guard.now() - (longest - left);
    running.mark_in_doubt(last, None);
    site
}

#[tokio::test]
async fn who_would_not_wait_for_the_end_of_a_doubt_is_refused_at_once() {
    let left = Duration::from_secs(30);
    let site = in_doubt(left).await;
    let refused =
        admitted(&site, TestSite::claim("a", 51), left - Duration::from_secs(1), AlwaysWaiting).await;
    let until = site.guard.now() + left;
    assert_eq!(refused.err(), Some(error::AdmitError::InDoubt { until }));
}

#[tokio::test]
async fn who_would_wait_for_the_end_of_a_doubt_is_let_in_then() {
    let left = Duration::from_millis(50);
    let site = in_doubt(left).await;
    let mut next = Box::pin(admitted(&site, TestSite::claim("a", 51), LONG, AlwaysWaiting));
    assert!(is_waiting(&mut next));
    site.clock.advance(left);
    next.await.expect("the doubt is over");
}

#[tokio::test]
async fn a_guard_that_only_observes_lets_a_stale_dispatch_in_and_keeps_the_mark() {
    let site = site("");
    let newer = admitted(&site, TestSite::claim("a", 51), LONG, AlwaysWaiting).await.expect("the newest");
    newer.complete(answer(200, None)).await.expect("known");
    let stale = site.guard.admit_unchecked(TestSite::claim("a", 50)).await.expect("let in");
    assert!(text_of(&site).contains("guard_in_flight 1"), "{}", text_of(&site));
    let refused = admitted(&site, TestSite::claim("a", 50), LONG, AlwaysWaiting).await;
    assert!(matches!(refused.err(), Some(error::AdmitError::Stale { newest }) if newest.number() == 51));
    // It counts like any other.
    let refused = admitted(&site, TestSite::claim("a", 52), Duration::ZERO, AlwaysWaiting).await;
    assert_eq!(refused.err(), Some(error::AdmitError::Busy));
    stale.complete(answer(200, None)).await.expect("known");
    admitted(&site, TestSite::claim("a", 53), LONG, AlwaysWaiting).await.expect("free");
}

/// A token that was announced and refused stays announced: its journal entry is not written, its mark is.
#[tokio::test]
async fn a_claim_that_waits_in_vain_leaves_its_mark_and_no_operation() {
    let site = site("");
    let running = admitted(&site, TestSite::claim("a", 50), LONG, AlwaysWaiting).await.expect("the newest");
    let claim = TestSite::claim("a", 51);
    let mut client = AlwaysWaiting;
    let mut patience = WaitLimit::new(&mut client, Duration::ZERO);
    let Ok(JournalLookup::New(reserved)) =
        site.guard.find_operation(wanted(1, 60, &claim), &mut patience).await
    else {
        panic!("it is new")
    };
    let refused = site.guard.admit(claim, Some(reserved), &mut patience).await;
    assert_eq!(refused.err(), Some(error::AdmitError::Busy));
    assert!(!site.is_known(1));
    running.complete(answer(200, None)).await.expect("known");
    let refused = admitted(&site, TestSite::claim("a", 50), LONG, AlwaysWaiting).await;
    assert!(matches!(refused.err(), Some(error::AdmitError::Stale { newest }) if newest.number() == 51));
    // The operation is not reserved any more.
    site.done(1, 60).await.expect("done");
}

/// A guard that stood still between its look at the clock and its decision.
#[tokio::test]
async fn a_time_in_which_nobody_ran_ends_no_doubt() {
    let site = in_doubt(Duration::from_secs(20)).await;
    let alone = site.alone();
    alone.start_clock_watch();
    site.clock.advance_after_next_read(Duration::from_secs(60));
    alone.release_idle_keys();
    let left =
        |site: &TestSite| site.alone().doubts().first().map(|doubt| doubt.until.since(site.guard.now()));
    assert_eq!(left(&site), Some(Duration::from_secs(20)));
    let refused = admitted(&site, TestSite::claim("a", 51), Duration::ZERO, AlwaysWaiting).await;
    assert!(matches!(refused.err(), Some(error::AdmitError::InDoubt { .. })));
}
