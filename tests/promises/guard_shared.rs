//! Guards that share a PostgreSQL database decide as one guard: whichever of them gets a request, one exclusive tenure of
//! a key is admitted at a time, the newest, and what one of them leaves behind when it dies counts at the others.
//!
//! A guard waits for the dispatches of the other guards, and compares with their tokens. An operation is executed
//! once over all guards. A guard that was killed delays only the keys that it had at work. A frozen guard sends
//! nothing and ends. Gateways send to either guard, and avoid one that is frozen or does not reach its database.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use fencegate_testkit::{
    child::Signal,
    fault_proxy::FaultProxy,
    postgres::{self, TestDatabase},
    scratch,
    wait::QUIET,
};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, command, write_policy},
    guard::{FLOOR, Guard, GuardFixture, GuardLaunch, StampedRequest, assert_refused, operation_reference},
    guarded::{GuardedSite, run_operator},
    history::History,
    load::{LoadPlan, RunningLoad},
    origin::OriginAction,
    process::TestProcess,
    shared_database::{MAX_EXECUTION, SharedDatabase},
};

/// Two guards with one store, and how to start each.
struct GuardPair {
    beside: GuardFixture,
    _sharing: SharedDatabase,
    one: Guard,
    two: Guard,
}

async fn database() -> TestDatabase {
    tokio::task::spawn_blocking(postgres::fresh_database).await.expect("no panic")
}

impl GuardPair {
    async fn fresh() -> Self {
        Self::with_launch(|launch| launch).await
    }

    /// `change`: a change of the first guard's launch.
    async fn with_launch(change: impl FnOnce(GuardLaunch) -> GuardLaunch) -> Self {
        let fixture = GuardFixture::new().await;
        let sharing = SharedDatabase::new(&database().await.url());
        let one = sharing.init_first(fixture.uninitialized_launch(), FLOOR).await;
        let two = sharing.guard(fixture.uninitialized_launch());
        let one = change(one).start().await;
        let two = two.start().await;
        one.wait_ready().await;
        two.wait_ready().await;
        Self { beside: fixture, _sharing: sharing, one, two }
    }
}

/// A guard waits for what the other has admitted, compares with its tokens, and continues its tenure.
#[tokio::test]
async fn second_guard_waits_for_first() {
    let pair = GuardPair::fresh().await;
    let latch = pair.beside.origin.hold("/pay");
    let first = pair.one.begin(StampedRequest::new("a", 20).post("/pay"));
    pair.beside.origin.wait_for_request("/pay", 1).await;
    let next = pair.two.begin(StampedRequest::new("a", 30).post("/next"));
    pair.two.wait_watermark("a", 30).await;
    assert_eq!(
        pair.two.send(&StampedRequest::new("b", 25).post("/other")).await.status,
        200,
        "another key waits"
    );
    tokio::time::sleep(QUIET).await;
    assert_eq!(pair.beside.origin.count("/next"), 0, "two at once");
    latch.release();
    assert_eq!((first.answer().await.status, next.answer().await.status), (200, 200));
    for guard in [&pair.one, &pair.two] {
        assert_refused(
            &guard.send(&StampedRequest::new("a", 20).with_dispatch(2).post("/late")).await,
            "stale",
        );
        assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/late")).await, "duplicate");
    }
    // The tenure continues at either guard.
    assert_eq!(pair.one.send(&StampedRequest::new("a", 30).with_dispatch(2).post("/next")).await.status, 200);
    assert_eq!(pair.two.send(&StampedRequest::new("a", 30).with_dispatch(3).post("/next")).await.status, 200);
    assert_eq!(pair.beside.origin.count("/late"), 0);
    let seen = pair.one.admin_json("/api/v1/keys/a").await;
    assert_eq!(seen["write"], StampedRequest::new("a", 30).with_dispatch(3).token().to_string().as_str());
}

