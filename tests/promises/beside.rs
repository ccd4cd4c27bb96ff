//! Programs that take locks of Curator and kazoo stand in one line with gateways: in the order in which they came, with
//! nothing that overlaps, also when either side is killed or frozen.

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
    load::{Load, LoadPlan},
    policy::TestPolicy,
    scratch,
    site::TestSite,
    wait::wait_until,
};
use serde_json::Value;
use tempfile::TempDir;

use self::foreign::{ForeignLock, ForeignProgram, lock_path};

/// The turns of each side.
const TURNS: usize = 200;
const CLIENTS: usize = 6;

fn policy(site: &TestSite, name: &str, layout: &str) -> TestPolicy {
    let path = format!("/beside{}/locks/{{path.account}}", site.root);
    site.policy(name)
        .with("/routes/0/fence/layout", layout)
        .with("/routes/0/fence/lock_path", path)
        .with("/routes/0/fence/wait", "20s")
}

fn through(site: &TestSite, is: impl Fn(&str) -> bool) -> usize {
    site.origin.log().records.iter().filter(|record| is(&record.gateway)).count()
}

fn is_gateway(door: &str) -> bool {
    door.starts_with("gw-")
}

fn load(gateways: &[&Gateway]) -> LoadPlan {
    LoadPlan { clients: CLIENTS, ..LoadPlan::payments(gateways, 1, CLIENTS, 100_000) }
}

/// Path of the one account that everybody works on.
fn all_on_one(plan: LoadPlan) -> LoadPlan {
    LoadPlan { paths: vec!["/pay/7".into()], ..plan }
}

/// Runs two gateways and two programs until each side has had its turns.
async fn in_one_line(
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

    let plan = all_on_one(load(&[&one, &two]));
    let writing = Load::start("writing", &plan);
    let reading = readers.then(|| Load::start_with(TestRequest::get, "reading", &plan));
    let theirs = |site: &TestSite| through(site, |door| !is_gateway(door));
    for turns in (TURNS / 4..=TURNS).step_by(TURNS / 4) {
        site.origin
            .wait_for(&format!("{turns} turns of either side"), |log| {
                let ours = log.records.iter().filter(|record| is_gateway(&record.gateway)).count();
                (ours >= turns && log.records.len() - ours >= turns).then_some(())
            })
            .await;
    }
    drop(programs);
    let mut told = writing.stop().await;
    if let Some(reading) = reading {
        told.extend(reading.stop().await);
    }

    // Growing tokens show that both sides are served in the order in which the lock nodes were made.
    let history = History::from_log(&site.origin.log()).with(&told);
    history.assert_holds();
    assert!(told.iter().all(|told| told.answer.as_ref().is_ok_and(|answer| answer.status == 200)));
    assert!(history.hand_overs() >= TURNS / 4, "not exercised: {} hand-overs", history.hand_overs());
    assert_fair(&history, theirs(&site));
}

/// Between two turns of a program, every client of the gateways may have one turn. Clients and program queue again at
/// once.
fn assert_fair(history: &History, theirs: usize) {
    let mut line: Vec<_> = history.executions.iter().collect();
    line.sort_by_key(|execution| execution.began);
    let first = line.iter().position(|execution| !is_gateway(&execution.gateway)).expect("turns");
    let last = line.iter().rposition(|execution| !is_gateway(&execution.gateway)).expect("turns");
    let ours = line[first..last].iter().filter(|execution| is_gateway(&execution.gateway)).count();
    assert!(ours <= 2 * CLIENTS * theirs, "{ours} turns of gateways beside {theirs} of programs");
    assert!(theirs <= 2 * ours, "{theirs} turns of programs beside {ours} of gateways");
}

#[tokio::test]
async fn curators_mutex_and_gateways_take_turns() {
    in_one_line("curator-mutex", [ForeignLock::CuratorMutex; 2], |policy| policy, false).await;
}

#[tokio::test]
async fn curators_readers_and_writers_and_gateways_take_turns() {
    in_one_line("curator-rw", [ForeignLock::CuratorWrite, ForeignLock::CuratorRead], |policy| policy, true)
        .await;
}

#[tokio::test]
async fn kazoos_lock_and_gateways_take_turns() {
    in_one_line("kazoo", [ForeignLock::KazooLock; 2], |policy| policy, false).await;
}

