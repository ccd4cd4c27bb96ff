//! With a guard before an upstream that compares no tokens, a request of an old holder, whether it is executed or still
//! on the way, never overlaps with a request of the next holder.
//!
//! A request that is refused as stale is sent once more while its client waits.

use std::time::Duration;

use fencegate_testkit::{
    child::Signal,
    fault_proxy::{FaultProxy, HeldBytes},
    wait::{QUIET, wait_until},
};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::{Gateway, PendingRequest},
    guard::{Guard, GuardLaunch},
    guarded::{GuardedSite, with_short_times},
    held_request::HeldRequest,
    history::{ATTEMPT, History},
    origin::Latch,
    policy::TestPolicy,
};

const OLD: &str = "the-old-one";
const NEXT: &str = "the-next-one";

fn ask(attempt: &str) -> TestRequest {
    TestRequest::post("/pay/7").field(ATTEMPT, attempt)
}

/// A gateway whose request is held back on its way to the guard, and a second gateway.
struct DelayedRequestFixture {
    guarded: GuardedSite,
    guard: Guard,
    victim: Gateway,
    next: Gateway,
    asked: Option<PendingRequest>,
    hold: HeldBytes,
    _relay: FaultProxy,
}

impl DelayedRequestFixture {
    async fn new(launch: fn(GuardLaunch) -> GuardLaunch, policy: fn(TestPolicy) -> TestPolicy) -> Self {
        let guarded = GuardedSite::fresh().await;
        let guard = launch(guarded.launch().await).start().await;
        let relay = FaultProxy::start(guard.public);
        let victim = policy(guarded.policy("victim", &[relay.address]));
        let next = policy(guarded.policy("next", &[guard.public]));
        let (victim, next) = Gateway::start_both(&victim, &next).await;
        let hold = relay.hold_containing(OLD);
        let asked = Some(victim.begin(ask(OLD)));
        hold.wait_captured().await;
        Self { guarded, guard, victim, next, asked, hold, _relay: relay }
    }

    /// Stops the victim past the end of its session, and lets the next gateway execute a request.
    async fn overtake_held(&self) {
        self.victim.signal(Signal::STOP);
        let next = self.next.send(&ask(NEXT)).await;
        assert_eq!((next.status, next.outcome()), (200, Some(FencingOutcome::Done)));
    }

    /// Stops the victim, lets the next gateway execute a request, and releases the held bytes before the victim runs
    /// again.
    async fn overtake(&self) {
        self.overtake_held().await;
        self.hold.release();
    }

    /// Asserts that the upstream has this number of executions, and that the client's answer does not contradict them.
    fn assert_history(&self, answer: &ClientResponse, executions: usize) {
        let log = self.guarded.site.origin.log();
        let tokens: Vec<_> = log.records.iter().map(|record| record.expect_token()).collect();
        assert_eq!(tokens.len(), executions);
        if executions == 2 {
            assert_eq!(answer.token(), Some(tokens[1]));
        }
        let mut history = History::from_log(&log);
        history.record_answer(OLD, Some(answer));
        history.assert_holds();
    }

    async fn answer(&mut self) -> ClientResponse {
        self.asked.take().expect("asked and not hung up").answer().await
    }

    /// The attempts in the order in which they were executed.
    fn executed_attempts(&self) -> Vec<String> {
        let history = History::from_log(&self.guarded.site.origin.log());
        history.assert_holds();
        history.executions.into_iter().filter_map(|execution| execution.attempt).collect()
    }
}

/// The delayed request of a paused holder is refused as stale, and the holder sends it again under its new session.
#[tokio::test]
async fn delayed_request_is_refused_and_redispatched() {
    let mut delayed = DelayedRequestFixture::new(|launch| launch, |policy| policy).await;
    delayed.overtake_held().await;
    delayed.victim.signal(Signal::CONT);
    delayed.victim.wait_line("the end of the session", |line| line.message() == "session.ended").await;
    delayed.victim.wait_ready().await;
    delayed.hold.release();
    let answer = delayed.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
    assert_eq!(delayed.guard.decision_count("stale").await, 1.0);
    assert_eq!(delayed.executed_attempts(), [NEXT, OLD], "the upstream has seen nothing of the refused one");
    delayed.assert_history(&answer, 2);
}

