//! Beside an upstream that compares nothing: what an old holder still does, or has left on the way, never meets what
//! the next one does.

use std::time::Duration;

use fencegate::demo::{
    child::Signal,
    relay::{HeldBytes, Relay},
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
    wait::{QUIET, wait_until},
};

const OLD: &str = "the-old-one";
const NEXT: &str = "the-next-one";

fn ask(attempt: &str) -> TestRequest {
    TestRequest::post("/pay/7").field(ATTEMPT, attempt)
}

/// A gateway whose request is held back on its way to the guard, and a second gateway.
struct DelayedRequest {
    guarded: GuardedSite,
    guard: Guard,
    victim: Gateway,
    next: Gateway,
    asked: Option<PendingRequest>,
    hold: HeldBytes,
    _relay: Relay,
}

impl DelayedRequest {
    async fn with(launch: fn(GuardLaunch) -> GuardLaunch, policy: fn(TestPolicy) -> TestPolicy) -> Self {
        let guarded = GuardedSite::fresh().await;
        let guard = launch(guarded.launch().await).start().await;
        let relay = Relay::start(guard.public).expect("a relay");
        let victim = policy(guarded.policy("victim", &[relay.address()]));
        let next = policy(guarded.policy("next", &[guard.public]));
        let (victim, next) = Gateway::start_both(&victim, &next).await;
        let hold = relay.hold_containing(OLD);
        let asked = Some(victim.begin(ask(OLD)));
        hold.captured().await;
        Self { guarded, guard, victim, next, asked, hold, _relay: relay }
    }

    /// The victim is stopped past the end of its session, another gateway has its turn, and the held bytes arrive.
    async fn overtaken(&self) {
        self.victim.signal(Signal::STOP);
        let next = self.next.send(&ask(NEXT)).await;
        assert_eq!((next.status, next.outcome()), (200, Some(FencingOutcome::Done)));
        self.hold.release();
    }

    async fn answer(&mut self) -> ClientResponse {
        self.asked.take().expect("asked and not hung up").answer().await
    }

    /// Attempts in the order in which they were executed.
    fn executed(&self) -> Vec<String> {
        let history = History::from_log(&self.guarded.site.origin.log());
        history.assert_holds();
        history.executions.into_iter().filter_map(|execution| execution.attempt).collect()
    }
}