#[tokio::test]
async fn kazoos_readers_and_writers_and_gateways_take_turns() {
    in_one_line("kazoo", [ForeignLock::KazooWrite, ForeignLock::KazooRead], |policy| policy, true).await;
}

/// The gateway sees every waiter, also one that is no gateway, and lets the waiter have its turn.
#[tokio::test]
async fn a_gateway_that_keeps_the_key_lets_kazoo_have_its_turns() {
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(2));
    let keeping =
        policy(&site, "gw-1", "kazoo").with_cached_hold().with("/routes/0/fence/hold/mode", "cached");
    let gateway = Gateway::start(&keeping).await;
    let program = ForeignProgram::start(&site, ForeignLock::KazooLock, "one", 0).await;

    let load = Load::start("load", &all_on_one(load(&[&gateway])));
    site.origin.wait_more("one", TURNS / 2).await;
    drop(program);
    let told = load.stop().await;

    let history = History::from_log(&site.origin.log()).with(&told);
    history.assert_holds();
    let kept =
        history.executions.iter().filter(|one| is_gateway(&one.gateway) && one.token.dispatch() > 1).count();
    assert!(kept >= 10, "not exercised: {kept} requests under a tenure that was kept");
}

/// kazoo ensures the parent of its lock only once. If the last gateway that leaves removed the parent, kazoo would
/// fail.
#[tokio::test]
async fn the_parent_of_another_programs_lock_stays() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy(&site, "gw-1", "kazoo")).await;
    let program = ForeignProgram::start(&site, ForeignLock::KazooLock, "one", 50).await;
    for _ in 0..10 {
        // Between two turns of the program the gateway is alone.
        site.origin.wait_more("one", 1).await;
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    }
    program.had_no_trouble();
}

/// No program has used the path before: the gateway makes all nodes above the lock, as the programs would.
#[tokio::test]
async fn a_gateway_makes_the_parents_that_the_program_would_make() {
    for (layout, kind) in [("curator-mutex", ForeignLock::CuratorMutex), ("kazoo", ForeignLock::KazooLock)] {
        // Each round has a site of its own: a gateway refuses a key that a registered gateway locks otherwise.
        let site = TestSite::fresh().await;
        let path = format!("/beside{}/{layout}/locks/7", site.root);
        let gateway = Gateway::start(
            &policy(&site, "gw-1", layout)
                .with("/routes/0/fence/lock_path", path.replace("/7", "/{path.account}"))
                .with("/routes/0/fence/key", format!("{layout}/{{path.account}}")),
        )
        .await;
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "{layout}");
        let program = ForeignProgram::at(&site, kind, "one", &path, 0).await;
        site.origin.wait_more("one", 3).await;
        program.had_no_trouble();
    }
}

/// kazoo shows no credentials to ZooKeeper. It can still read our nodes, and it makes and removes its own nodes
/// beside them.
#[tokio::test]
async fn a_program_that_shows_nothing_stands_in_line_with_gateways_whose_nodes_are_closed() {
    let mut site = TestSite::fresh().await;
    site.root = site.root.replace("/t/", "/closed-");
    site.origin.set_work_time(Duration::from_millis(2));
    let home = scratch::temp_dir();
    let digest = serde_json::json!({"user": "fencegate", "password_file": private(&home, "secret")});
    let policy = policy(&site, "gw-1", "kazoo").with("/zookeeper/digest", digest);
    let gateway = Gateway::start(&policy.with("/zookeeper/acl", "closed")).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "it makes the parents");
    let program = ForeignProgram::start(&site, ForeignLock::KazooLock, "one", 0).await;
    let load = Load::start("load", &all_on_one(load(&[&gateway])));
    site.origin.wait_more("one", 20).await;
    program.had_no_trouble();
    drop(program);
    load.assert_promises(&site.origin, 10).await;
}

fn private(home: &TempDir, name: &str) -> String {
    let file = home.path().join(name);
    std::fs::write(&file, "a secret\n").expect("our own folder");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("our own file");
    file.display().to_string()
}

