//! The probes report a thread that hangs, by its name and without waiting for it, and SIGTERM ends the process all the
//! same. A pause of the whole process is not reported as a hang.
//!
//! A worker, the session thread or the lease thread makes `/live` and `/ready` fail. The store of a guard makes only
//! `/ready` fail, and the main thread makes neither fail.

use std::{
    fs,
    time::{Duration, Instant},
};

use fencegate_testkit::{child::Signal, wait::QUIET};
use fencegate_tests::{
    client::{ClientResponse, TestRequest},
    freeze,
    gateway::GatewayLaunch,
    guard::{FLOOR, GuardFixture, StampedRequest},
    leases::{LeaseTokens, acquire_request},
    process::TestProcess,
    site::TestSite,
};
use serde_json::json;

use super::clients::run;

/// The time for which the failpoint stops a thread.
const HANGS: Duration = Duration::from_secs(11);
/// The time after which `/live` reports a hung thread, and the interval of the checks.
const FOUND: Duration = Duration::from_secs(8);
/// The time from SIGTERM to the end: the drain, ten seconds, and slack for a busy machine.
const ENDS: Duration = Duration::from_secs(16);

fn text(answer: &ClientResponse) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Polls a path until it answers with this status, as a probe does, and returns the text.
async fn wait_probe_status(process: &TestProcess, path: &str, status: u16) -> String {
    let probed = async {
        loop {
            let asked = Instant::now();
            let answer = process.admin(path).await;
            assert!(asked.elapsed() < Duration::from_secs(2), "the probe waits for the thread");
            if answer.status == status {
                return text(&answer);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let told = tokio::time::timeout(FOUND, probed).await;
    told.unwrap_or_else(|_| panic!("{path} does not say {status} within {FOUND:?}"))
}

/// Asserts that both probes fail and name the thread, and succeed when it continues.
async fn assert_hang_reported(process: &TestProcess, thread: &str) {
    let said = wait_probe_status(process, "/live", 503).await;
    assert!(said.starts_with(thread) && said.contains("has not responded for"), "{said}");
    assert!(wait_probe_status(process, "/ready", 503).await.starts_with(thread));
    process.wait_line("that it hangs", |line| line.message().starts_with("FG0552: ")).await;
    assert_eq!(wait_probe_status(process, "/live", 200).await, "live\n");
}

/// Asserts that a hung thread is reported. `place`: the failpoint at which the thread stops. `asked`: the request that
/// takes the thread there.
async fn assert_thread_hang_noticed(place: &'static str, asked: TestRequest, thread: &str) {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = tokens.policy(&site, "gw-1").with("/zookeeper/session_timeout", "30s");
    let stands = format!("1*sleep({})", HANGS.as_millis());
    let gateway = GatewayLaunch::new(&policy).with_workers(2).failpoint(place, &stands).start().await;
    gateway.wait_ready().await;
    let request = gateway.begin(asked);
    gateway.wait_at_failpoint(place).await;
    assert_hang_reported(&gateway, thread).await;
    drop(request);
}

#[tokio::test]
async fn probes_name_hung_gateway_worker() {
    assert_thread_hang_noticed("before_upstream_write", TestRequest::post("/pay/7"), "worker ").await;
}

#[tokio::test]
async fn probes_name_hung_session_thread() {
    assert_thread_hang_noticed(
        "after_create_sent",
        TestRequest::post("/pay/7"),
        "the thread of the sessions",
    )
    .await;
}

#[tokio::test]
async fn probes_name_hung_lease_thread() {
    assert_thread_hang_noticed(
        "before_lease_taken",
        acquire_request(&json!({"keys": ["job/1"]})),
        "the thread of the leases",
    )
    .await;
}

#[tokio::test]
async fn probes_name_hung_guard_worker() {
    let beside = GuardFixture::new().await;
    let stands = format!("1*sleep({})", HANGS.as_millis());
    let guard = beside.launch().await.failpoint("guard_admitted", &stands).start().await;
    guard.wait_ready().await;
    let request = guard.begin(StampedRequest::new("a", FLOOR + 10).post("/work"));
    guard.wait_at_failpoint("guard_admitted").await;
    assert_hang_reported(&guard, "worker ").await;
    drop(request);
}

/// A guard whose store hangs is not ready, but live: a restart would make no disk faster, and would close the keys that
/// are at work.
#[tokio::test]
async fn hung_guard_store_unready_but_live() {
    let beside = GuardFixture::new().await;
    let stands = format!("1*sleep({})", HANGS.as_millis());
    let guard = beside.launch().await.failpoint("before_guard_commit", &stands).start().await;
    let request = guard.begin(StampedRequest::new("a", FLOOR + 10).post("/work"));
    guard.wait_at_failpoint("before_guard_commit").await;
    let said = wait_probe_status(&guard, "/ready", 503).await;
    assert!(said.starts_with("the thread of the store has not responded for"), "{said}");
    assert_eq!(guard.admin("/live").await.status, 200);
    drop(request);
    guard.wait_ready().await;
}

/// A main thread that is blocked by its file fails no probe: requests are served, and a restart could not read the file
/// either.
#[tokio::test]
async fn blocked_main_thread_fails_no_probe() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = GatewayLaunch::new(&policy).start().await;
    gateway.wait_ready().await;
    // A process that opens a pipe to read waits until another process opens it to write.
    let file = gateway.file();
    let pipe = gateway.file().with_extension("pipe");
    run("mkfifo", &[&pipe.display().to_string()]).await;
    fs::rename(&pipe, &file).expect("one folder");
    gateway.signal(Signal::HUP);
    gateway
        .wait_line("which", |line| line.message().starts_with("FG0552: the main thread has not responded"))
        .await;
    let hung = |thread: &'static str| {
        let gateway = &gateway;
        async move {
            let metrics = gateway.metrics().await;
            metrics.sum("fencegate_thread_hung_seconds_total", &[&format!("thread=\"{thread}\"")])
        }
    };
    assert!(hung("main").await > 0.0);
    for path in ["/live", "/ready"] {
        assert_eq!(gateway.admin(path).await.status, 200, "{path}");
    }
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    fs::write(&file, policy.to_string()).expect("the reload reads it");
    gateway.wait_line("that it turns", |line| line.message() == "the thread responds again").await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    for thread in ["requests", "sessions", "endpoints"] {
        assert_eq!(hung(thread).await, 0.0, "{thread}");
    }
}

/// A gateway with a hung worker ends by itself after SIGTERM, so that the service manager need not kill it.
#[tokio::test]
async fn sigterm_ends_gateway_with_hung_worker() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/listeners/public/timeouts/drain", "1s");
    let gateway = GatewayLaunch::new(&policy)
        .with_workers(2)
        .failpoint("before_upstream_write", "1*sleep(120000)")
        .start()
        .await;
    gateway.wait_ready().await;
    let request = gateway.begin(TestRequest::post("/pay/7"));
    gateway.wait_at_failpoint("before_upstream_write").await;
    gateway.signal(Signal::TERM);
    let ended = tokio::time::timeout(ENDS, gateway.exit()).await;
    assert_eq!(ended.expect("SIGTERM ends it").code(), Some(1), "not a clean end");
    gateway.wait_line("why", |line| line.message().contains("FG0552: worker ")).await;
    drop(request);
}

#[tokio::test]
async fn sigterm_ends_guard_with_hung_worker() {
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await.with("/listener/timeouts/drain", "1s");
    let guard = launch.failpoint("guard_admitted", "1*sleep(120000)").start().await;
    let request = guard.begin(StampedRequest::new("a", FLOOR + 10).post("/work"));
    guard.wait_at_failpoint("guard_admitted").await;
    guard.signal(Signal::TERM);
    let ended = tokio::time::timeout(ENDS, guard.exit()).await;
    assert_eq!(ended.expect("SIGTERM ends it").code(), Some(1), "not a clean end");
    drop(request);
}

#[tokio::test]
async fn process_pause_fails_no_probe() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    freeze::stop(gateway.pid());
    tokio::time::sleep(FOUND).await;
    freeze::resume(gateway.pid());
    let again = Instant::now();
    while again.elapsed() < QUIET {
        let live = gateway.admin("/live").await;
        assert_eq!(live.status, 200, "{}", text(&live));
    }
}
