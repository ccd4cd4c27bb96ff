//! With the layout `exclusive-node` gateways and an unrelated program hold one node one after the other, also across kills
//! and pauses, and no gateway removes the node of another holder.
//!
//! The program uses kazoo and creates one ephemeral node. Each of two gateways and the program takes 80 turns and
//! more, and 200 among the faults. Tokens grow over all of them. When a stranger removes the node, its holder notices
//! and writes nothing more under it. When the answer to a removal is lost, the removal is not applied to the node of
//! the next holder. Operators see the holder and can break its lock.

use std::{sync::Arc, time::Duration};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    wait::{QUIET, wait_until},
};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    effort::effort,
    gateway::{Gateway, command},
    history::History,
    load::{LoadPlan, RunningLoad},
    origin::OriginLog,
    policy::TestPolicy,
    process::TestProcess,
    prometheus::deploy,
    site::TestSite,
    zookeeper::{self, ZnodeTree},
    zookeeper_proxy::ZooKeeperProxy,
};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::sleep};

use super::clients::python_with_package;

/// The pause of a gateway before its write: long enough for the other program to start and to hold the node.
const PAUSE: Duration = Duration::from_millis(3500);
/// The time for which a process is frozen: longer than a session timeout of 2 s.
const FROZEN: Duration = Duration::from_secs(3);
/// The name of the other program at the origin.
const PLAIN: &str = "plain";
const ACCOUNT: &str = "/pay/7";

/// Gateways and another program that share a node for each account.
struct SharedNodeFixture {
    site: TestSite,
    /// The folder of the nodes, another one for each test.
    folder: String,
}

impl SharedNodeFixture {
    async fn fresh() -> Self {
        let site = TestSite::at(zookeeper::shared()).await.with_comparison();
        site.origin.set_work_time(Duration::from_millis(3));
        let folder = format!("{}-app", site.root);
        Self { site, folder }
    }

    fn policy(&self, name: &str) -> TestPolicy {
        let path = format!("{}/accounts/{{path.account}}", self.folder);
        let policy = self.site.policy(name).with("/routes/0/fence/layout", "exclusive-node");
        policy.with("/routes/0/fence/lock_path", path)
    }

    async fn gateway(&self, name: &str) -> Gateway {
        Gateway::start(&self.policy(name)).await
    }

    /// The nodes in the folder, seen by an observer.
    async fn tree(&self) -> ZnodeTree {
        ZnodeTree::connect(self.site.zookeeper, &self.folder).await
    }

    /// Starts the program. The program needs the parent of the node, which a gateway has made.
    async fn start_plain_program(&self, door: &str) -> Arc<ChildProcess> {
        static PYTHON: OnceCell<String> = OnceCell::const_new();
        let python = PYTHON.get_or_init(|| python_with_package("plain-node", "kazoo==2.10.0")).await;
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/promises/exclusive_node/plain.py");
        let servers = self.site.zookeeper.to_string();
        let door = self.site.origin.open_listener(door).to_string();
        let node = format!("{}/accounts/7", self.folder);
        let arguments = [program, &servers, &node, &door, "account/7", ACCOUNT];
        Arc::new(ChildProcess::spawn(python, arguments).expect("setpriv"))
    }

    /// All clients use one account, and pause so that the other program gets turns.
    fn load(&self, name: &str, gateways: &[&Gateway]) -> RunningLoad {
        let pause = Duration::from_millis(10);
        RunningLoad::start(
            name,
            &LoadPlan {
                paths: vec![ACCOUNT.to_owned()],
                pause,
                ..LoadPlan::payments(gateways, 1, 4, 20_000)
            },
        )
    }

    /// Waits for `count` more requests of the gateway and of the program.
    async fn wait_both_progress(&self, gateway: &str, count: usize) {
        tokio::join!(self.site.origin.wait_more(gateway, count), self.site.origin.wait_more(PLAIN, count));
    }

    /// Waits until a request of the gateway or program with this listener is in flight.
    async fn wait_in_flight(&self, door: &str) {
        let begun = |log: &OriginLog| {
            let last = log.records.last()?;
            (last.gateway == door && last.ended.is_none()).then_some(())
        };
        self.site.origin.wait_for(&format!("a request through {door} in flight"), begun).await;
    }
}

/// The number of executions of the gateway or program with this name.
fn execution_count(history: &History, of: &str) -> usize {
    history.executions.iter().filter(|execution| execution.gateway == of).count()
}

