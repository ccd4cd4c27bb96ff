//! Each dispatch carries the moment after which it must not be begun, because a request that has left cannot be called
//! back. A guard or a filter begins nothing later than that.
//!
//! A relay or a frozen instance delivers late. A guard or a filter refuses such a request, and without either it is
//! executed. Tickets bound the moment, and clocks are measured.

use std::{
    fs,
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fencegate_policies::not_after::{BootId, NotAfter};
use fencegate_process::randomness::SystemRandomness;
use fencegate_testkit::{child::Signal, fault_proxy::FaultProxy};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::Gateway,
    guard::{Guard, GuardFixture, GuardLaunch, StampedRequest, assert_refused},
    guarded::GuardedSite,
    origin::{OriginAction, OriginReply},
    site::TestSite,
    stepped_clock::SteppedClock,
};
use fencegate_ticket::{TicketSigner, jwks, keys::SigningKeyPair, unix_seconds};
use serde_json::json;
use tokio::time::sleep;

const FIELD: &str = "fencing-not-after";

/// A filter before the service at this address, which lets every GET pass.
pub(super) fn filter(service: SocketAddr) -> GuardLaunch {
    GuardLaunch::filter(service).with("/unfenced", json!(["GET"]))
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("some centuries")
}

/// A moment on the wall clock only, as another machine would stamp it.
fn wall_clock_deadline(from_now: i64) -> String {
    NotAfter::new(wall_ms().saturating_add_signed(from_now), None).to_string()
}

fn boot_id() -> BootId {
    let id = fs::read("/proc/sys/kernel/random/boot_id").expect("Linux");
    BootId::parse(id.trim_ascii()).expect("a UUID")
}

/// Sends dispatches of this epoch until the guard admits one.
pub(super) async fn wait_admitted(guard: &Guard, epoch: u64) {
    for dispatch in 1..400 {
        let answer = guard.send(&StampedRequest::new("a", epoch).with_dispatch(dispatch).post("/new")).await;
        if answer.status == 200 {
            return;
        }
        assert!(["in-doubt", "busy"].contains(&answer.reason().as_str()), "{answer:?}");
        sleep(Duration::from_millis(25)).await;
    }
    panic!("never let in:\n{}", guard.log());
}

#[track_caller]
fn assert_expired(answer: &ClientResponse) {
    assert_eq!((answer.status, answer.outcome()), (412, Some(FencingOutcome::NotDispatched)), "{answer:?}");
    assert_eq!(answer.field("fencing-refusal"), Some("expired"), "{answer:?}");
}

/// Each dispatch carries one `Fencing-Not-After` of the gateway, within the limit of its level, and none of a client.
#[tokio::test]
async fn dispatch_carries_own_not_after() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let of_guard = guarded.policy("guarded", &[guard.public]);
    let site = &guarded.site;
    let level = |level: &str| {
        let policy = site.policy(level).with("/upstreams/ledger/fencing", level);
        policy.with("/upstreams/ledger/response_timeout", "1s")
    };
    let delayed = level("delay").with("/upstreams/ledger/delay", "2s");
    for (policy, longest) in
        [(level("none"), 1_000), (delayed, 1_000), (level("upstream"), 1_000), (of_guard, 3_000)]
    {
        let gateway = Gateway::start(&policy).await;
        let path = format!("/pay/{}", gateway.pid());
        let spoofed = TestRequest::post(&path).field("Fencing-Not-After", "999999999999999");
        let answer = gateway.send(&spoofed.field("fencing_not.after", "999999999999999")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.field(FIELD), None);
        let now = wall_ms();
        let record = site.origin.wait_for_request(&path, 1).await;
        let like = |name: &str| name.to_lowercase().replace(['_', '.'], "-") == FIELD;
        let fields: Vec<_> = record.request.fields.iter().filter(|(name, _)| like(name)).collect();
        let [(_, value)] = &fields[..] else { panic!("one field: {:?}", record.request) };
        let moment = NotAfter::parse(value.as_bytes()).expect("as it is described");
        let ahead = moment.unix_ms().saturating_sub(now);
        assert!((1..=longest).contains(&ahead), "{value} is {ahead} ms ahead");
        assert!(moment.uptime_ms(boot_id()).is_some(), "{value}");
        // Two gateways with different levels of one key must not run at once.
        gateway.stop().await;
    }
}

