//! Programs that take locks of Curator or kazoo share one queue with gateways: they hold the lock in the order of arrival
//! and never at the same time, also when either side is killed or frozen.

mod foreign;
mod moving;

use std::{
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use fencegate::demo::child::Signal;
use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, PolicyFile, command},
    history::History,
    load::{LoadPlan, RunningLoad},
    policy::TestPolicy,
    scratch,
    site::TestSite,
    wait::wait_until,
};
use serde_json::Value;
use tempfile::TempDir;

use self::foreign::{ForeignLock, ForeignProgram, lock_path};

/// The number of turns of each side.
const TURNS: usize = 200;
const CLIENTS: usize = 6;

fn policy(site: &TestSite, name: &str, layout: &str) -> TestPolicy {
    let path = format!("/beside{}/locks/{{path.account}}", site.root);
    site.policy(name)
        .with("/routes/0/fence/layout", layout)
        .with("/routes/0/fence/lock_path", path)
        .with("/routes/0/fence/wait", "20s")
}

fn request_count(site: &TestSite, is: impl Fn(&str) -> bool) -> usize {
    site.origin.log().records.iter().filter(|record| is(&record.gateway)).count()
}

fn is_gateway(door: &str) -> bool {
    door.starts_with("gw-")
}

fn load(gateways: &[&Gateway]) -> LoadPlan {
    LoadPlan { clients: CLIENTS, ..LoadPlan::payments(gateways, 1, CLIENTS, 100_000) }
}

/// All requests go to one account.
fn on_one_account(plan: LoadPlan) -> LoadPlan {
    LoadPlan { paths: vec!["/pay/7".into()], ..plan }
}

/// Runs two gateways and two programs until each side has had its turns.
async fn assert_queue_together(
    layout: &str,
    kinds: [ForeignLock; 2],
    hold: fn(TestPolicy) -> TestPolicy,
    readers: bool,
) {
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(2));
    let sharing = |policy: TestPolicy| {
        if !readers {
            return hold(policy);
        }
        let both = policy.with("/routes/0/match/methods", serde_json::json!(["POST", "GET"]));
        hold(both.with("/routes/0/fence/mode", "by-method"))
    };
    let policies = ["gw-1", "gw-2"].map(|name| sharing(policy(&site, name, layout)));
    let (one, two) = Gateway::start_both(&policies[0], &policies[1]).await;
    let programs = [
        ForeignProgram::start(&site, kinds[0], "one", 0).await,
        ForeignProgram::start(&site, kinds[1], "two", 0).await,
    ];

    let plan = on_one_account(load(&[&one, &two]));
    let writing = RunningLoad::start("writing", &plan);
    let reading = readers.then(|| RunningLoad::start_with(TestRequest::get, "reading", &plan));
    let theirs = |site: &TestSite| request_count(site, |door| !is_gateway(door));
    for turns in (TURNS / 4..=TURNS).step_by(TURNS / 4) {
        site.origin
            .wait_for(&format!("{turns} turns of either side"), |log| {
                let ours = log.records.iter().filter(|record| is_gateway(&record.gateway)).count();
                (ours >= turns && log.records.len() - ours >= turns).then_some(())
            })
            .await;
    }
    drop(programs);
    let mut results = writing.stop().await;
    if let Some(reading) = reading {
        results.extend(reading.stop().await);
    }

    // Growing tokens show that both sides are served in the order in which the lock nodes were made.
    let history = History::from_log(&site.origin.log()).with_results(&results);
    history.assert_holds();
    assert!(results.iter().all(|result| result.answer.as_ref().is_ok_and(|answer| answer.status == 200)));
    assert!(history.hand_overs() >= TURNS / 4, "not exercised: {} hand-overs", history.hand_overs());
    assert_fair(&history, theirs(&site));
}

