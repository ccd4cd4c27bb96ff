//! Without a guard, an operation is sent at most once: ZooKeeper remembers it, and nobody sends what may have been sent.

use std::{net::TcpListener, time::Duration};

use fencegate::{demo::child::Signal, steps::key::name::identity};
use fencegate_policies::plan;
use fencegate_tests::{
    client::{Answer, Ask, Outcome},
    gateway::{Gateway, command, write_policy},
    link::{Fate, FaultyLink, Operation},
    origin::{Act, Latch, Reply},
    patience::{QUIET, patiently},
    policy::Policy,
    scratch,
    site::Site,
    zookeeper::Tree,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use zookeeper_client::{Acls, Client, CreateMode};

fn policy(site: &Site, name: &str) -> Policy {
    once(site.policy(name))
}

fn once(policy: Policy) -> Policy {
    policy.with("/routes/0/fence/once", json!({"store": "zookeeper"}))
}

fn pay(name: &str) -> Ask {
    Ask::post("/pay/7").field("Idempotency-Key", name).body("{}")
}

fn told(answer: &Answer) -> (u16, String) {
    (answer.status, answer.reason())
}

fn already_done() -> (u16, String) {
    (409, "already-done".into())
}

fn unknown() -> (u16, String) {
    (409, "outcome-unknown".into())
}

/// The operations that ZooKeeper remembers.
async fn remembered(tree: &Tree) -> Vec<Value> {
    let mut found = Vec::new();
    for path in tree.paths().await {
        let is_one = path.starts_with("/ops/") && path.matches('/').count() == 3;
        if is_one && let Some(data) = tree.data_if_there(&path).await {
            found.push(serde_json::from_slice(&data).expect("JSON"));
        }
    }
    found
}

/// Which of 256 nodes an operation stands below.
fn shelf(name: &str) -> u8 {
    let named = plan::Operation { name: name.into(), principal: String::new() };
    identity("", &named).bytes()[0]
}

/// Names of two operations that stand below one node: when the second comes, that node is there.
fn beside_each_other() -> [String; 2] {
    let first = "op-0".to_owned();
    let mut others = (1..).map(|n| format!("op-{n}")).filter(|other| shelf(other) == shelf(&first));
    let second = others.next().expect("one in 256");
    [first, second]
}

async fn operator(policy: &Policy, arguments: &[&str]) -> (Option<i32>, String) {
    let home = TempDir::new_in(scratch::folder()).expect("a folder");
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    let all = [&["once"], arguments, &["-c", &file]].concat();
    let output = command(&all).await.expect("started");
    let said = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test]
async fn what_was_done_is_not_done_again_through_any_gateway() {
    let site = Site::fresh().await;
    let (a, b) = (policy(&site, "gw-1"), policy(&site, "gw-2"));
    let (one, two) = tokio::join!(Gateway::start(&a), Gateway::start(&b));
    let first = one.send(&pay("a")).await;
    assert_eq!((first.status, first.outcome()), (200, Some(Outcome::Done)));
    for gateway in [&one, &two, &one] {
        let repeat = gateway.send(&pay("a")).await;
        assert_eq!((told(&repeat), repeat.outcome()), (already_done(), Some(Outcome::Done)));
    }
    let other = two.send(&pay("a").body("{\"other\": 1}")).await;
    assert_eq!(told(&other), (422, "idempotency-mismatch".into()));
    assert_eq!(told(&one.send(&Ask::post("/pay/7")).await), (400, "idempotency-key-required".into()));
    assert_eq!(site.origin.count("/pay/7"), 1);
    let sent = site.origin.request("/pay/7", 1).await;
    assert!(!sent.request.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("fencing-operation")));
    assert_eq!(two.send(&pay("b")).await.status, 200);
}

#[tokio::test]
async fn a_client_error_is_an_outcome_and_a_server_error_is_none() {
    let site = Site::fresh().await;
    let gateway = Gateway::start(&policy(&site, "gw-1")).await;
    let answers = [404, 500].map(|status| Act::now(Reply::ok().status(status)));
    site.origin.script("/pay/7", answers);
    assert_eq!(gateway.send(&pay("a")).await.status, 404);
    assert_eq!(told(&gateway.send(&pay("a")).await), (404, "already-refused".into()));
    assert_eq!(gateway.send(&pay("b")).await.status, 500);
    assert_eq!(told(&gateway.send(&pay("b")).await), unknown());
    assert_eq!(site.origin.count("/pay/7"), 2);
}