/// A guard that reports ready admits at once, although the store's time goes on with the heartbeats of guards, and stands
/// still between them.
#[tokio::test]
async fn ready_guard_admits_at_once() {
    let fixture = GuardFixture::new().await;
    let sharing = SharedDatabase::new(&database().await.url());
    let launch = sharing
        .guard(fixture.uninitialized_launch())
        .with("/upstream/response_timeout", "50ms")
        .with("/send_within", "50ms")
        .with("/max_execution", "2200ms");
    // The start is over before `max_execution`. By our clock the quarantine ends between two heartbeats; by the store's
    // time it ends with the second heartbeat.
    let guard = launch.init(FLOOR).start().await;
    TestProcess::wait_ready(&guard).await;
    let answer = guard.send(&StampedRequest::new("a", 20).post("/pay")).await;
    assert_ne!(answer.field("fencing-refusal"), Some("quarantine"), "{answer:?}");
}

/// A key in doubt at one guard is closed at the other until its time is over or an operator resolves it.
#[tokio::test]
async fn doubt_closes_key_at_both_guards() {
    let pair = GuardPair::fresh().await;
    pair.beside.origin.script("/broken", [OriginAction::Reset, OriginAction::Reset]);
    assert_eq!(pair.one.send(&StampedRequest::new("a", 20).post("/broken")).await.status, 502);
    let last = pair.beside.origin.wait_for_request("/broken", 1).await.whole.expect("read");
    // The answer is sent before the database has the outcome. Until then the other guard reports the key as at work.
    let mut early = pair.two.send(&StampedRequest::new("a", 30).post("/early")).await;
    while early.reason() == "busy" {
        early = pair.two.send(&StampedRequest::new("a", 30).post("/early")).await;
    }
    assert_refused(&early, "in-doubt");
    let next = pair.two.send(&StampedRequest::new("a", 31).post("/next")).await;
    if next.status == 200 {
        let next = pair.beside.origin.wait_for_request("/next", 1).await.arrived;
        assert!(next >= last + MAX_EXECUTION, "admitted after {:?}", next - last);
    } else {
        assert_refused(&next, "in-doubt");
    }
    // An operator resolves the doubt at either guard.
    assert_eq!(pair.one.send(&StampedRequest::new("b", 40).post("/broken")).await.status, 502);
    let token = StampedRequest::new("b", 40).token().to_string();
    let admin = pair.two.admin.to_string();
    let shown = run_operator(&["guard", "show", "--admin", &admin]).await;
    assert!(shown.contains(&token), "{shown}");
    run_operator(&["guard", "resolve", &token, "--as", "done", "--admin", &admin]).await;
    assert_eq!(pair.one.send(&StampedRequest::new("b", 41).post("/next")).await.status, 200);
    assert_eq!(pair.beside.origin.count("/early"), 0);
}

/// A killed guard holds up only the keys that it had at work, and those for as long as a request may run.
#[tokio::test]
async fn killed_guard_holds_active_keys_only() {
    let pair = GuardPair::fresh().await;
    assert_eq!(pair.one.send(&StampedRequest::new("rests", 20).post("/pay")).await.status, 200);
    let latch = pair.beside.origin.hold("/held");
    let lost = pair.one.begin(StampedRequest::new("a", 20).post("/held"));
    let last = pair.beside.origin.wait_for_request("/held", 1).await.whole.expect("read");
    pair.one.signal(Signal::KILL);
    let killed = Instant::now();
    assert_eq!(pair.two.send(&StampedRequest::new("rests", 30).post("/pay")).await.status, 200);
    assert!(killed.elapsed() < Duration::from_secs(1), "handed over after {:?}", killed.elapsed());
    let epochs = 30..;
    for epoch in epochs {
        let next = pair.two.send(&StampedRequest::new("a", epoch).post("/next")).await;
        if next.status == 200 {
            break;
        }
        assert!(["busy", "in-doubt"].contains(&next.reason().as_str()), "{next:?}");
        assert!(killed.elapsed() < 10 * MAX_EXECUTION, "closed for ever");
    }
    let next = pair.beside.origin.wait_for_request("/next", 1).await.arrived;
    assert!(next >= last + MAX_EXECUTION, "{:?} too early", last + MAX_EXECUTION - next);
    drop(lost);
    latch.release();
    // The guard comes back as a new instance, and decides with what happened meanwhile.
    let one = pair.one.kill().await.start().await;
    assert_refused(&one.send(&StampedRequest::new("a", 20).with_dispatch(2).post("/late")).await, "stale");
    assert_eq!(one.send(&StampedRequest::new("rests", 40).post("/pay")).await.status, 200);
    assert_eq!(pair.beside.origin.count("/late"), 0);
}