/// Between two turns of a program, every client of the gateways may have one turn. Clients and program queue again at
/// once.
fn assert_fair(history: &History, theirs: usize) {
    let mut order: Vec<_> = history.executions.iter().collect();
    order.sort_by_key(|execution| execution.began);
    let first = order.iter().position(|execution| !is_gateway(&execution.gateway)).expect("turns");
    let last = order.iter().rposition(|execution| !is_gateway(&execution.gateway)).expect("turns");
    let ours = order[first..last].iter().filter(|execution| is_gateway(&execution.gateway)).count();
    assert!(ours <= 2 * CLIENTS * theirs, "{ours} turns of gateways beside {theirs} of programs");
    assert!(theirs <= 2 * ours, "{theirs} turns of programs beside {ours} of gateways");
}

/// Gateways and programs with Curator's mutex stand in one queue: both sides get their turns, and nothing overlaps.
#[tokio::test]
async fn gateways_share_queue_with_curator_mutex() {
    assert_queue_together("curator-mutex", [ForeignLock::CuratorMutex; 2], |policy| policy, false).await;
}

/// Gateways and programs with Curator's read and write locks stand in one queue: both sides get turns, nothing
/// overlaps.
#[tokio::test]
async fn gateways_share_queue_with_curator_rw() {
    assert_queue_together(
        "curator-rw",
        [ForeignLock::CuratorWrite, ForeignLock::CuratorRead],
        |policy| policy,
        true,
    )
    .await;
}

/// Gateways and programs with kazoo's lock stand in one queue: both sides get their turns, and nothing overlaps.
#[tokio::test]
async fn gateways_share_queue_with_kazoo_lock() {
    assert_queue_together("kazoo", [ForeignLock::KazooLock; 2], |policy| policy, false).await;
}

/// Gateways and programs with kazoo's read and write locks stand in one queue: both sides get turns, nothing
/// overlaps.
#[tokio::test]
async fn gateways_share_queue_with_kazoo_rw() {
    assert_queue_together("kazoo", [ForeignLock::KazooWrite, ForeignLock::KazooRead], |policy| policy, true)
        .await;
}

/// A gateway with a cached grant watches all lock nodes, also those of other programs, and releases the key for them.
#[tokio::test]
async fn cached_gateway_yields_to_kazoo() {
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(2));
    let keeping =
        policy(&site, "gw-1", "kazoo").with_cached_hold().with("/routes/0/fence/hold/mode", "cached");
    let gateway = Gateway::start(&keeping).await;
    let program = ForeignProgram::start(&site, ForeignLock::KazooLock, "one", 0).await;

    let load = RunningLoad::start("load", &on_one_account(load(&[&gateway])));
    site.origin.wait_more("one", TURNS / 2).await;
    drop(program);
    let results = load.stop().await;

    let history = History::from_log(&site.origin.log()).with_results(&results);
    history.assert_holds();
    let kept =
        history.executions.iter().filter(|one| is_gateway(&one.gateway) && one.token.dispatch() > 1).count();
    assert!(kept >= 10, "not exercised: {kept} requests under a tenure that was kept");
}

/// kazoo creates the parent of its lock only once, and would fail if the last gateway in the queue removed the parent.
#[tokio::test]
async fn kazoo_lock_parent_is_kept() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy(&site, "gw-1", "kazoo")).await;
    let program = ForeignProgram::start(&site, ForeignLock::KazooLock, "one", 50).await;
    for _ in 0..10 {
        // Between two turns of the program the gateway is alone.
        site.origin.wait_more("one", 1).await;
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    }
    program.assert_no_trouble();
}

/// At a path that no program has used before, the gateway creates all nodes above the lock as the programs would.
#[tokio::test]
async fn gateway_creates_lock_parents_for_programs() {
    for (layout, kind) in [("curator-mutex", ForeignLock::CuratorMutex), ("kazoo", ForeignLock::KazooLock)] {
        // Each round has a site of its own: a gateway refuses a key that a registered peer locks in another way.
        let site = TestSite::fresh().await;
        let path = format!("/beside{}/{layout}/locks/7", site.root);
        let gateway = Gateway::start(
            &policy(&site, "gw-1", layout)
                .with("/routes/0/fence/lock_path", path.replace("/7", "/{path.account}"))
                .with("/routes/0/fence/key", format!("{layout}/{{path.account}}")),
        )
        .await;
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "{layout}");
        let program = ForeignProgram::start_at(&site, kind, "one", &path, 0).await;
        site.origin.wait_more("one", 3).await;
        program.assert_no_trouble();
    }
}