/// A guard refuses a late or malformed `Fencing-Not-After` before it announces anything or raises a watermark.
#[tokio::test]
async fn guard_refuses_late_request_before_announcement() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    for bad in ["", "soon", "-1", "1, 2", "5;boot=\"x\"", "1000000000000000"] {
        let answer = guard.send(&StampedRequest::new("a", 50).post("/pay").field(FIELD, bad)).await;
        assert_refused(&answer, "token-malformed");
    }
    let twice = StampedRequest::new("a", 50).post("/pay").field(FIELD, &wall_clock_deadline(9_000));
    assert_refused(&guard.send(&twice.field("fencing_not_after", "5")).await, "token-malformed");
    // Another machine has sent these requests, whose clock may be half a second ahead.
    for late in [-60_000, 0, 400] {
        let answer = guard
            .send(&StampedRequest::new("a", 50).post("/pay").field(FIELD, &wall_clock_deadline(late)))
            .await;
        assert_expired(&answer);
    }
    let uptime = |ms: u64| format!("{};boot=\"{}\";uptime={ms}", wall_ms() + 60_000, boot_id().as_str());
    assert_expired(&guard.send(&StampedRequest::new("a", 50).post("/pay").field(FIELD, &uptime(1))).await);
    assert_eq!((beside.origin.count("/pay"), guard.decision_count("expired").await), (0, 4.0));
    // No watermark was raised, so an older token is admitted, also without the field, as older gateways send it.
    let in_time = StampedRequest::new("a", 20).post("/pay").field(FIELD, &wall_clock_deadline(5_000));
    assert_eq!(guard.send(&in_time).await.status, 200);
    assert_eq!(guard.send(&StampedRequest::new("a", 20).with_dispatch(2).post("/pay")).await.status, 200);
    // The service receives the guard's own deadline: `send_within` after the admission.
    let record = beside.origin.wait_for_request("/pay", 2).await;
    let moment = record.request.field(FIELD).expect("stamped").as_bytes();
    let ahead = NotAfter::parse(moment).expect("well-formed").unix_ms().saturating_sub(wall_ms());
    assert!((1..=3_000).contains(&ahead), "{ahead}");
}

/// The signed bound of a ticket limits `Fencing-Not-After`, also where the field is forged or taken away.
#[tokio::test]
async fn ticket_bounds_not_after() {
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await;
    let pair = SigningKeyPair::generate(&SystemRandomness);
    let signer = TicketSigner::with_key(&pair);
    let file = launch.home().join("keys.json");
    fs::write(&file, jwks::render_key_set(&[pair.public()]).expect("a key set")).expect("our own folder");
    let guard = launch.with("/tickets", json!({"public_keys_file": file})).start().await;
    let dispatch = StampedRequest::new("a", 20);
    let until = |from_now: i64| {
        let bound = wall_ms().saturating_add_signed(from_now);
        (signer.sign_until(&dispatch.claims(), unix_seconds(), bound), bound)
    };
    let stamped = |dispatch: &StampedRequest, ticket: &str, moment: &str| {
        dispatch.post("/pay").field("Fencing-Ticket", ticket).field(FIELD, moment)
    };
    let (ticket, bound) = until(5_000);
    let later = NotAfter::new(bound + 1, None).to_string();
    assert_refused(&guard.send(&stamped(&dispatch, &ticket, &later)).await, "ticket-key");
    // The value of the boot clock is not signed, so the signed bound applies beside it.
    let (old, past) = until(-2_000);
    let forged = format!("{past};boot=\"{}\";uptime=999999999999999", boot_id().as_str());
    assert_expired(&guard.send(&stamped(&dispatch, &old, &forged)).await);
    // The field was removed on the way.
    assert_expired(&guard.send(&dispatch.post("/pay").field("Fencing-Ticket", &old)).await);
    assert_eq!(beside.origin.count("/pay"), 0);
    let exact = NotAfter::new(bound, None).to_string();
    assert_eq!(guard.send(&stamped(&dispatch, &ticket, &exact)).await.status, 200);
    // A ticket of an older version has no bound.
    let older =
        dispatch.with_dispatch(2).sign(&signer).post("/pay").field(FIELD, &wall_clock_deadline(5_000));
    assert_eq!(guard.send(&older).await.status, 200);
}

