//! Programs that take locks of Curator or kazoo share one queue with gateways: they hold the lock in the order of arrival
//! and never at the same time, also when either side is killed or frozen.
//!
//! The programs use Curator 5.4 and kazoo, as processes of their own beside two gateways. Each side takes 80 turns
//! and more with each kind of its locks, readers included, and 200 among the faults. Tokens grow over both sides, and
//! no side gets more than its share. When a side is frozen beyond its session, the upstream compares the numbers of
//! both sides. Parent nodes stay. The lines that `ZOOKEEPER.md` shows are the ones that run here.
//!
//! A service that took the lock itself moves behind two gateways in the five steps of the runbook, under load, while
//! jobs call it directly. Every answer is 200, and no executions overlap. With `once` every operation is requested
//! twice, and no operation is executed twice.

mod foreign;
mod moving;

use std::{
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use fencegate_testkit::{child::Signal, scratch, wait::wait_until};
use fencegate_tests::{
    client::TestRequest,
    effort::effort,
    gateway::{Gateway, PolicyFile, command},
    history::History,
    load::{LoadPlan, RunningLoad},
    origin::OriginLog,
    policy::TestPolicy,
    site::TestSite,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::foreign::{ForeignLock, ForeignProgram, SharedAccount, lock_path};

/// The number of turns that the programs take, and that the gateways take.
fn turns() -> usize {
    effort(80, 200)
}

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
        let both = policy.with("/routes/0/match/methods", json!(["POST", "GET"]));
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
    let turns = turns();
    for count in (turns / 4..=turns).step_by(turns / 4) {
        site.origin
            .wait_for(&format!("{count} turns of either side"), |log| {
                let ours = log.records.iter().filter(|record| is_gateway(&record.gateway)).count();
                (ours >= count && log.records.len() - ours >= count).then_some(())
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
    assert!(history.hand_overs() >= turns / 4, "not exercised: {} hand-overs", history.hand_overs());
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
    site.origin.wait_more("one", turns() / 2).await;
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
    let digest = json!({"user": "fencegate", "password_file": write_private_file(&home, "secret")});
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

/// The time for which a process is frozen: longer than a session timeout of 2 s.
const FROZEN: Duration = Duration::from_secs(3);

/// The programs of one library, one for each kind of its locks, each on an account of its own. A signal goes to all of
/// them at once.
struct ForeignPrograms<'s> {
    site: &'s TestSite,
    /// The listeners of the programs at the origin.
    doors: Vec<String>,
    programs: Vec<ForeignProgram>,
}

impl<'s> ForeignPrograms<'s> {
    /// Starts one program for each kind. `generation` makes the names of its listeners differ from those of earlier
    /// programs.
    async fn start(
        site: &'s TestSite,
        kinds: &[ForeignLock],
        accounts: &[SharedAccount],
        generation: usize,
    ) -> Self {
        let doors: Vec<_> = kinds.iter().map(|kind| format!("{kind:?}-{generation}")).collect();
        let each = kinds.iter().zip(accounts).zip(&doors);
        let started =
            each.map(|((kind, account), door)| ForeignProgram::start_on(site, *kind, door, account, 0));
        let programs = join_all(started).await;
        Self { site, doors, programs }
    }

    fn signal(&self, signal: Signal) {
        self.programs.iter().for_each(|program| program.signal(signal));
    }

    /// Waits until each program has had ten further turns.
    async fn wait_turns(&self) {
        join_all(self.doors.iter().map(|door| self.site.origin.wait_more(door, 10))).await;
    }
}

/// Waits until a gateway has had ten further turns on each account.
async fn wait_turns_of(site: &TestSite, gateway: &str, accounts: &[SharedAccount]) {
    let count = |log: &OriginLog, account: &SharedAccount| {
        log.requests_for(&account.target).filter(|record| record.gateway == gateway).count()
    };
    let before: Vec<usize> = accounts.iter().map(|account| count(&site.origin.log(), account)).collect();
    let more = |log: &OriginLog| {
        let mut each = accounts.iter().zip(&before);
        each.all(|(account, before)| count(log, account) >= before + 10).then_some(())
    };
    site.origin.wait_for(&format!("ten more of each account through {gateway}"), more).await;
}

/// Adds a route whose locks are read-write locks of this layout.
fn with_read_write_route(site: &TestSite, policy: TestPolicy, layout: &str) -> TestPolicy {
    let lock_path = format!("/beside{}/rw/{{path.account}}", site.root);
    policy.with_route(json!({
        "name": "read-write",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/rw/{account}"},
        "fence": {
            "key": "rw/{path.account}", "wait": "20s", "queue": 50, "layout": layout, "lock_path": lock_path,
        },
    }))
}

/// An account of the route that [`with_read_write_route`] adds.
fn read_write_account(site: &TestSite, number: u32) -> SharedAccount {
    SharedAccount {
        lock: format!("/beside{}/rw/{number}", site.root),
        key: format!("rw/{number}"),
        target: format!("/rw/{number}"),
    }
}

/// Asserts that nothing overlaps while gateways and programs are killed or frozen. A frozen program cannot detect when
/// it resumes that its lock is gone, and nothing stops it, so the service refuses its writes by their token.
///
/// `layout` is the layout of the first kind of lock, and `read_write` the layout of the other two kinds.
async fn assert_faults_are_safe(layout: &str, read_write: &str, kinds: [ForeignLock; 3]) {
    let site = TestSite::fresh().await.with_comparison();
    site.origin.set_work_time(Duration::from_millis(5));
    let policies = ["gw-0", "gw-steady"]
        .map(|name| with_read_write_route(&site, policy(&site, name, layout), read_write));
    let (gateway, steady) = Gateway::start_both(&policies[0], &policies[1]).await;
    let accounts = [SharedAccount::seven(&site), read_write_account(&site, 8), read_write_account(&site, 9)];
    let programs = ForeignPrograms::start(&site, &kinds, &accounts, 0).await;
    let paths = accounts.iter().map(|account| account.target.clone()).collect();
    let plan = LoadPlan { paths, pause: Duration::from_millis(5), ..load(&[&gateway, &steady]) };
    let load = RunningLoad::start("load", &plan);
    programs.wait_turns().await;

    // The programs freeze at an arbitrary moment, mostly while they wait or hold.
    programs.signal(Signal::STOP);
    tokio::time::sleep(FROZEN).await;
    wait_turns_of(&site, "gw-steady", &accounts).await;
    programs.signal(Signal::CONT);
    programs.wait_turns().await;

    gateway.signal(Signal::STOP);
    tokio::time::sleep(FROZEN).await;
    programs.wait_turns().await;
    gateway.signal(Signal::CONT);
    wait_turns_of(&site, "gw-0", &accounts).await;

    programs.signal(Signal::KILL);
    gateway.signal(Signal::KILL);
    wait_turns_of(&site, "gw-steady", &accounts).await;
    let next = ForeignPrograms::start(&site, &kinds, &accounts, 1).await;
    next.wait_turns().await;
    drop(next);
    let results = load.stop().await;
    let history = History::from_log(&site.origin.log()).with_results(&results);
    history.assert_holds();
    for (kind, account) in kinds.iter().zip(&accounts) {
        let hand_overs = history.of_keys(&account.key).hand_overs();
        assert!(hand_overs >= 20, "not exercised: {hand_overs} hand-overs of {kind:?}");
    }
}

/// Nothing overlaps when gateways or programs with kazoo's lock, write lock or read lock are killed or frozen.
#[tokio::test]
async fn exclusion_survives_faults_with_kazoo() {
    let kinds = [ForeignLock::KazooLock, ForeignLock::KazooWrite, ForeignLock::KazooRead];
    assert_faults_are_safe("kazoo", "kazoo", kinds).await;
}

/// Nothing overlaps when gateways or programs with Curator's mutex, write lock or read lock are killed or frozen.
#[tokio::test]
async fn exclusion_survives_faults_with_curator() {
    let kinds = [ForeignLock::CuratorMutex, ForeignLock::CuratorWrite, ForeignLock::CuratorRead];
    assert_faults_are_safe("curator-mutex", "curator-rw", kinds).await;
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