/// Two gateways and another program take turns at one node, and tokens grow over all of them.
#[tokio::test]
async fn gateways_and_program_take_turns() {
    let shared = SharedNodeFixture::fresh().await;
    let (one, two) = tokio::join!(shared.gateway("gw-1"), shared.gateway("gw-2"));
    assert_eq!(one.send(&TestRequest::post(ACCOUNT)).await.status, 200);
    let plain = shared.start_plain_program(PLAIN).await;
    let load = shared.load("load", &[&one, &two]);
    let turns = effort(80, 200);
    for _ in 0..4 {
        let step = turns / 4;
        tokio::join!(shared.wait_both_progress("gw-1", step), shared.site.origin.wait_more("gw-2", step));
    }
    let results = load.stop().await;

    let history = History::from_log(&shared.site.origin.log()).with_results(&results);
    history.assert_holds();
    let ours = execution_count(&history, "gw-1").min(execution_count(&history, "gw-2"));
    let theirs = execution_count(&history, PLAIN);
    assert!(ours >= turns && theirs >= turns, "not exercised: {ours} and {theirs}");
    assert!(history.hand_overs() >= turns, "not exercised: {} hand-overs", history.hand_overs());
    assert!(results.iter().all(|result| result.answer.as_ref().is_ok_and(|answer| answer.status == 200)));
    assert!(!plain.log().contains("lost") && !plain.log().contains("trouble"), "{}", plain.log());
}

/// The node has one holder at a time, also when a gateway or the other program is paused or killed while it holds.
#[tokio::test]
async fn exclusion_survives_kills_and_pauses() {
    let shared = SharedNodeFixture::fresh().await;
    let survivor = shared.gateway("survivor").await;
    assert_eq!(survivor.send(&TestRequest::post(ACCOUNT)).await.status, 200);
    let (victim, plain) = tokio::join!(shared.gateway("victim"), shared.start_plain_program(PLAIN));
    let mut load = shared.load("first", &[&survivor, &victim]);
    shared.wait_both_progress("victim", 20).await;

    // The gateway and the program are each stopped while they hold the node, for longer than their sessions last.
    for stopped in [StoppedProcess::Gateway(&victim), StoppedProcess::Program(&plain)] {
        shared.wait_in_flight(stopped.door()).await;
        stopped.signal(Signal::STOP);
        let stands = sleep(FROZEN);
        shared.site.origin.wait_more("survivor", 10).await;
        stands.await;
        stopped.signal(Signal::CONT);
        victim.wait_ready().await;
        shared.wait_both_progress("victim", 20).await;
    }
    let mut results = load.stop().await;

    // The gateway and the program are each killed while they hold the node.
    load = shared.load("second", &[&survivor, &victim]);
    shared.wait_in_flight("victim").await;
    victim.signal(Signal::KILL);
    shared.wait_both_progress("survivor", 20).await;
    shared.wait_in_flight(PLAIN).await;
    StoppedProcess::Program(&plain).signal(Signal::KILL);
    shared.site.origin.wait_more("survivor", 20).await;
    let _next = shared.start_plain_program(PLAIN).await;
    shared.wait_both_progress("survivor", 20).await;
    results.extend(load.stop().await);

    let history = History::from_log(&shared.site.origin.log()).with_results(&results);
    history.assert_holds();
    assert!(history.hand_overs() >= 60, "not exercised: {} hand-overs", history.hand_overs());
}

/// The process that is stopped or killed.
enum StoppedProcess<'s> {
    Gateway(&'s Gateway),
    Program(&'s ChildProcess),
}

impl StoppedProcess<'_> {
    fn door(&self) -> &'static str {
        match self {
            Self::Gateway(_) => "victim",
            Self::Program(_) => PLAIN,
        }
    }

    fn signal(&self, signal: Signal) {
        match self {
            Self::Gateway(gateway) => gateway.signal(signal),
            Self::Program(program) => program.signal(signal).expect("the kernel lets us"),
        }
    }
}