/// A filter passes a request in time as it came, and refuses a late, malformed or missing `Fencing-Not-After`.
#[tokio::test]
async fn filter_passes_only_timely_requests() {
    let beside = GuardFixture::new().await;
    let launch = filter(beside.origin.open_listener("filtered"));
    let filter = launch.clone().start().await;
    let answer = filter.send(&TestRequest::post("/pay")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (403, "not-after-missing"), "{answer:?}");
    let answer = filter.send(&TestRequest::post("/pay").field(FIELD, "soon")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (400, "token-malformed"), "{answer:?}");
    assert_expired(&filter.send(&TestRequest::post("/pay").field(FIELD, &wall_clock_deadline(400))).await);
    assert_eq!(beside.origin.count("/pay"), 0);
    assert_eq!(filter.send(&TestRequest::get("/pay")).await.status, 200, "`unfenced` names the method");

    let spoofing = OriginReply::ok().field("Fencing-Clock", "5;error=1").field("Fencing-Refusal", "expired");
    beside.origin.script("/sent", [OriginAction::now(spoofing)]);
    let moment = wall_clock_deadline(5_000);
    let sent =
        StampedRequest::new("a", 20).post("/sent").field(FIELD, &moment).field("Fencing-Ticket", "t.t.t");
    let answer = filter.send(&sent.body("x")).await;
    assert_eq!((answer.status, answer.field("fencing-refusal")), (200, None), "{answer:?}");
    let shown = answer.field("fencing-clock").expect("shown").to_owned();
    let (clock, error) = shown.split_once(';').expect("a clock and its error");
    let clock: u64 = clock.parse().expect("a number");
    assert!(clock.abs_diff(wall_ms()) < 5_000 && error == "error=500", "{shown}");
    let record = beside.origin.wait_for_request("/sent", 1).await;
    for (name, value) in [
        (FIELD, moment.as_str()),
        ("fencing-token", &StampedRequest::new("a", 20).token().to_string()),
        ("fencing-key", "a"),
        ("fencing-ticket", "t.t.t"),
    ] {
        assert_eq!(record.request.field(name), Some(value), "{name}");
    }
    // A refusal of a stale token by a comparing service is passed on to its gateway.
    let stale = OriginReply::ok().status(412).field("Fencing-Refusal", "stale");
    beside.origin.script("/stale", [OriginAction::now(stale)]);
    let answer = filter.send(&TestRequest::post("/stale").field(FIELD, &moment)).await;
    assert_eq!((answer.status, answer.field("fencing-refusal")), (412, Some("stale")), "{answer:?}");
    assert_eq!(filter.admin("/ready").await.status, 200);

    let observing = launch.with("/enforce", "observe").start().await;
    assert_eq!(
        observing.send(&TestRequest::post("/pay").field(FIELD, &wall_clock_deadline(-9))).await.status,
        200
    );
    observing.wait_line("what it lets pass", |line| line.message() == "filter.observed").await;
}

/// A filter that stood still sends nothing late.
///
/// The filter is frozen between its check of the deadline and the write.
#[tokio::test]
async fn paused_filter_sends_nothing_late() {
    let beside = GuardFixture::new().await;
    let launch = filter(beside.origin.open_listener("filtered"));
    let filter = launch.failpoint("before_upstream_write", "1*sleep(400)").start().await;
    let asked = filter.begin(TestRequest::post("/pay").field(FIELD, &wall_clock_deadline(1_500)));
    filter.wait_at_failpoint("before_upstream_write").await;
    filter.signal(Signal::STOP);
    sleep(Duration::from_millis(1_200)).await;
    filter.signal(Signal::CONT);
    assert_expired(&asked.answer().await);
    assert!(beside.origin.log().pieces.is_empty(), "written after the moment");
}