/// Without credentials at ZooKeeper, kazoo can still read the closed nodes of gateways, and it creates and removes its own
/// nodes in the same queue.
#[tokio::test]
async fn kazoo_without_credentials_shares_closed_queue() {
    let mut site = TestSite::fresh().await;
    site.root = site.root.replace("/t/", "/closed-");
    site.origin.set_work_time(Duration::from_millis(2));
    let home = scratch::temp_dir();
    let digest =
        serde_json::json!({"user": "fencegate", "password_file": write_private_file(&home, "secret")});
    let policy = policy(&site, "gw-1", "kazoo").with("/zookeeper/digest", digest);
    let gateway = Gateway::start(&policy.with("/zookeeper/acl", "closed")).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "it makes the parents");
    let program = ForeignProgram::start(&site, ForeignLock::KazooLock, "one", 0).await;
    let load = RunningLoad::start("load", &on_one_account(load(&[&gateway])));
    site.origin.wait_more("one", 20).await;
    program.assert_no_trouble();
    drop(program);
    load.assert_promises(&site.origin, 10).await;
}

fn write_private_file(home: &TempDir, name: &str) -> String {
    let file = home.path().join(name);
    std::fs::write(&file, "a secret\n").expect("our own folder");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("our own file");
    file.display().to_string()
}

/// `explain` names the programs that share the lock of a route; `lock show` names the program of each node in the
/// queue.
#[tokio::test]
async fn explain_and_show_name_foreign_program() {
    let site = TestSite::fresh().await;
    let policy = policy(&site, "gw-1", "kazoo");
    let file = PolicyFile::new(&policy);
    let output = command(&["explain", "-c", &file, "POST /pay/7"]).await.expect("started");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.contains(&lock_path(&site)) && output.contains("kazoo: other programs"), "{output}");

    let gateway = Gateway::start(&policy).await;
    let latch = site.origin.hold("/pay/7");
    let _program = ForeignProgram::start(&site, ForeignLock::KazooLock, "one", 0).await;
    site.origin.wait_for_request("/pay/7", 1).await;
    let waiting = gateway.begin(TestRequest::post("/pay/7"));
    let admin = gateway.admin.to_string();
    let show = ["lock", "show", "account/7", "--admin", &admin, "--format", "json"];
    let queue = wait_until("two in line", wait_two_queued(&show), || gateway.log()).await;
    assert_eq!((&queue[0]["program"], &queue[0]["holds"]), (&"kazoo".into(), &true.into()), "{queue}");
    assert_eq!(
        (&queue[1]["program"], &queue[1]["gateway"]),
        (&"fencegate".into(), &"gw-1".into()),
        "{queue}"
    );
    latch.release();
    assert_eq!(waiting.answer().await.status, 200);
}