/// Longer than the time after which the other guard counts a silent guard as dead.
const FROZEN: Duration = Duration::from_secs(8);

/// A guard that is frozen until the other counts it as dead sends nothing, and ends.
#[tokio::test]
async fn frozen_guard_sends_nothing_and_ends() {
    let pair = GuardPair::with_launch(|one| {
        one.with("/send_within", "20s")
            .with("/max_execution", "30s")
            .failpoint("guard_admitted", "1*sleep(600)")
    })
    .await;
    let pending = pair.one.begin(StampedRequest::new("a", 20).post("/late"));
    pair.one.wait_at_failpoint("guard_admitted").await;
    pair.one.signal(Signal::STOP);
    // The test needs real time to pass: a stopped process gives no event.
    tokio::time::sleep(FROZEN).await;
    assert_eq!(pair.two.send(&StampedRequest::new("b", 20).post("/other")).await.status, 200);
    pair.one.signal(Signal::CONT);
    let answer = pending.result().await;
    if let Ok(answer) = answer {
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{answer:?}");
    }
    assert!(!pair.one.exit().await.success(), "a guard that was taken for dead ends itself");
    assert!(pair.one.log().contains("declared this guard dead"), "{}", pair.one.log());
    assert_eq!(pair.beside.origin.count("/late"), 0, "sent by a guard that others held for dead");
}

/// An operation runs once over all guards of a store, and each of them replays it.
#[tokio::test]
async fn operation_runs_once_over_guards() {
    let pair = GuardPair::fresh().await;
    // Both guards get the operation at the same moment. The later request gets the outcome of the earlier one.
    let both = [&pair.one, &pair.two].into_iter().zip([20, 21]);
    let requests: Vec<_> = both
        .map(|(guard, epoch)| guard.begin(StampedRequest::new("a", epoch).once(1).post("/pay")))
        .collect();
    let mut outcomes = Vec::new();
    for pending in requests {
        let answer = pending.answer().await;
        outcomes.push((answer.status, answer.outcome()));
    }
    assert!(outcomes.contains(&(200, Some(FencingOutcome::Done))), "{outcomes:?}");
    assert_eq!(pair.beside.origin.count("/pay"), 1, "{outcomes:?}");
    for (guard, epoch) in [(&pair.one, 30), (&pair.two, 31)] {
        let again = guard.send(&StampedRequest::new("a", epoch).once(1).post("/pay")).await;
        assert_eq!((again.status, again.outcome()), (200, Some(FencingOutcome::Replayed)), "{again:?}");
    }
    assert_eq!(pair.beside.origin.count("/pay"), 1);
}