/// A guard with a short `max_execution` before this endpoint.
pub(super) fn with_short_times(launch: GuardLaunch, endpoint: SocketAddr, not_after: &str) -> GuardLaunch {
    launch
        .with("/upstream/endpoint", format!("http://{endpoint}"))
        .with("/upstream/response_timeout", "500ms")
        .with("/send_within", "500ms")
        .with("/max_execution", "1s")
        .with("/settle", "300ms")
        .with("/upstream/not_after", not_after)
}

/// Behind a filter a request that a relay delivers late is not begun.
///
/// A relay before the service has acknowledged the request, and delivers it when its connection works again. Without a
/// filter the old request runs after the new one, so the filter is the condition of the promise.
#[tokio::test]
async fn filter_stops_late_relayed_request() {
    for filtered in [true, false] {
        let beside = GuardFixture::new().await;
        let service = beside.origin.open_listener("service");
        let filter = filter(service).start().await;
        let relay = FaultProxy::start(if filtered { filter.public } else { service });
        let heeded = if filtered { "enforced" } else { "ignored" };
        let guard = with_short_times(beside.launch().await, relay.address, heeded).start().await;
        relay.hold();
        let old = guard.begin(StampedRequest::new("a", 20).post("/old"));
        relay.wait_received(b"\r\n\r\n").await;
        assert_eq!(old.answer().await.outcome(), Some(FencingOutcome::Unknown));
        relay.pass_through();
        wait_admitted(&guard, 30).await;
        let answers = relay.deliver().await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        let begun = beside.origin.count("/old");
        assert_eq!(begun, usize::from(!filtered), "filtered: {filtered}, {answers:?}");
        if filtered {
            assert!(answers[0].to_lowercase().contains("fencing-refusal: expired"), "{answers:?}");
        }
    }
}

/// An instance that was frozen begins no late request behind a filter.
///
/// The instance is frozen with a request in its socket, and the next request runs at another instance.
#[tokio::test]
async fn thawed_instance_begins_nothing_late() {
    let beside = GuardFixture::new().await;
    let [one, two] = ["one", "two"].map(|name| beside.origin.open_listener(name));
    let frozen = filter(one).start().await;
    let other = filter(two).start().await;
    let guard = with_short_times(beside.launch().await, frozen.public, "enforced").start().await;
    frozen.signal(Signal::STOP);
    let answer = guard.send(&StampedRequest::new("a", 20).post("/old")).await;
    assert_eq!(answer.outcome(), Some(FencingOutcome::Unknown), "{answer:?}");
    // The restarted guard uses the other instance, as if a balancer had left the frozen one.
    let launch = guard.kill().await;
    let guard = launch.with("/upstream/endpoint", format!("http://{}", other.public)).start().await;
    guard.wait_ready().await;
    wait_admitted(&guard, 30).await;
    frozen.signal(Signal::CONT);
    frozen.wait_line("the late request", |line| line.message().starts_with("filter.expired")).await;
    assert_eq!((beside.origin.count("/old"), beside.origin.count("/new")), (0, 1));
}