/// A holder that resumes when the refusal has already arrived may have no session yet. It then reports that nothing was
/// dispatched.
#[tokio::test]
async fn refusal_on_wake_repeats_or_dispatches_nothing() {
    let mut delayed = DelayedRequestFixture::new(|launch| launch, |policy| policy).await;
    delayed.overtake().await;
    delayed.guard.wait_decisions("stale", 1.0).await;
    assert_eq!(delayed.executed_attempts(), [NEXT], "the upstream has seen nothing of it");
    delayed.victim.signal(Signal::CONT);
    let answer = delayed.answer().await;
    match (answer.status, answer.outcome()) {
        (200, Some(FencingOutcome::Done)) => delayed.assert_history(&answer, 2),
        (503, Some(FencingOutcome::NotDispatched)) => {
            assert_eq!(answer.reason(), "lock-service");
            delayed.assert_history(&answer, 1);
        }
        _ => panic!("{answer:?}"),
    }
}

/// A stale request whose client has gone is not sent once more.
#[tokio::test]
async fn abandoned_request_is_not_redispatched() {
    let mut delayed = DelayedRequestFixture::new(|launch| launch, |policy| policy).await;
    delayed.asked.take().expect("asked").hang_up();
    let gone = async {
        while delayed.victim.metrics().await.sum("fencegate_requests_total", &["\"pay\"", "\"499\""]) < 1.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    wait_until("the gateway to notice", gone, || delayed.victim.log()).await;
    delayed.overtake().await;
    delayed.guard.wait_decisions("stale", 1.0).await;
    delayed.victim.signal(Signal::CONT);
    delayed.victim.wait_line("the end of the tenure", |line| line.message() == "tenure.retired").await;
    delayed.victim.wait_ready().await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(
        (delayed.executed_attempts(), delayed.guard.decision_count("stale").await),
        (vec![NEXT.to_owned()], 1.0)
    );
}

/// Without `direct`, a request that is refused as stale has an unknown outcome and is not repeated. The refusal may be for
/// a copy of the request, and proves nothing about the first copy.
#[tokio::test]
async fn stale_behind_hop_is_unknown() {
    let mut delayed =
        DelayedRequestFixture::new(|launch| launch, |policy| policy.with("/upstreams/ledger/direct", false))
            .await;
    delayed.overtake().await;
    delayed.guard.wait_decisions("stale", 1.0).await;
    delayed.victim.signal(Signal::CONT);
    let executed = delayed.executed_attempts();
    let answer = delayed.answer().await;
    assert_eq!((answer.status, answer.reason().as_str()), (502, "outcome-unknown"));
    assert_eq!((answer.outcome(), answer.field("retry-after")), (Some(FencingOutcome::Unknown), None));
    assert_eq!((executed.len(), delayed.guarded.site.origin.log().records.len()), (1, 1));
}

/// A guard in `observe` passes the late request, and its client gets `observe=stale`.
#[tokio::test]
async fn observing_guard_passes_late_request() {
    let mut delayed =
        DelayedRequestFixture::new(|launch| launch.with("/enforce", "observe"), |policy| policy).await;
    delayed.overtake().await;
    delayed.victim.signal(Signal::CONT);
    let answer = delayed.answer().await;
    let outcome = answer.field("fencing-outcome").unwrap_or_default();
    assert!(answer.status == 200 && outcome.starts_with("done; observe=stale"), "{answer:?}");
    assert_eq!(delayed.guarded.site.origin.log().records.len(), 2);
}

/// Kills a holder whose request the upstream is executing. Its session and its lock end, and the execution continues.
async fn kill_holder_at_work(
    launch: fn(GuardLaunch) -> GuardLaunch,
    policy: fn(TestPolicy) -> TestPolicy,
) -> KilledGateway {
    let guarded = GuardedSite::fresh().await;
    let guard = launch(guarded.launch().await).start().await;
    let start = |name| {
        let policy = policy(guarded.policy(name, &[guard.public]));
        async move { Gateway::start(&policy).await }
    };
    let (one, two) = tokio::join!(start("one"), start("two"));
    let HeldRequest { request: lost, record: first, latch } =
        guarded.site.origin.hold_request(&one, ask(OLD)).await;
    one.signal(Signal::KILL);
    assert!(lost.result().await.is_err(), "nobody is left to answer");
    let epoch = first.expect_token().number();
    KilledGateway { guarded, guard, two, latch, epoch }
}

struct KilledGateway {
    guarded: GuardedSite,
    guard: Guard,
    two: Gateway,
    latch: Latch,
    /// The epoch of the execution that goes on.
    epoch: u64,
}

/// The next holder waits at the guard until the execution of a killed holder has ended.
#[tokio::test]
async fn next_holder_waits_for_killed_execution() {
    let killed = kill_holder_at_work(|launch| launch, |policy| policy).await;
    let next = killed.two.begin(ask(NEXT));
    killed.guard.wait_watermark("account/7", killed.epoch + 1).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(killed.guarded.site.origin.count("/pay/7"), 1, "two at once");
    killed.latch.release();
    assert_eq!(next.answer().await.status, 200);
    let history = History::from_log(&killed.guarded.site.origin.log());
    history.assert_holds();
    assert_eq!(history.executions.len(), 2);
    assert!(killed.guarded.site.origin.log().records[0].abandoned.is_none(), "hung up on");
}

/// A request that waits in vain is refused as `busy`, and may be repeated under the same tenure.
#[tokio::test]
async fn busy_waiter_may_repeat_in_grant() {
    let killed = kill_holder_at_work(
        |launch| {
            with_short_times(launch).with("/max_execution", "8s").with("/upstream/response_timeout", "7s")
        },
        |policy| policy.with_linger("20s"),
    )
    .await;
    let busy = killed.two.send(&ask(NEXT)).await;
    assert_eq!((busy.status, busy.reason().as_str()), (503, "busy"));
    assert_eq!(busy.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(busy.field("retry-after").is_some());
    killed.latch.release();
    killed.guard.wait_gauge("fencegate_guard_in_flight", 0.0).await;
    let done = killed.two.send(&ask("again")).await;
    assert_eq!((done.status, done.outcome()), (200, Some(FencingOutcome::Done)));
    let busy = busy.token().expect("stamped");
    let done = done.token().expect("stamped");
    assert!(done.same_grant(busy) && done.dispatch() == busy.dispatch() + 1, "{busy} {done}");
    let mut history = History::from_log(&killed.guarded.site.origin.log());
    history.assert_holds();
    assert_eq!(history.executions.remove(1).attempt.as_deref(), Some("again"));
}

/// Without `direct`, a request that is refused as `busy` has an unknown outcome.
#[tokio::test]
async fn busy_behind_hop_is_unknown() {
    let killed = kill_holder_at_work(
        |launch| {
            with_short_times(launch).with("/max_execution", "8s").with("/upstream/response_timeout", "7s")
        },
        |policy| policy.with("/upstreams/ledger/direct", false),
    )
    .await;
    let answer = killed.two.send(&ask(NEXT)).await;
    assert_eq!((answer.status, answer.reason().as_str()), (502, "outcome-unknown"));
    assert_eq!((answer.outcome(), answer.field("retry-after")), (Some(FencingOutcome::Unknown), None));
    assert_eq!(killed.guarded.site.origin.count("/pay/7"), 1);
    killed.latch.release();
}