#[tokio::test]
async fn explain_and_lock_show_tell_whose_lock_it_is() {
    let site = TestSite::fresh().await;
    let policy = policy(&site, "gw-1", "kazoo");
    let file = PolicyFile::new(&policy);
    let said = command(&["explain", "-c", &file, "POST /pay/7"]).await.expect("started");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains(&lock_path(&site)) && said.contains("kazoo: other programs"), "{said}");

    let gateway = Gateway::start(&policy).await;
    let latch = site.origin.hold("/pay/7");
    let _program = ForeignProgram::start(&site, ForeignLock::KazooLock, "one", 0).await;
    site.origin.request("/pay/7", 1).await;
    let waiting = gateway.begin(TestRequest::post("/pay/7"));
    let admin = gateway.admin.to_string();
    let show = ["lock", "show", "account/7", "--admin", &admin, "--format", "json"];
    let line = wait_until("two in line", two_in_line(&show), || gateway.log()).await;
    assert_eq!((&line[0]["program"], &line[0]["holds"]), (&"kazoo".into(), &true.into()), "{line}");
    assert_eq!((&line[1]["program"], &line[1]["gateway"]), (&"fencegate".into(), &"gw-1".into()), "{line}");
    latch.release();
    assert_eq!(waiting.answer().await.status, 200);
}

async fn two_in_line(show: &[&str]) -> Value {
    loop {
        let said = command(show).await.expect("started");
        let told: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
        if told["line"].as_array().is_some_and(|line| line.len() == 2) {
            return told["line"].clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Longer than its session of 2 s.
const FROZEN: Duration = Duration::from_millis(3500);

/// A frozen program cannot know at its wake-up that its lock is gone, and nothing holds the program back. Its writes
/// are refused by their number.
async fn trouble_on_either_side(layout: &str, kind: ForeignLock) {
    let site = TestSite::fresh().await.with_comparison();
    site.origin.set_work_time(Duration::from_millis(5));
    let gateway = Gateway::start(&policy(&site, "gw-0", layout)).await;
    let steady = Gateway::start(&policy(&site, "gw-steady", layout)).await;
    let program = ForeignProgram::start(&site, kind, "program-0", 0).await;
    let plan = LoadPlan { pause: Duration::from_millis(5), ..all_on_one(load(&[&gateway, &steady])) };
    let load = Load::start("load", &plan);
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
    let told = load.stop().await;
    let history = History::from_log(&site.origin.log()).with(&told);
    history.assert_holds();
    assert!(history.hand_overs() >= 20, "not exercised: {} hand-overs", history.hand_overs());
}

#[tokio::test]
async fn nothing_overlaps_when_gateways_or_programs_with_kazoo_are_killed_or_frozen() {
    trouble_on_either_side("kazoo", ForeignLock::KazooLock).await;
}

#[tokio::test]
async fn nothing_overlaps_when_gateways_or_writers_with_kazoo_are_killed_or_frozen() {
    trouble_on_either_side("kazoo", ForeignLock::KazooWrite).await;
}

#[tokio::test]
async fn nothing_overlaps_when_gateways_or_readers_with_kazoo_are_killed_or_frozen() {
    trouble_on_either_side("kazoo", ForeignLock::KazooRead).await;
}

#[tokio::test]
async fn nothing_overlaps_when_gateways_or_programs_with_curator_are_killed_or_frozen() {
    trouble_on_either_side("curator-mutex", ForeignLock::CuratorMutex).await;
}

#[tokio::test]
async fn nothing_overlaps_when_gateways_or_writers_with_curator_are_killed_or_frozen() {
    trouble_on_either_side("curator-rw", ForeignLock::CuratorWrite).await;
}

#[tokio::test]
async fn nothing_overlaps_when_gateways_or_readers_with_curator_are_killed_or_frozen() {
    trouble_on_either_side("curator-rw", ForeignLock::CuratorRead).await;
}

/// A killed holder keeps the key until its session ends. Both sides wait for that.
#[tokio::test]
async fn who_comes_behind_a_killed_program_waits_for_the_end_of_its_session() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy(&site, "gw-1", "kazoo")).await;
    let latch = site.origin.hold("/pay/7");
    let program = ForeignProgram::start(&site, ForeignLock::KazooLock, "one", 0).await;
    site.origin.request("/pay/7", 1).await;
    let waiting = gateway.begin(TestRequest::post("/pay/7"));
    let killed = Instant::now();
    program.signal(Signal::KILL);
    assert_eq!(waiting.answer().await.status, 200);
    latch.release();
    let gap = site.origin.request("/pay/7", 2).await.arrived - killed;
    assert!(gap >= Duration::from_millis(1000), "took only {gap:?}");
}

/// What the page says is what ran in all tests above.
#[test]
fn the_lines_of_the_page_are_those_of_the_programs() {
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