/// A third party removes the node of the holder, and another holder creates a node before the first holder releases the
/// key. The first holder notices the removal, writes nothing, and leaves the node of the other holder alone.
#[tokio::test]
async fn holder_detects_removal_and_spares_successor() {
    let shared = SharedNodeFixture::fresh().await;
    let victim =
        shared.site.gateway_paused_at(&shared.policy("victim"), "before_upstream_write", PAUSE).await;
    let pending = victim.begin(TestRequest::post(ACCOUNT));
    victim.wait_at_failpoint("before_upstream_write").await;
    let tree = shared.tree().await;
    tree.delete("/accounts/7").await.expect("the victim holds it");
    let plain = shared.start_plain_program(PLAIN).await;
    shared.site.origin.wait_more(PLAIN, 20).await;
    let answer = pending.answer().await;

    assert_eq!((answer.status, answer.reason().as_str()), (503, "suspended"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    victim
        .wait_line("that it is gone", |line| line.message().contains("another client removed the lock node"))
        .await;
    let written = shared.site.origin.log().pieces.iter().filter(|piece| piece.gateway == "victim").count();
    assert_eq!(written, 0, "written under a lock that was gone");
    // When this request is answered, the victim has released the rest of its earlier lock.
    let later = victim.send(&TestRequest::post(ACCOUNT)).await;
    assert_eq!(later.status, 200, "{later:?}");
    shared.site.origin.wait_more(PLAIN, 20).await;
    assert!(!plain.log().contains("lost"), "its node was removed:\n{}", plain.log());
    History::from_log(&shared.site.origin.log()).assert_holds();
}

/// The reply to a delete is lost. Before the gateway reconnects, another holder has created the node: the gateway does not
/// delete it.
#[tokio::test]
async fn lost_delete_reply_spares_next_holder() {
    let shared = SharedNodeFixture::fresh().await;
    let link = ZooKeeperProxy::start(shared.site.zookeeper).await;
    let policy =
        shared.policy("gw-1").with("/zookeeper/session_timeout", "60s").with_zookeeper(link.address());
    let gateway = Gateway::start(&policy).await;
    let held = shared.site.origin.hold_request(&gateway, TestRequest::post(ACCOUNT)).await;
    let tree = shared.tree().await;
    let node = || tree.try_data("/accounts/7");

    link.lose_replies();
    assert_eq!(held.finish().await.status, 200);
    let removed = async {
        while node().await.is_some() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    wait_until("the removal", removed, || gateway.log()).await;
    tree.create("/accounts/7", b"theirs").await;
    let theirs = tree.created_zxid("/accounts/7").await;
    link.cut();
    link.mend();
    gateway.wait_ready().await;
    sleep(QUIET).await;
    assert!(node().await.is_some() && tree.created_zxid("/accounts/7").await == theirs, "removed twice");
    shared.site.tree().await.assert_no_locks().await;
    tree.delete("/accounts/7").await.expect("there");
    assert_eq!(gateway.send(&TestRequest::post(ACCOUNT)).await.status, 200);
}

async fn get_json(process: &TestProcess, path: &str) -> Value {
    let answer = process.admin(path).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// The admin API shows holder and waiter of the node and breaks the holder; behind a persistent node requests get
/// 503.
#[tokio::test]
async fn holder_is_shown_and_breakable() {
    let shared = SharedNodeFixture::fresh().await;
    let (one, two) = tokio::join!(shared.gateway("gw-1"), shared.gateway("gw-2"));
    assert_eq!(one.send(&TestRequest::post(ACCOUNT)).await.status, 200);
    let tree = shared.tree().await;
    tree.create("/accounts/7", b"theirs").await;
    let refused = one.send(&TestRequest::post(ACCOUNT)).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "lock-place"), "it ends with no session");
    one.wait_line("what stands there", |line| line.field("code") == "FG0528").await;
    let shown = get_json(&one, "/api/v1/locks/account%2F7").await;
    assert_eq!(shown["line"][0]["session"], json!("0000000000000000"), "{shown}");
    let told =
        command(&["lock", "show", "account/7", "--admin", &one.admin.to_string()]).await.expect("started");
    assert!(String::from_utf8_lossy(&told.stdout).contains("nobody's lock"), "{told:?}");
    tree.delete("/accounts/7").await.expect("there");

    let held = shared.site.origin.hold_request(&one, TestRequest::post(ACCOUNT)).await;
    let waits = two.begin(TestRequest::post(ACCOUNT));
    let places = |told: &Value| -> Vec<(Option<String>, bool)> {
        let line = told["line"].as_array().cloned().unwrap_or_default();
        let place = |one: &Value| (one["gateway"].as_str().map(str::to_owned), one["holds"] == json!(true));
        line.iter().map(place).collect()
    };
    let seen = async {
        loop {
            let told = get_json(&two, "/api/v1/locks/account%2F7").await;
            if places(&told).len() == 2 {
                return told;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let seen = wait_until("one that waits", seen, || two.log()).await;
    assert_eq!(places(&seen), [(Some("gw-1".into()), true), (Some("gw-2".into()), false)]);
    assert_eq!(seen["line"][0]["number"], json!(held.record.expect_token().number()));

    let broken = TestRequest::post("/api/v1/locks/account%2F7/break")
        .body(json!({"confirm": "account/7"}).to_string());
    let broken = broken.send_to(two.admin).await.expect("an answer");
    assert_eq!(broken.status, 200, "{broken:?}");
    assert_eq!(waits.answer().await.status, 200, "nobody is in its way any more");
    held.finish().await;
    let gone = async {
        while tree.try_data("/accounts/7").await.is_some() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    wait_until("nothing to be left", gone, || one.log()).await;
    assert_eq!(one.send(&TestRequest::post(ACCOUNT)).await.status, 200);
}

/// The lines of code in `ZOOKEEPER.md` for this layout are lines of `plain.py`.
#[test]
fn documented_lines_match_program() {
    let shown = std::fs::read_to_string(deploy().join("ZOOKEEPER.md")).expect("shipped");
    let (_, behind) = shown.split_once("*A node that everybody makes*").expect("it is told of");
    let ran = include_str!("exclusive_node/plain.py");
    let code = behind.lines().skip_while(|line| !line.starts_with("        ")).map(str::trim);
    let lines: Vec<_> = code.take_while(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    for line in lines {
        assert!(ran.lines().any(|ran| ran.trim() == line), "{line}");
    }
}