#[tokio::test]
async fn what_a_killed_gateway_had_sent_is_told_as_unknown_until_somebody_says_what_came_of_it() {
    let site = Site::fresh().await;
    let (a, b) = (policy(&site, "gw-1"), policy(&site, "gw-2"));
    let (one, two) = tokio::join!(Gateway::start(&a), Gateway::start(&b));
    let latch = site.origin.holds("/pay/7");
    let lost = one.begin(pay("a"));
    site.origin.request("/pay/7", 1).await;
    let (code, said) = operator(&b, &["list"]).await;
    assert!(code == Some(0) && said.contains("may be running"), "{said}");
    one.signal(Signal::KILL);
    lost.result().await.expect_err("killed");

    let repeat = two.send(&pay("a")).await;
    assert_eq!((told(&repeat), repeat.outcome()), (unknown(), Some(Outcome::Unknown)));
    let problem: Value = serde_json::from_slice(&repeat.body).expect("JSON");
    let reference = problem["operation_ref"].as_str().expect("a reference").to_owned();
    latch.let_go();
    assert_eq!(told(&two.send(&pay("a")).await), unknown());
    assert_eq!(site.origin.count("/pay/7"), 1);

    let (code, said) = operator(&b, &["list"]).await;
    assert_eq!(code, Some(0), "{said}");
    for word in [&reference, "POST /pay/7", "Idempotency-Key: a", "account/7", "--as not-done"] {
        assert!(said.contains(word), "`{word}` is missing:\n{said}");
    }
    let (code, said) = operator(&b, &["resolve", "0000000000000000", "--as", "done"]).await;
    assert!(code == Some(1) && said.contains("once list"), "{said}");
    let (code, said) = operator(&b, &["resolve", &reference, "--as", "not-done"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(two.send(&pay("a")).await.status, 200);
    assert_eq!(told(&two.send(&pay("a")).await), already_done());
    assert_eq!(site.origin.count("/pay/7"), 2);
}

#[tokio::test]
async fn what_an_operator_calls_done_is_done() {
    let site = Site::fresh().await;
    let policy = policy(&site, "gw-1");
    let gateway = Gateway::start(&policy).await;
    site.origin.script("/pay/7", [Act::Reset]);
    assert_eq!(gateway.send(&pay("a")).await.status, 502);
    let repeat = gateway.send(&pay("a")).await;
    let problem: Value = serde_json::from_slice(&repeat.body).expect("JSON");
    let reference = problem["operation_ref"].as_str().expect("a reference");
    let (code, said) = operator(&policy, &["resolve", reference, "--as", "done"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(told(&gateway.send(&pay("a")).await), already_done());
    assert_eq!(site.origin.count("/pay/7"), 1);
}

#[tokio::test]
async fn what_was_not_sent_may_run_again() {
    let site = Site::fresh().await;
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let unreachable = format!("http://{nobody}");
    let cut_off = policy(&site, "gw-1").with("/upstreams/ledger/endpoints/0", unreachable);
    let good = policy(&site, "gw-2");
    let (one, two) = tokio::join!(Gateway::start(&cut_off), Gateway::start(&good));
    for _ in 0..3 {
        assert_eq!(told(&one.send(&pay("a")).await), (502, "upstream-connect".into()));
    }
    assert_eq!(two.send(&pay("a")).await.status, 200);
    assert_eq!(told(&one.send(&pay("a")).await), already_done());
    assert_eq!(site.origin.count("/pay/7"), 1);
}

/// It is written down, and the gateway is not told so.
#[tokio::test]
async fn an_admission_whose_answer_is_lost_is_sent_once() {
    for fate in [Fate::AnswerLost, Fate::Vanishes] {
        let site = Site::fresh().await;
        let [before, name] = beside_each_other();
        let link = FaultyLink::to(site.zookeeper).await;
        let servers = json!([link.address().to_string()]);
        let policy = once(site.unswept("gw-1").with("/zookeeper/servers", servers));
        let gateway = Gateway::start(&policy).await;
        // From here on the operation has its parent, and the next transaction is the one in question.
        assert_eq!(gateway.send(&pay(&before)).await.status, 200);
        let sprung = link.trap(Operation::Admission, fate.clone());
        let asked = gateway.begin(pay(&name));
        sprung.happened().await;
        if matches!(fate, Fate::Vanishes) {
            link.cut();
            link.mend();
        }
        assert_eq!(asked.answer().await.status, 200, "{fate:?}\n{}", gateway.log());
        assert_eq!(told(&gateway.send(&pay(&name)).await), already_done(), "{fate:?}");
        assert_eq!(site.origin.count("/pay/7"), 2, "{fate:?}");
    }
}

#[tokio::test]
async fn of_many_repeats_at_once_one_is_sent() {
    let site = Site::fresh().await;
    site.origin.works_for(Duration::from_millis(20));
    let cached = |name| policy(&site, name).cached();
    let (a, b) = (cached("gw-1"), policy(&site, "gw-2"));
    let (one, two) = tokio::join!(Gateway::start(&a), Gateway::start(&b));
    for round in 0..5 {
        let name = format!("op-{round}");
        let asked = (0..12).map(|n| [&one, &two][n % 2].begin(pay(&name)).answer());
        let answers = join_all(asked).await;
        let done = answers.iter().filter(|answer| answer.status == 200).count();
        let repeated = answers.iter().filter(|answer| answer.status == 409).map(told).collect::<Vec<_>>();
        assert_eq!((done, repeated.len()), (1, 11), "{answers:?}");
        assert!(repeated.iter().all(|told| *told == already_done()), "{repeated:?}");
        assert_eq!(site.origin.count("/pay/7"), round + 1);
    }
}

#[tokio::test]
async fn nothing_is_sent_under_a_lock_that_was_lost_before() {
    let site = Site::fresh().await;
    let tree = site.tree().await;
    let gateway = site.pausing(&policy(&site, "gw-1"), "before_admission", Duration::from_millis(600)).await;
    let asked = gateway.begin(pay("a"));
    gateway.stands_at("before_admission").await;
    let locks = tree.locks().await;
    tree.delete(&locks[0]).await.expect("a stranger may");
    assert_eq!(told(&asked.answer().await), (503, "suspended".into()));
    assert_eq!(site.origin.count("/pay/7"), 0);
    assert_eq!(remembered(&tree).await, [Value::Null; 0]);
    assert_eq!(gateway.send(&pay("a")).await.status, 200);
}

#[tokio::test]
async fn one_lost_lock_of_a_set_is_enough_to_send_nothing() {
    let site = Site::fresh().await;
    let tree = site.tree().await;
    let policy = site.policy("gw-1").route(json!({
        "name": "transfer",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/transfer/{from}/{to}"},
        "fence": {"keys": ["account/{path.from}", "account/{path.to}"], "once": {"store": "zookeeper"}},
    }));
    let gateway = site.pausing(&policy, "before_admission", Duration::from_millis(600)).await;
    let transfer = || Ask::post("/transfer/1/2").field("Idempotency-Key", "a");
    let asked = gateway.begin(transfer());
    gateway.stands_at("before_admission").await;
    let locks = tree.locks().await;
    assert_eq!(locks.len(), 2, "{locks:?}");
    tree.delete(&locks[1]).await.expect("a stranger may");
    assert_eq!(told(&asked.answer().await), (503, "suspended".into()));
    assert_eq!(site.origin.count("/transfer/1/2"), 0);
    assert_eq!(gateway.send(&transfer()).await.status, 200);
    assert_eq!(told(&gateway.send(&transfer()).await), already_done());
}

#[tokio::test]
async fn a_client_that_goes_away_before_the_admission_is_answered_has_sent_nothing() {
    let site = Site::fresh().await;
    let [before, name] = beside_each_other();
    let link = FaultyLink::to(site.zookeeper).await;
    let tree = site.tree().await;
    let servers = json!([link.address().to_string()]);
    let gateway = Gateway::start(&once(site.unswept("gw-1").with("/zookeeper/servers", servers))).await;
    assert_eq!(gateway.send(&pay(&before)).await.status, 200);
    let latch = Latch::default();
    let sprung = link.trap(Operation::Admission, Fate::AnswerHeld(latch.clone()));
    let asked = gateway.begin(pay(&name));
    sprung.happened().await;
    asked.hang_up();
    tokio::time::sleep(QUIET).await;
    latch.let_go();
    let aborted = async {
        while !remembered(&tree).await.iter().any(|record| record["state"]["is"] == "aborted") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    patiently("the admission to be taken back", aborted, || gateway.log()).await;
    assert_eq!(site.origin.count("/pay/7"), 1);
    assert_eq!(gateway.send(&pay(&name)).await.status, 200);
}

/// It slept through the end of its session while the upstream worked, and gets the answer afterwards.
#[tokio::test]
async fn an_issuer_that_comes_back_writes_down_what_came_of_it_under_its_next_session() {
    let site = Site::fresh().await;
    let (a, b) = (policy(&site, "gw-1"), policy(&site, "gw-2"));
    let (one, two) = tokio::join!(Gateway::start(&a), Gateway::start(&b));
    let latch = site.origin.holds("/pay/7");
    let slow = one.begin(pay("a"));
    site.origin.request("/pay/7", 1).await;
    one.signal(Signal::STOP);
    assert_eq!(told(&two.send(&pay("a")).await), unknown());
    one.signal(Signal::CONT);
    latch.let_go();
    let answer = slow.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(Outcome::Done)));
    let known = async {
        while told(&two.send(&pay("a")).await) != already_done() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    patiently("the outcome to be known", known, || one.log()).await;
    assert_eq!(site.origin.count("/pay/7"), 1);
}

/// It is written down, its answer is lost, and its session as well: its issuer says that nothing was sent, and looks under
/// the next session what became of it. Until then others cannot know.
#[tokio::test]
async fn an_admission_whose_answer_is_lost_with_its_session_is_taken_back_and_its_repeat_is_sent() {
    let site = Site::fresh().await;
    let [before, name] = beside_each_other();
    let link = FaultyLink::to(site.zookeeper).await;
    let servers = json!([link.address().to_string()]);
    let ours = policy(&site, "gw-1").with("/zookeeper/servers", servers).with("/zookeeper/sessions", 1);
    let other = policy(&site, "gw-2");
    let (one, two) = tokio::join!(Gateway::start(&ours), Gateway::start(&other));
    assert_eq!(one.send(&pay(&before)).await.status, 200);
    let never = Latch::default();
    let sprung = link.trap(Operation::Admission, Fate::AnswerHeld(never));
    let asked = one.begin(pay(&name));
    sprung.happened().await;
    link.cut();
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.outcome()), (503, Some(Outcome::NotDispatched)), "{answer:?}");
    assert_eq!(told(&two.send(&pay(&name)).await), unknown(), "nobody can know yet");
    link.mend();
    let sent = async {
        loop {
            let repeat = two.send(&pay(&name)).await;
            if repeat.status == 200 {
                return;
            }
            assert_eq!(told(&repeat), unknown());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    patiently("the issuer to take it back", sent, || one.log()).await;
    assert_eq!(told(&one.send(&pay(&name)).await), already_done());
    assert_eq!(site.origin.count("/pay/7"), 2, "the first one, and this one once");
}

/// A cached tenure could send without a word to ZooKeeper; an operation must not.
#[tokio::test]
async fn without_zookeeper_no_operation_is_sent() {
    let site = Site::fresh().await;
    let link = FaultyLink::to(site.zookeeper).await;
    let policy = policy(&site, "gw-1")
        .with("/zookeeper/servers", json!([link.address().to_string()]))
        .with("/defaults/hold", json!({"mode": "cached", "linger": "30s"}));
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&pay("a")).await.status, 200);
    link.lose_all();
    assert_eq!(told(&gateway.send(&pay("b")).await), (503, "lock-service".into()));
    link.cut();
    link.mend();
    gateway.becomes_ready().await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 1);
    assert_eq!(gateway.send(&pay("b")).await.status, 200);
    assert_eq!(told(&gateway.send(&pay("a")).await), already_done());
}

#[tokio::test]
async fn what_is_finished_is_forgotten_in_time_and_what_is_unknown_never() {
    let site = Site::fresh().await;
    let tree = site.tree().await;
    let policy = policy(&site, "gw-1").with("/routes/0/fence/once/keep", "1s");
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&pay("a")).await.status, 200);
    site.origin.script("/pay/7", [Act::Reset]);
    assert_eq!(gateway.send(&pay("b")).await.status, 502);
    let state = |record: &Value| record["state"]["is"].as_str().map(str::to_owned);
    let forgotten = async {
        while remembered(&tree).await.len() > 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    patiently("one to be forgotten", forgotten, || gateway.log()).await;
    let left = remembered(&tree).await;
    assert_eq!(left.iter().map(state).collect::<Vec<_>>(), [Some("admitted".into())]);
    assert_eq!(gateway.send(&pay("a")).await.status, 200);
    assert_eq!(told(&gateway.send(&pay("b")).await), unknown());
}

#[tokio::test]
async fn there_are_only_so_many_operations_in_zookeeper() {
    let site = Site::fresh().await;
    let gateway = Gateway::start(&policy(&site, "gw-1")).await;
    let [first, second] = beside_each_other();
    let client = Client::connect(&site.zookeeper.to_string()).await.expect("ZooKeeper serves");
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let shelf = format!("{}/ops/{:02x}", site.root, shelf(&first));
    client.mkdir(&shelf, &persistent).await.expect("made");
    let path = |n| format!("{shelf}/other-{n}");
    for n in 0..400 {
        client.create(&path(n), b"{}", &persistent).await.expect("made");
    }
    // The first one shows how many there are.
    assert_eq!(gateway.send(&pay(&first)).await.status, 200);
    assert_eq!(told(&gateway.send(&pay(&second)).await), (503, "operations-full".into()));
    assert_eq!(told(&gateway.send(&pay(&first)).await), already_done());
    for n in 0..100 {
        client.delete(&path(n), None).await.expect("deleted");
    }
    assert_eq!(gateway.send(&pay(&second)).await.status, 200);
}