/// An operation that a dead guard left without an outcome can be resolved by an operator at the other guard.
#[tokio::test]
async fn dead_guards_operation_needs_operator() {
    let pair = GuardPair::fresh().await;
    let latch = pair.beside.origin.hold("/pay");
    let lost = pair.one.begin(StampedRequest::new("a", 20).once(7).post("/pay"));
    pair.beside.origin.wait_for_request("/pay", 1).await;
    let one = pair.one.kill().await;
    drop(lost);
    latch.release();
    let reference = operation_reference(7);
    let unknown = async {
        loop {
            let shown = pair.two.admin_json("/api/v1/operations").await;
            if shown.to_string().contains(&reference) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    fencegate_testkit::wait::wait_until("the operation of a dead guard", unknown, || pair.two.log()).await;
    assert_refused(
        &pair.two.send(&StampedRequest::new("b", 30).once(7).post("/pay")).await,
        "idempotency-mismatch",
    );
    let admin = pair.two.admin.to_string();
    run_operator(&["guard", "resolve", &reference, "--as", "done", "--admin", &admin]).await;
    let one = one.start().await;
    let repeat = one.send(&StampedRequest::new("a", 40).once(7).post("/pay")).await;
    assert_eq!(repeat.reason(), "already-done", "{repeat:?}");
    assert_eq!(pair.beside.origin.count("/pay"), 1);
}

/// Gateways send to either guard of a store, and one that is killed stops none of them.
#[tokio::test]
async fn killed_guard_stops_no_gateway() {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 60;
    let guarded = GuardedSite::fresh().await;
    let sharing = SharedDatabase::new(&database().await.url());
    let [one, two] = guarded.launch_pair(&sharing).await;
    let (one, two) = tokio::join!(one.start(), two.start());
    let addresses = [one.public, two.public];
    let reversed = [addresses[1], addresses[0]];
    let (first, second) = tokio::join!(
        guarded.gateway_through("first", &addresses),
        guarded.gateway_through("second", &reversed)
    );
    let plan = LoadPlan {
        gateways: [&first, &second].map(|gateway: &Gateway| gateway.public).into(),
        paths: (0..4).map(|n| format!("/pay/{n}")).collect(),
        clients: CLIENTS,
        requests: REQUESTS,
        pause: Duration::from_millis(15),
    };
    let load = RunningLoad::start("load", &plan);
    guarded.site.origin.wait_for("some requests", |log| (log.records.len() > 60).then_some(())).await;
    for guard in [&one, &two] {
        let through = admitted(guard).await;
        assert!(through > 5.0, "requests go through both: {through}");
    }
    one.signal(Signal::KILL);
    let killed = guarded.site.origin.log().records.len();
    let results = load.end().await;
    let mut history = History::from_log(&guarded.site.origin.log());
    let done = results.iter().filter(|result| {
        result.answer.as_ref().is_ok_and(|answer| answer.outcome() == Some(FencingOutcome::Done))
    });
    let done = done.count();
    results.iter().for_each(|result| history.record_answer(result.id.clone(), result.answer.as_ref().ok()));
    history.assert_holds();
    assert!(done > CLIENTS * REQUESTS / 2, "{done} of {}", CLIENTS * REQUESTS);
    let tenures = history.tenures();
    assert!(tenures > 10, "{tenures} tenures hand nothing over");
    assert!(guarded.site.origin.log().records.len() > killed + 50, "nothing went on");
    drop(two);
}

/// Longer than a request takes. A request without an answer after this time counts as hung.
const HANGS: Duration = Duration::from_millis(500);

/// One gateway before two guards, with idle connections to both of them.
async fn start_gateway_for_both(guarded: &GuardedSite, [one, two]: [&Guard; 2]) -> Gateway {
    one.wait_ready().await;
    two.wait_ready().await;
    let gateway = guarded.gateway_through("gateway", &[one.public, two.public]).await;
    for n in 0..16 {
        assert_eq!(gateway.send(&TestRequest::post(&format!("/pay/before-{n}"))).await.status, 200);
    }
    gateway
}

async fn admitted(guard: &Guard) -> f64 {
    guard.metrics().await.sum("fencegate_guard_decisions_total", &["decision=\"admit"])
}

/// The time until ten requests in a row, each of another key, are served at once, or until twice [`LEFT`] has passed.
async fn time_until_serving(gateway: &Gateway) -> Duration {
    let began = Instant::now();
    let mut in_a_row = 0;
    let mut hung = 0;
    for n in 0.. {
        let request = TestRequest::post(&format!("/pay/other-{n}"));
        match tokio::time::timeout(HANGS, gateway.send(&request)).await {
            Ok(answer) if answer.status == 200 => in_a_row += 1,
            _ => (in_a_row, hung) = (0, hung + 1),
        }
        if in_a_row == 10 || began.elapsed() > 2 * LEFT {
            break;
        }
    }
    println!("others are served after {:?}; {hung} hung", began.elapsed());
    began.elapsed()
}

/// Longer than the second within which a silent guard is left, because the machine may be busy.
const LEFT: Duration = Duration::from_secs(3);

/// A guard that stands still keeps what was sent to it, and new requests go to the other.
#[tokio::test]
async fn silent_guard_keeps_sent_requests_only() {
    let guarded = GuardedSite::fresh().await;
    let sharing = SharedDatabase::new(&database().await.url());
    let [one, two] = guarded.launch_pair(&sharing).await;
    let (one, two) = tokio::join!(one.start(), two.start());
    let gateway = start_gateway_for_both(&guarded, [&one, &two]).await;
    two.signal(Signal::STOP);
    // One of these two requests goes to the guard that is stopped, and hangs.
    let hang = ["/pay/first", "/pay/second"].map(|path| gateway.begin(TestRequest::post(path)));
    let took = time_until_serving(&gateway).await;
    assert!(took < LEFT, "{took:?}");
    two.signal(Signal::CONT);
    for pending in hang {
        let answer = pending.answer().await;
        assert_eq!(answer.status, 200, "it was not given up: {answer:?}");
    }
    gateway.wait_series("fencegate_upstream_endpoints", &["state=\"silent\""], 0.0).await;
    let before = admitted(&two).await;
    for n in 0..8 {
        assert_eq!(gateway.send(&TestRequest::post(&format!("/pay/after-{n}"))).await.status, 200);
    }
    assert!(admitted(&two).await > before, "it is used again");
}

/// A gateway leaves a guard that does not reach its database for one that does.
#[tokio::test]
async fn guard_without_database_is_avoided() {
    let guarded = GuardedSite::fresh().await;
    let database = database().await;
    let proxy = FaultProxy::start(database.address);
    let sharing = SharedDatabase::new(&database.url());
    let [one, two] = guarded.launch_pair(&sharing).await;
    let away = SharedDatabase::new(&database.url_at(&[proxy.address]));
    let two = two.with("/store/postgres/url_file", away.url_file().display().to_string());
    let (one, two) = tokio::join!(one.start(), two.start());
    let gateway = start_gateway_for_both(&guarded, [&one, &two]).await;
    proxy.set_silent(true);
    let took = time_until_serving(&gateway).await;
    assert!(took < LEFT, "{took:?}");
}

/// A shared store is made once, and a guard without a usable database reports that and no password.
#[tokio::test]
async fn store_is_initialized_once() {
    let fixture = GuardFixture::new().await;
    let database = database().await;
    let sharing = SharedDatabase::new(&database.url());
    let launch = sharing.guard(fixture.uninitialized_launch());
    let stderr = |output: std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let missing = launch.expect_start_failure().await;
    assert!(!missing.status.success());
    let missing = stderr(missing);
    assert!(missing.contains("FG0540") && missing.contains("--init"), "{missing}");
    let launch = sharing.init_first(fixture.uninitialized_launch(), FLOOR).await;
    let again = stderr(launch.clone().init(FLOOR).expect_start_failure().await);
    assert!(again.contains("FG0540") && again.contains("already"), "{again}");
    sharing.set_url("postgresql://somebody:a-secret-word@127.0.0.1:1/nothing\n and more");
    let bad = stderr(launch.with_debug_log().expect_start_failure().await);
    assert!(bad.contains("FG0540") && !bad.contains("a-secret-word"), "{bad}");
}

/// The password of the database is on no page of the admin listener and not in the debug log.
#[tokio::test]
async fn database_password_is_never_shown() {
    const PASSWORD: &str = "canary-of-a-database-9c41d7";
    let fixture = GuardFixture::new().await;
    let url = database().await.url().replacen('@', &format!(":{PASSWORD}@"), 1);
    let sharing = SharedDatabase::new(&url);
    let guard =
        sharing.init_first(fixture.uninitialized_launch(), FLOOR).await.with_debug_log().start().await;
    guard.wait_ready().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 20).post("/pay")).await.status, 200);
    for page in ["/", "/metrics", "/api/v1/operations", "/api/v1/keys/a", "/api/v1/refusals"] {
        let answer = TestRequest::get(page).send_to(guard.admin).await.expect("it answers");
        let shown = format!("{:?} {}", answer.fields, String::from_utf8_lossy(&answer.body));
        assert!(!shown.contains(PASSWORD), "{page} tells it:\n{shown}");
    }
    assert!(!guard.log().contains(PASSWORD), "the log tells it:\n{}", guard.log());
}