#[tokio::test]
async fn what_a_sleeper_left_on_the_way_is_refused_and_sent_once_more_when_it_wakes() {
    let mut it = DelayedRequest::with(|launch| launch, |policy| policy).await;
    it.overtaken().await;
    it.guard.wait_decisions("stale", 1.0).await;
    assert_eq!(it.executed(), [NEXT], "the upstream has seen nothing of it");
    it.victim.signal(Signal::CONT);
    let answer = it.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
    let log = it.guarded.site.origin.log();
    let tokens: Vec<_> = log.records.iter().map(|record| record.expect_token()).collect();
    assert_eq!((tokens.len(), answer.token()), (2, Some(tokens[1])));
    let mut history = History::from_log(&log);
    history.record_answer(OLD, Some(&answer));
    history.assert_holds();
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_sent_once_more() {
    let mut it = DelayedRequest::with(|launch| launch, |policy| policy).await;
    it.asked.take().expect("asked").hang_up();
    let gone = async {
        while it.victim.metrics().await.sum("fencegate_requests_total", &["\"pay\"", "\"499\""]) < 1.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    wait_until("the gateway to notice", gone, || it.victim.log()).await;
    it.overtaken().await;
    it.guard.wait_decisions("stale", 1.0).await;
    it.victim.signal(Signal::CONT);
    it.victim.wait_line("the end of the tenure", |line| line.message() == "tenure.retired").await;
    it.victim.wait_ready().await;
    tokio::time::sleep(QUIET).await;
    assert_eq!((it.executed(), it.guard.decision_count("stale").await), (vec![NEXT.to_owned()], 1.0));
}

/// A refusal may be for a copy of the request. It says nothing about the first copy.
#[tokio::test]
async fn where_something_may_stand_between_a_stale_request_is_unknown_and_not_repeated() {
    let mut it =
        DelayedRequest::with(|launch| launch, |policy| policy.with("/upstreams/ledger/direct", false)).await;
    it.overtaken().await;
    it.guard.wait_decisions("stale", 1.0).await;
    it.victim.signal(Signal::CONT);
    let executed = it.executed();
    let answer = it.answer().await;
    assert_eq!((answer.status, answer.reason().as_str()), (502, "outcome-unknown"));
    assert_eq!((answer.outcome(), answer.field("retry-after")), (Some(FencingOutcome::Unknown), None));
    assert_eq!((executed.len(), it.guarded.site.origin.log().records.len()), (1, 1));
}

#[tokio::test]
async fn a_guard_that_looks_on_lets_the_late_request_through_and_its_client_is_told() {
    let mut it = DelayedRequest::with(|launch| launch.with("/enforce", "observe"), |policy| policy).await;
    it.overtaken().await;
    it.victim.signal(Signal::CONT);
    let answer = it.answer().await;
    let told = answer.field("fencing-outcome").unwrap_or_default();
    assert!(answer.status == 200 && told.starts_with("done; observe=stale"), "{answer:?}");
    assert_eq!(it.guarded.site.origin.log().records.len(), 2);
}

/// The holder dies with its request at the upstream. Its session ends, and its lock; its request does not.
async fn killed_at_work(
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

#[tokio::test]
async fn the_next_holder_waits_at_the_guard_until_the_execution_of_a_killed_one_has_ended() {
    let it = killed_at_work(|launch| launch, |policy| policy).await;
    let next = it.two.begin(ask(NEXT));
    it.guard.wait_watermark("account/7", it.epoch + 1).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(it.guarded.site.origin.count("/pay/7"), 1, "two at once");
    it.latch.release();
    assert_eq!(next.answer().await.status, 200);
    let history = History::from_log(&it.guarded.site.origin.log());
    history.assert_holds();
    assert_eq!(history.executions.len(), 2);
    assert!(it.guarded.site.origin.log().records[0].abandoned.is_none(), "hung up on");
}

#[tokio::test]
async fn who_waits_in_vain_is_told_busy_and_may_repeat_it_under_the_same_tenure() {
    let it = killed_at_work(
        |launch| {
            with_short_times(launch).with("/max_execution", "8s").with("/upstream/response_timeout", "7s")
        },
        |policy| policy.with_linger("20s"),
    )
    .await;
    let busy = it.two.send(&ask(NEXT)).await;
    assert_eq!((busy.status, busy.reason().as_str()), (503, "busy"));
    assert_eq!(busy.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(busy.field("retry-after").is_some());
    it.latch.release();
    it.guard.wait_gauge("fencegate_guard_in_flight", 0.0).await;
    let done = it.two.send(&ask("again")).await;
    assert_eq!((done.status, done.outcome()), (200, Some(FencingOutcome::Done)));
    let (busy, done) = (busy.token().expect("stamped"), done.token().expect("stamped"));
    assert!(done.same_grant(busy) && done.dispatch() == busy.dispatch() + 1, "{busy} {done}");
    let mut history = History::from_log(&it.guarded.site.origin.log());
    history.assert_holds();
    assert_eq!(history.executions.remove(1).attempt.as_deref(), Some("again"));
}

#[tokio::test]
async fn where_something_may_stand_between_a_busy_guard_means_an_unknown_outcome() {
    let it = killed_at_work(
        |launch| {
            with_short_times(launch).with("/max_execution", "8s").with("/upstream/response_timeout", "7s")
        },
        |policy| policy.with("/upstreams/ledger/direct", false),
    )
    .await;
    let answer = it.two.send(&ask(NEXT)).await;
    assert_eq!((answer.status, answer.reason().as_str()), (502, "outcome-unknown"));
    assert_eq!((answer.outcome(), answer.field("retry-after")), (Some(FencingOutcome::Unknown), None));
    assert_eq!(it.guarded.site.origin.count("/pay/7"), 1);
    it.latch.release();
}
