//! For a key in doubt, only time counts in which the endpoint that has the request was seen to run: a service that stands
//! still executes nothing, and begins what it was sent when it runs again.
//!
//! The service is a process that is stopped with a request. Its key stays closed until the endpoint that has the
//! request was seen to run for `max_execution`, whatever another endpoint reports, also at guards that share a store.
//! When another instance reports that it does not know the operation, the operation is not executed again. Time in
//! which guard and service sleep together does not count.

use std::time::{Duration, Instant};

use fencegate_policies::token::FencingToken;
use fencegate_testkit::{child::Signal, postgres, wait::wait_until};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    guard::{FLOOR, Guard, GuardLaunch, StampedRequest, assert_refused},
    ledger::Ledger,
    origin::{Origin, OriginAction, OriginReply},
    shared_database::SharedDatabase,
};
use serde_json::{Value, json};

/// The work time of one execution.
const WORK: &str = "400ms";

async fn service() -> Ledger {
    // The service compares no tokens: only the guard keeps its executions apart.
    Ledger::start_with(&["--compare", "off", "--work-time", WORK]).await
}

/// A guard with short times before these endpoints.
async fn launch(services: &[&Ledger]) -> GuardLaunch {
    let endpoints: Vec<_> = services.iter().map(|one| format!("http://{}", one.address)).collect();
    let launch = GuardLaunch::for_upstream(services[0].address).init_with_floor(FLOOR).await;
    let launch = with_short_times(launch);
    match &endpoints[..] {
        [_] => launch,
        several => launch.with("/upstream/endpoint", Value::Null).with("/upstream/endpoints", json!(several)),
    }
}

fn with_short_times(launch: GuardLaunch) -> GuardLaunch {
    launch
        .with("/max_execution", "2s")
        .with("/send_within", "500ms")
        .with("/upstream/response_timeout", "1s")
        .with("/settle", "100ms")
}

fn with_health_check(launch: GuardLaunch) -> GuardLaunch {
    // Three failed checks eject an endpoint. The only endpoint of a service still gets requests.
    launch.with("/upstream/health", json!({"path": "/live", "interval": "1s", "timeout": "500ms"}))
}

fn debit_request(key: &str, epoch: u64) -> TestRequest {
    let operation = format!("{{\"operation\": \"{key}-{epoch}\", \"amount\": 1}}");
    let request =
        TestRequest::post(&format!("/v1/accounts/{key}/debit")).field("content-type", "application/json");
    StampedRequest::new(key, epoch).apply_to(request.body(operation))
}

/// Asserts that the executions have these epochs in this order, and that no two overlap.
async fn assert_serial_executions(service: &Ledger, epochs: &[u64]) {
    let all = service.executions().await;
    let epoch =
        |one: &Value| FencingToken::parse(one["token"].as_str().expect("stamped")).expect("a token").number();
    assert_eq!(all.iter().map(epoch).collect::<Vec<_>>(), epochs, "{all:#?}");
    let time = |one: &Value, name: &str| one[name].as_i64().expect("a time");
    for pair in all.windows(2) {
        assert!(time(&pair[0], "end_ns") <= time(&pair[1], "begin_ns"), "they ran together: {pair:#?}");
    }
}