async fn wait_two_queued(show: &[&str]) -> Value {
    loop {
        let output = command(show).await.expect("started");
        let lock: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if lock["line"].as_array().is_some_and(|queue| queue.len() == 2) {
            return lock["line"].clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Longer than its session of 2 s.
const FROZEN: Duration = Duration::from_millis(3500);

/// A frozen program cannot detect when it resumes that its lock is gone, and nothing stops the program. Its writes are
/// refused by their number.
async fn assert_faults_are_safe(layout: &str, kind: ForeignLock) {
    let site = TestSite::fresh().await.with_comparison();
    site.origin.set_work_time(Duration::from_millis(5));
    let gateway = Gateway::start(&policy(&site, "gw-0", layout)).await;
    let steady = Gateway::start(&policy(&site, "gw-steady", layout)).await;
    let program = ForeignProgram::start(&site, kind, "program-0", 0).await;
    let plan = LoadPlan { pause: Duration::from_millis(5), ..on_one_account(load(&[&gateway, &steady])) };
    let load = RunningLoad::start("load", &plan);
    site.origin.wait_more("program-0", 10).await;

    // The program freezes at an arbitrary moment, mostly while it waits or holds.
    program.signal(Signal::STOP);
    tokio::time::sleep(FROZEN).await;
    site.origin.wait_more("gw-steady", 10).await;
    program.signal(Signal::CONT);
    site.origin.wait_more("program-0", 10).await;

    gateway.signal(Signal::STOP);
    tokio::time::sleep(FROZEN).await;
    site.origin.wait_more("program-0", 10).await;
    gateway.signal(Signal::CONT);
    site.origin.wait_more("gw-0", 10).await;

    program.signal(Signal::KILL);
    gateway.signal(Signal::KILL);
    site.origin.wait_more("gw-steady", 10).await;
    let next = ForeignProgram::start(&site, kind, "program-1", 0).await;
    site.origin.wait_more("program-1", 10).await;
    drop(next);
    let results = load.stop().await;
    let history = History::from_log(&site.origin.log()).with_results(&results);
    history.assert_holds();
    assert!(history.hand_overs() >= 20, "not exercised: {} hand-overs", history.hand_overs());
}

/// Nothing overlaps when gateways or programs with kazoo's lock are killed or frozen.
#[tokio::test]
async fn exclusion_survives_faults_with_kazoo_lock() {
    assert_faults_are_safe("kazoo", ForeignLock::KazooLock).await;
}

/// Nothing overlaps when gateways or programs with kazoo's write lock are killed or frozen.
#[tokio::test]
async fn exclusion_survives_faults_with_kazoo_writer() {
    assert_faults_are_safe("kazoo", ForeignLock::KazooWrite).await;
}

/// Nothing overlaps when gateways or programs with kazoo's read lock are killed or frozen.
#[tokio::test]
async fn exclusion_survives_faults_with_kazoo_reader() {
    assert_faults_are_safe("kazoo", ForeignLock::KazooRead).await;
}

/// Nothing overlaps when gateways or programs with Curator's mutex are killed or frozen.
#[tokio::test]
async fn exclusion_survives_faults_with_curator_mutex() {
    assert_faults_are_safe("curator-mutex", ForeignLock::CuratorMutex).await;
}

/// Nothing overlaps when gateways or programs with Curator's write lock are killed or frozen.
#[tokio::test]
async fn exclusion_survives_faults_with_curator_writer() {
    assert_faults_are_safe("curator-rw", ForeignLock::CuratorWrite).await;
}

/// Nothing overlaps when gateways or programs with Curator's read lock are killed or frozen.
#[tokio::test]
async fn exclusion_survives_faults_with_curator_reader() {
    assert_faults_are_safe("curator-rw", ForeignLock::CuratorRead).await;
}

/// A killed program holds the key until its session ends, and a waiting gateway waits for that.
#[tokio::test]
async fn killed_program_holds_until_session_expires() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy(&site, "gw-1", "kazoo")).await;
    let latch = site.origin.hold("/pay/7");
    let program = ForeignProgram::start(&site, ForeignLock::KazooLock, "one", 0).await;
    site.origin.wait_for_request("/pay/7", 1).await;
    let waiting = gateway.begin(TestRequest::post("/pay/7"));
    let killed = Instant::now();
    program.signal(Signal::KILL);
    assert_eq!(waiting.answer().await.status, 200);
    latch.release();
    let gap = site.origin.wait_for_request("/pay/7", 2).await.arrived - killed;
    assert!(gap >= Duration::from_millis(1000), "took only {gap:?}");
}

/// The lines of code in ZOOKEEPER.md are those that run in all tests above.
#[test]
fn documented_lines_match_programs() {
    let page = std::fs::read_to_string(fencegate_tests::prometheus::deploy().join("ZOOKEEPER.md"))
        .expect("the page");
    for source in [include_str!("beside/Foreign.java"), include_str!("beside/foreign.py")] {
        let (_, lines) = source.split_once("As in ZOOKEEPER.md.\n").expect("marked");
        let (lines, _) = lines.split_once("Until here.").expect("marked");
        let indent = lines.len() - lines.trim_start().len();
        for line in lines.lines().filter(|line| line.len() > indent && !line.trim().starts_with(['#', '/'])) {
            assert!(page.contains(&line[indent..]), "not in ZOOKEEPER.md: {line}");
        }
    }
}