/// The output of `check --online` for a gateway that reaches its service through these guards.
async fn run_check_online(guarded: &GuardedSite, guards: &[SocketAddr]) -> String {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &guarded.policy_through("gateway", guards).to_string());
    let output = command(&["check", &file.display().to_string(), "--online"]).await.expect("started");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// `check --online` distinguishes guards that share a store from guards with a store each.
#[tokio::test]
async fn check_online_detects_separate_stores() {
    let guarded = GuardedSite::fresh().await;
    let sharing = SharedDatabase::new(&database().await.url());
    let [one, two] = guarded.launch_pair(&sharing).await;
    let (one, two) = tokio::join!(one.start(), two.start());
    one.wait_ready().await;
    two.wait_ready().await;
    let both = run_check_online(&guarded, &[one.public, two.public]).await;
    let announced = one.send(&TestRequest::get("/.fencegate/v1/guard")).await;
    let announced: serde_json::Value = serde_json::from_slice(&announced.body).expect("JSON");
    let store = announced["store"].as_str().expect("a name");
    assert!(both.contains("2 guards share one store"), "{both}");
    assert!(both.matches(&format!("shared store {store}")).count() == 2, "{store}: {both}");
    let alone = run_check_online(&guarded, &[one.public]).await;
    assert!(alone.contains("shared store") && !alone.contains("share one store"), "{alone}");
    // This guard has a store in a file of its own.
    let other = guarded.guard().await;
    let apart = run_check_online(&guarded, &[one.public, other.public]).await;
    assert!(apart.contains("have different stores") && !apart.contains("share one store"), "{apart}");
}