async fn wait_admitted(guard: &Guard, key: &str, from: u64) -> u64 {
    let opened = async {
        let mut epoch = from;
        loop {
            if guard.send(&debit_request(key, epoch)).await.status == 200 {
                return epoch;
            }
            epoch += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("the key to open", opened, || guard.log()).await
}

/// A key in doubt stays closed for as long as the service that has the request stands still.
#[tokio::test]
async fn key_stays_closed_while_service_frozen() {
    let service = service().await;
    let guard = with_health_check(launch(&[&service]).await).start().await;
    service.signal(Signal::STOP);
    let lost = guard.send(&debit_request("a", 20)).await;
    assert_eq!((lost.status, lost.reason().as_str()), (504, "outcome-unknown"), "{lost:?}");
    guard.wait_line("that no time passes", |line| line.message().starts_with("guard.endpoint_silent")).await;
    // Twice the time after which a request counts as over if its endpoint runs.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_refused(&guard.send(&debit_request("a", 21)).await, "in-doubt");
    guard.wait_gauge("fencegate_guard_in_doubt_not_seen", 1.0).await;
    let open = &guard.admin_json("/api/v1/operations").await["operations"][0];
    assert_eq!(
        (&open["endpoint"], &open["endpoint_silent"]),
        (&json!(service.address.to_string()), &json!(true))
    );
    service.signal(Signal::CONT);
    let next = wait_admitted(&guard, "a", 22).await;
    assert_serial_executions(&service, &[20, next]).await;
    guard.wait_gauge("fencegate_guard_in_doubt_not_seen", 0.0).await;
}

/// With a shared store, as with a store of its own, the guard that has sent the request keeps the key closed, at all
/// guards, while the service stands still.
#[tokio::test]
async fn shared_guards_keep_key_closed() {
    let service = service().await;
    let database = tokio::task::spawn_blocking(postgres::fresh_database).await.expect("no panic");
    let sharing = SharedDatabase::new(&database.url());
    let one = sharing.init_first(GuardLaunch::for_upstream(service.address), FLOOR).await;
    let two = sharing.guard(GuardLaunch::for_upstream(service.address));
    let one = with_health_check(with_short_times(one)).start().await;
    let two = with_health_check(with_short_times(two)).start().await;
    one.wait_ready().await;
    two.wait_ready().await;
    service.signal(Signal::STOP);
    let lost = one.send(&debit_request("a", 20)).await;
    assert_eq!((lost.status, lost.reason().as_str()), (504, "outcome-unknown"), "{lost:?}");
    one.wait_line("that no time passes", |line| line.message().starts_with("guard.endpoint_silent")).await;
    // Longer than the times that the database records: `max_execution`, and the time after which a guard counts as
    // dead.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_refused(&two.send(&debit_request("a", 21)).await, "in-doubt");
    one.wait_gauge("fencegate_guard_in_doubt_not_seen", 1.0).await;
    let open = &one.admin_json("/api/v1/operations").await["operations"][0];
    assert_eq!(open["endpoint_silent"], json!(true), "{open}");
    service.signal(Signal::CONT);
    let next = wait_admitted(&two, "a", 22).await;
    assert_serial_executions(&service, &[20, next]).await;
    one.wait_gauge("fencegate_guard_in_doubt_not_seen", 0.0).await;
}

/// A good health check of another endpoint opens no key in doubt.
#[tokio::test]
async fn healthy_other_endpoint_opens_nothing() {
    let one = service().await;
    let two = service().await;
    let guard = with_health_check(launch(&[&one, &two]).await).start().await;
    one.signal(Signal::STOP);
    // Requests are sent to the endpoints in turn: one of these two goes to the endpoint that is stopped.
    let mut lost = None;
    for key in ["a", "b"] {
        if guard.send(&debit_request(key, 20)).await.status == 504 {
            lost = Some(key);
        }
    }
    let key = lost.expect("one of them was lost");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_refused(&guard.send(&debit_request(key, 21)).await, "in-doubt");
    assert_eq!(guard.send(&debit_request("c", 21)).await.status, 200, "the other endpoint serves");
    one.signal(Signal::CONT);
    wait_admitted(&guard, key, 22).await;
    let begun = one.executions().await;
    let first = begun.first().expect("it went on");
    assert_eq!(FencingToken::parse(first["token"].as_str().expect("stamped")).expect("a token").number(), 20);
}

/// Two instances of a service: a frozen process that has the request of an operation in its socket, and a process that
/// answers every probe and every request with 404.
struct FrozenInstanceFixture {
    frozen: Ledger,
    other: Origin,
    guard: Guard,
    /// The path to which the operation was sent.
    path: String,
    key: &'static str,
    number: u64,
}

impl FrozenInstanceFixture {
    /// `closes`: whether `not done` is configured as final. `health`: whether the endpoint of a request in doubt is
    /// checked.
    async fn new(closes: bool, health: bool) -> Self {
        let frozen = service().await;
        let other = Origin::start();
        other.set_default_action(OriginAction::now(OriginReply::ok().status(404)));
        let endpoints =
            [frozen.address, other.open_listener("other")].map(|address| format!("http://{address}"));
        let probe = json!({"path": "/ops/{operation}", "done": [200], "not_done": [404], "timeout": "300ms"});
        let launch = GuardLaunch::for_upstream(frozen.address).init_with_floor(FLOOR).await;
        let mut launch = with_short_times(launch)
            .with("/upstream/endpoint", Value::Null)
            .with("/upstream/endpoints", json!(endpoints))
            .with("/journal/probe", probe)
            .with("/max_execution", "1s")
            .with("/upstream/response_timeout", "500ms");
        if closes {
            launch = launch.with("/journal/probe/closes", true);
        }
        if health {
            let status = json!([200, 404]);
            let health = json!({"path": "/live", "interval": "1s", "timeout": "500ms", "status": status});
            launch = launch.with("/upstream/health", health);
        }
        let guard = launch.start().await;
        frozen.freeze();
        // Requests are sent to the endpoints in turn: one of these two goes to the frozen process.
        for (key, number) in [("a", 1), ("b", 2)] {
            if guard.send(&operation(key, number, 20)).await.status == 504 {
                let path = format!("/v1/accounts/{key}/debit");
                return Self { frozen, other, guard, path, key, number };
            }
        }
        panic!("neither was lost: {}", guard.log());
    }

    /// Asserts that repeats of the operation stay unknown, for longer than it can run by the times of the guard.
    async fn assert_stays_unknown(&self) {
        let began = Instant::now();
        for epoch in 30.. {
            let repeat = self.guard.send(&operation(self.key, self.number, epoch)).await;
            assert_eq!(self.other.count(&self.path), 0, "it ran again: {repeat:?}");
            assert_eq!((repeat.status, repeat.outcome()), (409, Some(FencingOutcome::Unknown)), "{repeat:?}");
            // The guard may be probing by itself at the same moment.
            if repeat.reason() != "in-progress" {
                assert_refused(&repeat, "outcome-unknown");
                if began.elapsed() > Duration::from_secs(4) {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn asked_elsewhere(&self) -> usize {
        self.other.count(&format!("/ops/op-{}", self.number))
    }

    /// Asserts that the frozen process executes the request in its socket once after it is resumed.
    async fn assert_executes_once_resumed(self) {
        self.frozen.signal(Signal::CONT);
        let done = async { while self.frozen.executions().await.is_empty() {} };
        wait_until("the request to be done", done, || self.guard.log()).await;
        assert_eq!(self.frozen.executions().await.len(), 1);
        assert_eq!(self.other.count(&self.path), 0, "it ran twice");
    }
}

fn operation(key: &str, number: u64, epoch: u64) -> TestRequest {
    let body = format!("{{\"operation\": \"op-{number}\", \"amount\": 1}}");
    let request =
        TestRequest::post(&format!("/v1/accounts/{key}/debit")).field("content-type", "application/json");
    StampedRequest::new(key, epoch).once(number).apply_to(request.body(body))
}

/// A `not done` of another instance runs nothing again while the one that has the request stands still: the other
/// instance has no trace of what the first is about to do, and closes no name.
#[tokio::test]
async fn other_instances_not_done_repeats_nothing() {
    let halves = FrozenInstanceFixture::new(false, false).await;
    halves.assert_stays_unknown().await;
    assert!(halves.asked_elsewhere() > 0, "not exercised: {}", halves.guard.log());
    halves.assert_executes_once_resumed().await;
}

/// Even a `not done` that is configured as final is accepted only from the instance that has the request, and this
/// instance answers nothing while it stands still.
#[tokio::test]
async fn final_not_done_needs_dispatched_instance() {
    let halves = FrozenInstanceFixture::new(true, true).await;
    halves.assert_stays_unknown().await;
    assert_eq!(halves.asked_elsewhere(), 0);
    halves.assert_executes_once_resumed().await;
}

/// Time for which the guard itself was frozen does not count, also without health checks. A machine that sleeps stops
/// guard and service, and its clock goes on.
#[tokio::test]
async fn guards_own_sleep_does_not_count() {
    let service = service().await;
    let guard = launch(&[&service]).await.with("/settle", "5s").start().await;
    service.signal(Signal::STOP);
    let lost = guard.begin(debit_request("a", 20));
    let begun = async {
        while guard.metrics().await.sum("fencegate_guard_in_flight", &[]) < 1.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    wait_until("the request to be let in", begun, || guard.log()).await;
    // After this time the bytes are in the kernel of the service's machine.
    tokio::time::sleep(Duration::from_millis(200)).await;
    guard.signal(Signal::STOP);
    let next = guard.begin(debit_request("a", 21));
    tokio::time::sleep(Duration::from_secs(4)).await;
    guard.signal(Signal::CONT);
    service.signal(Signal::CONT);
    drop(lost.result().await);
    let next = next.answer().await;
    // It depends on the rest of the doubt whether the request waits for its end or is refused.
    let epoch = if next.status == 200 {
        21
    } else {
        assert_refused(&next, "in-doubt");
        wait_admitted(&guard, "a", 22).await
    };
    assert_serial_executions(&service, &[20, epoch]).await;
    guard.wait_line("that it slept", |line| line.message().starts_with("guard.slept")).await;
}
