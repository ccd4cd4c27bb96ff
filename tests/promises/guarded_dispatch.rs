//! A guard that cannot admit a request, or is away, costs a 503 or 502 and nothing else: nothing is dispatched, the
//! tenure goes on, and so does the service.

use std::time::Duration;

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::Gateway,
    guard::{Guard, GuardLaunch},
    guarded::{GuardedSite, with_short_times},
    held_request::HeldRequest,
    history::History,
    origin::OriginAction,
};
use serde_json::json;

use super::clients_share::send_from;

/// A gateway that keeps its tenure between requests.
async fn start_keeping(guarded: &GuardedSite, guard: &Guard) -> Gateway {
    let policy = guarded.policy("gw-1", &[guard.public]);
    Gateway::start(&policy.with_linger("20s")).await
}

#[track_caller]
fn assert_retry_later(answer: &ClientResponse, reason: &str) {
    assert_eq!((answer.status, answer.reason().as_str()), (503, reason), "{answer:?}");
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(answer.field("retry-after").is_some());
}

/// Asserts that the answer belongs to the refused tenure, and has the next dispatch number.
#[track_caller]
fn assert_same_tenure(refused: &ClientResponse, done: &ClientResponse) {
    assert_eq!((done.status, done.outcome()), (200, Some(FencingOutcome::Done)), "{done:?}");
    let refused = refused.token().expect("stamped");
    let done = done.token().expect("stamped");
    assert!(done.same_grant(refused) && done.dispatch() == refused.dispatch() + 1, "{refused}, then {done}");
}

/// A kept tenure is refused while its key is in doubt, and goes on with its next dispatch number afterwards.
#[tokio::test]
async fn kept_grant_waits_out_doubt() {
    let guarded = GuardedSite::fresh().await;
    let guard = with_short_times(guarded.launch().await).start().await;
    let gateway = start_keeping(&guarded, &guard).await;
    guarded.site.origin.script("/pay/7", [OriginAction::Reset]);
    let broken = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((broken.status, broken.reason().as_str()), (502, "outcome-unknown"));
    assert_eq!((broken.outcome(), broken.field("retry-after")), (Some(FencingOutcome::Unknown), None));

    let early = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_retry_later(&early, "in-doubt");
    let broken = broken.token().expect("stamped");
    let second = early.token().expect("stamped");
    assert!(second.number() > broken.number(), "the tenure of an unknown outcome is over");
    assert_eq!(gateway.send(&TestRequest::post("/pay/8")).await.status, 200, "another key is free");
    guard.wait_gauge("fencegate_guard_in_doubt", 0.0).await;
    assert_same_tenure(&early, &gateway.send(&TestRequest::post("/pay/7")).await);
    let log = guarded.site.origin.log();
    let times: Vec<_> = log.requests_for("/pay/7").map(|record| record.arrived).collect();
    assert!(times.len() == 2 && times[1] - times[0] >= Duration::from_secs(2), "{times:?}");
}

/// The guard counts the clients that the gateway names: the request of a client above its limit is refused and not
/// dispatched, and other clients are served.
#[tokio::test]
async fn guards_client_limit_dispatches_nothing() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.launch().await.with("/listener/limits", json!({"per_client": 1})).start().await;
    let gateway = start_keeping(&guarded, &guard).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/8")).await.status, 200);
    let holder = guarded.site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;

    let refused = gateway.send(&TestRequest::post("/pay/8")).await;
    assert_eq!((refused.status, refused.reason().as_str()), (429, "client-limit"), "{refused:?}");
    assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(refused.field("retry-after").is_some());
    let other = send_from("127.0.0.2", &gateway, TestRequest::post("/pay/9")).await.expect("no panic");
    assert_eq!(other.status, 200, "another client has its own share: {other:?}");
    assert_eq!(guarded.site.origin.count("/pay/8"), 1, "it was dispatched");

    assert_eq!(holder.finish().await.status, 200);
    let done = async {
        loop {
            // The guard counts the first request as ended when its answer ends.
            let answer = gateway.send(&TestRequest::post("/pay/8")).await;
            if answer.status != 429 {
                return answer;
            }
        }
    };
    assert_same_tenure(&refused, &wait_until("a share", done, || gateway.log()).await);
}

/// A guard that was killed admits nothing during its quarantine, and then goes on.
#[tokio::test]
async fn killed_guard_recovers_after_quarantine() {
    let guarded = GuardedSite::fresh().await;
    let guard = with_short_times(guarded.launch().await).with_permanent_quarantine().start().await;
    let gateway = start_keeping(&guarded, &guard).await;
    let first = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(first.status, 200);
    let guard = guard.kill().await.start().await;
    let early = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_retry_later(&early, "quarantine");
    let epochs = (first.token().expect("stamped").number(), early.token().expect("stamped").number());
    assert!(epochs.1 > epochs.0, "whatever ran before the crash is over");
    guard.wait_ready().await;
    assert_same_tenure(&early, &gateway.send(&TestRequest::post("/pay/7")).await);
    assert_eq!(guarded.site.origin.count("/pay/7"), 2);
}

/// Nothing is sent while the guard is away, and its return is noticed without an operator.
#[tokio::test]
async fn absent_guards_return_is_noticed() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let gateway = start_keeping(&guarded, &guard).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let launch = guard.stop().await;
    for _ in 0..2 {
        let away = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((away.status, away.reason().as_str()), (502, "upstream-connect"));
        assert_eq!(away.outcome(), Some(FencingOutcome::NotDispatched));
    }
    let _guard = launch.start().await;
    let back = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((back.status, back.outcome()), (200, Some(FencingOutcome::Done)), "{back:?}");
    assert_eq!(guarded.site.origin.count("/pay/7"), 2);
    History::from_log(&guarded.site.origin.log()).assert_holds();
}

/// A guard that is killed with the request at the upstream leaves an unknown outcome, and no other execution overlaps
/// with it.
#[tokio::test]
async fn killed_guard_leaves_unknown_outcome() {
    let guarded = GuardedSite::fresh().await;
    let guard = with_short_times(guarded.launch().await).with("/max_execution", "3s").start().await;
    let gateway = start_keeping(&guarded, &guard).await;
    let HeldRequest { request: lost, latch, .. } =
        guarded.site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let launch: GuardLaunch = guard.kill().await;
    let lost = lost.answer().await;
    assert_eq!((lost.status, lost.reason().as_str()), (502, "outcome-unknown"));
    assert_eq!(lost.outcome(), Some(FencingOutcome::Unknown));
    let guard = launch.start().await;
    assert_retry_later(&gateway.send(&TestRequest::post("/pay/7")).await, "quarantine");
    assert_eq!(guarded.site.origin.count("/pay/7"), 1);
    latch.release();
    guard.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    History::from_log(&guarded.site.origin.log()).assert_holds();
}

/// An upstream that is away behind its guard is reported as without a guard, and nothing is in doubt.
#[tokio::test]
async fn absent_upstream_leaves_no_doubt() {
    let guarded = GuardedSite::fresh().await;
    let launch = guarded.launch().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = nobody.local_addr().expect("bound");
    drop(nobody);
    let guard = launch.clone().with("/upstream/endpoint", format!("http://{address}")).start().await;
    let gateway = start_keeping(&guarded, &guard).await;
    let away = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((away.status, away.reason().as_str()), (502, "upstream-connect"));
    assert_eq!(away.outcome(), Some(FencingOutcome::NotDispatched));
    guard.stop().await;
    let _guard = launch.start().await;
    assert_same_tenure(&away, &gateway.send(&TestRequest::post("/pay/7")).await);
}