/// A guard on a copy of the store has the name of the first guard, and a gateway sends to neither.
#[tokio::test]
async fn copied_database_gets_no_request() {
    let guarded = GuardedSite::fresh().await;
    let database = database().await;
    let [sharing, copied] = [&database, &database].map(|database| SharedDatabase::new(&database.url()));
    let [one, _] = guarded.launch_pair(&sharing).await;
    let copy = format!("{}_copy", database.name);
    // No other connection may have the database open meanwhile: the guard that made the store has ended.
    database.run(&format!("CREATE DATABASE {copy} TEMPLATE {}", database.name));
    copied.set_url(&database.url().replace(&database.name, &copy));
    let other = copied.guard(
        GuardLaunch::for_upstream(guarded.site.origin.open_listener("guard")).for_ensemble(&guarded.ensemble),
    );
    let (one, other) = tokio::join!(one.start(), other.start());
    one.wait_ready().await;
    other.wait_ready().await;
    let gateway = guarded.gateway_through("gateway", &[one.public, other.public]).await;
    for _ in 0..4 {
        let answer = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!(
            (answer.status, answer.outcome()),
            (503, Some(FencingOutcome::NotDispatched)),
            "{answer:?}"
        );
        assert_eq!(answer.reason(), "guard-split", "{answer:?}");
    }
    assert_eq!(guarded.site.origin.count("/pay/7"), 0);
}