/// At levels without a guard, a request that a relay delivers late is begun unless a filter refuses it.
///
/// The key is held until no request can be begun any more, and then for as long as an execution may take.
#[tokio::test]
async fn filter_stops_late_relay_without_guard() {
    for (level, filtered) in [("none", true), ("none", false), ("delay", true), ("delay", false)] {
        let site = TestSite::fresh().await;
        let service = site.origin.open_listener("service");
        let filter = filter(service).start().await;
        let relay = FaultProxy::start(if filtered { filter.public } else { service });
        let policy = site
            .policy("gw-1")
            .with("/upstreams/ledger/endpoints", json!([format!("http://{}", relay.address)]))
            .with("/upstreams/ledger/fencing", level)
            .with("/upstreams/ledger/response_timeout", "600ms")
            .with("/upstreams/ledger/not_after", if filtered { "enforced" } else { "ignored" })
            .with("/routes/0/fence/wait", "10s");
        let policy = match level {
            "delay" => policy.with("/upstreams/ledger/delay", "1s"),
            _ => policy,
        };
        let gateway = Gateway::start(&policy).await;
        relay.hold();
        let old = gateway.begin(TestRequest::post("/pay/7").body("old"));
        relay.wait_received(b"old").await;
        assert_eq!(old.answer().await.outcome(), Some(FencingOutcome::Unknown), "{level}");
        relay.pass_through();
        let answer = gateway.send(&TestRequest::post("/pay/7").body("new")).await;
        assert_eq!(answer.status, 200, "{level}: {answer:?}");
        relay.deliver().await;
        let bodies: Vec<_> =
            site.origin.log().requests_for("/pay/7").filter_map(|record| record.whole).collect();
        assert_eq!(bodies.len(), if filtered { 1 } else { 2 }, "{level}, filtered: {filtered}");
    }
}

/// An `expired` refusal means that nothing was sent only where nothing stands between guard and filter.
///
/// The filter is frozen until the deadline has passed, and answers while the guard still waits.
#[tokio::test]
async fn only_direct_filter_refusal_is_conclusive() {
    for direct in [true, false] {
        let beside = GuardFixture::new().await;
        let filter = filter(beside.origin.open_listener("filtered")).start().await;
        let launch = beside.launch().await.with("/upstream/endpoint", format!("http://{}", filter.public));
        let launch = launch.with("/send_within", "300ms").with("/upstream/not_after", "enforced");
        let guard = launch.with("/upstream/direct", direct).start().await;
        filter.signal(Signal::STOP);
        let old = guard.begin(StampedRequest::new("a", 20).post("/old"));
        guard.wait_series_at_least("fencegate_guard_in_flight", &[], 1.0).await;
        sleep(Duration::from_millis(600)).await;
        filter.signal(Signal::CONT);
        let answer = old.answer().await;
        let next = guard.send(&StampedRequest::new("a", 30).post("/new")).await;
        if direct {
            assert_expired(&answer);
            assert_eq!(next.status, 200, "{next:?}");
        } else {
            assert_eq!((answer.status, answer.outcome()), (502, Some(FencingOutcome::Unknown)), "{answer:?}");
            assert_refused(&next, "in-doubt");
        }
        assert_eq!(beside.origin.count("/old"), 0);
    }
}

/// A gateway measures the offset between its own clock and that of a filter.
#[tokio::test]
async fn gateway_measures_filter_clock_offset() {
    let site = TestSite::fresh().await;
    let clock = SteppedClock::start();
    let filter = filter(site.origin.open_listener("filtered")).with_clock(&clock).start().await;
    let policy = site
        .policy("gw-1")
        .with("/upstreams/ledger/endpoints", json!([format!("http://{}", filter.public)]))
        .with("/upstreams/ledger/fencing", "none")
        .with("/upstreams/ledger/response_timeout", "1s")
        .with("/upstreams/ledger/not_after", "enforced");
    let gateway = Gateway::start(&policy).await;
    for ahead in [0, 30, -30] {
        clock.set_wall(ahead);
        // On one machine the boot clock decides, and a wrong wall clock does not matter.
        let answer = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((answer.status, answer.field("fencing-clock")), (200, None), "{answer:?}");
        let metrics = gateway.metrics().await;
        let offset = metrics.sum("fencegate_clock_offset_seconds", &["upstream=\"ledger\""]);
        assert!((offset - ahead as f64).abs() < 2.0, "{offset} instead of {ahead}");
        let error = metrics.sum("fencegate_clock_error_seconds", &["upstream=\"ledger\""]);
        assert!((error - 0.5).abs() < 1e-9, "{error}");
    }
    // For a request of another machine the wall clock decides.
    clock.set_wall(30);
    assert_expired(
        &filter.send(&TestRequest::post("/pay/7").field(FIELD, &wall_clock_deadline(5_000))).await,
    );
}
