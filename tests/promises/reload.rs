//! Another policy takes over while requests run: none of them fails or sees half of each, and a bad file changes nothing.

use std::time::Duration;

use fencegate::demo::child::Signal;
use fencegate_tests::{
    client::{Answer, Ask, Outcome},
    gateway::{Gateway, Launch},
    history::{ATTEMPT, History},
    load::{Load, Plan},
    origin::{Act, Latch, Origin, Reply},
    patience::{QUIET, patiently},
    policy::Policy,
    site::Site,
};
use serde_json::{Value, json};

fn unmatched_to_nobody(site: &Site) -> Policy {
    site.policy("gw-1").route(json!({
        "name": "ping", "upstream": "ledger", "fence": "none",
        "match": {"methods": ["PUT"], "path": "/ping"},
    }))
}

async fn metric(gateway: &Gateway, name: &str, labels: &[&str]) -> f64 {
    gateway.metrics().await.sum(name, labels)
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_is_told() {
    let site = Site::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = Gateway::start(&policy).await;
    let before = metric(&gateway, "fencegate_config_info", &[]).await;
    gateway.rewrite(&policy.clone().with("/routes/0/fence/key", "account/{path.acount}"));
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["result"]), (Some(78), &json!("refused")), "{report}");
    let said = report["said"][0].as_str().unwrap_or_default();
    assert!(said.contains("error[FG0203]") && said.contains("policy.yaml"), "{said}");
    gateway.says("the refusal", |line| line.message().starts_with("config.refused")).await;
    assert_eq!(gateway.send(&Ask::post("/pay/7")).await.status, 200);
    assert_eq!(metric(&gateway, "fencegate_config_last_reload_successful", &[]).await, 0.0);
    assert_eq!(metric(&gateway, "fencegate_config_reloads_total", &["result=\"refused\""]).await, 1.0);
    assert_eq!(metric(&gateway, "fencegate_config_info", &[]).await, before);

    gateway.rewrite(&policy);
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["result"]), (Some(0), &json!("unchanged")), "{report}");
    assert_eq!(metric(&gateway, "fencegate_config_last_reload_successful", &[]).await, 1.0);
}

/// Everything was in order but the last file, which is only read when connections are prepared.
#[tokio::test]
async fn a_file_that_is_refused_at_the_last_step_does_not_let_the_log_tell_keys() {
    const CANARY: &str = "canary-5c1e";
    let (site, home) = (Site::fresh().await, tempfile::tempdir().expect("a place"));
    let policy = site.policy("gw-1").with("/log", json!({"keys": "off"}));
    let gateway = Gateway::start(&policy).await;
    let unusable = home.path().join("ca.pem");
    std::fs::write(&unusable, "no certificate").expect("written");
    let secured = policy
        .with("/log/keys", "plain")
        .with("/upstreams/ledger/endpoints", json!(["https://127.0.0.1:1"]))
        .with("/upstreams/ledger/tls", json!({"ca_file": unusable}));
    gateway.rewrite(&secured);
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["result"]), (Some(78), &json!("refused")), "{report}");
    // A tenure that retires is told with its key.
    let path = format!("/pay/{CANARY}");
    site.origin.script(&path, [Act::Reset]);
    assert_eq!(gateway.send(&Ask::post(&path)).await.status, 502);
    gateway.says("the end of the tenure", |line| line.message() == "tenure.retired").await;
    assert!(!gateway.log().contains(CANARY), "{}", gateway.log());
}

#[tokio::test]
async fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let site = Site::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let other = unmatched_to_nobody(&site)
        .with("/routes/0/fence/key", "konto/{path.account}")
        .with("/routes/1/name", "look")
        .with("/zookeeper/session_timeout", "3s")
        .with("/upstreams/ledger/response_timeout", "9s");
    gateway.rewrite(&other);
    let (code, report) = gateway.reload(&["--dry-run"]).await;
    let difference = json!({
        "added": ["look", "ping"], "removed": ["read"], "changed": ["pay"], "rekeyed": ["pay"],
        "upstreams": ["ledger"], "forgets": [], "settings": [], "restart": ["zookeeper"],
    });
    assert_eq!((code, &report["result"], &report["difference"]), (Some(0), &json!("dry"), &difference));
    assert_eq!(gateway.send(&Ask::with_method("PUT", "/ping")).await.reason(), "no-route");
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["result"], &report["difference"]), (Some(0), &json!("applied"), &difference));
    assert_eq!(gateway.send(&Ask::with_method("PUT", "/ping")).await.status, 200);
}

/// What stands outside of routes and upstreams is no less in force.
#[tokio::test]
async fn limits_of_the_listener_are_taken_over() {
    let site = Site::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&Ask::get("/before")).await.status, 200);
    gateway.rewrite(&policy.with("/listeners/public/hosts", json!(["pay.example"])));
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["result"]), (Some(0), &json!("applied")), "{report}");
    assert_eq!(gateway.send(&Ask::get("/after")).await.reason(), "misdirected");
}

#[tokio::test]
async fn sighup_and_a_watched_file_are_read_again() {
    let site = Site::fresh().await;
    let gateway = Launch::new(&site.policy("gw-1")).watching().start().await;
    gateway.becomes_ready().await;
    let ping = Ask::with_method("PUT", "/ping");
    gateway.rewrite(&unmatched_to_nobody(&site));
    gateway.says("the change of the file", |line| line.message() == "config.reloaded").await;
    assert_eq!(gateway.send(&ping).await.status, 200);

    let gateway = site.gateway("gw-2").await;
    gateway.rewrite(&unmatched_to_nobody(&site));
    gateway.signal(Signal::HUP);
    gateway.says("the signal", |line| line.message() == "config.reloaded").await;
    assert_eq!(gateway.send(&ping).await.status, 200);
}

#[tokio::test]
async fn what_runs_ends_under_the_plan_it_began_with() {
    let site = Site::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let elsewhere = Origin::start();
    let (pay, get) = (site.origin.holds("/pay/7"), site.origin.holds("/slow"));
    let running = [gateway.begin(Ask::post("/pay/7")), gateway.begin(Ask::get("/slow"))];
    site.origin.request("/pay/7", 1).await;
    site.origin.request("/slow", 1).await;
    let endpoint = format!("http://{}", elsewhere.door("gw-1"));
    gateway.rewrite(&site.policy("gw-1").with("/upstreams/ledger/endpoints", json!([endpoint])));
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    assert_eq!(gateway.send(&Ask::get("/slow")).await.status, 200);
    assert_eq!((elsewhere.count("/slow"), site.origin.count("/slow")), (1, 1));
    // The key is the same, so the next one waits for the first, and goes where the new plan says.
    let next = gateway.begin(Ask::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(elsewhere.count("/pay/7"), 0);
    pay.let_go();
    get.let_go();
    for running in running {
        assert_eq!(running.answer().await.status, 200);
    }
    assert_eq!(next.answer().await.status, 200);
    assert_eq!((elsewhere.count("/pay/7"), site.origin.count("/pay/7")), (1, 1));
}

/// The resource is the same, the lock is not: only waiting keeps the two apart.
#[tokio::test]
async fn a_resource_is_not_worked_on_under_its_old_and_its_new_key_at_once() {
    let site = Site::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let held = site.origin.holds("/pay/7");
    let old = gateway.begin(Ask::post("/pay/7").field(ATTEMPT, "old"));
    site.origin.request("/pay/7", 1).await;
    gateway.rewrite(
        &site
            .policy("gw-1")
            .with("/routes/0/fence/key", "konto/{path.account}")
            .with("/routes/0/fence/wait", "1s"),
    );
    assert_eq!(gateway.reload(&[]).await.1["result"], "applied");
    let refused: Answer = gateway.send(&Ask::post("/pay/7")).await;
    assert_eq!((refused.status, refused.outcome()), (423, Some(Outcome::NotDispatched)));
    let new = gateway.begin(Ask::post("/pay/7").field(ATTEMPT, "new"));
    assert_eq!(gateway.send(&Ask::get("/other")).await.status, 200, "unfenced requests do not wait");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(site.origin.count("/pay/7"), 1);
    held.let_go();
    assert_eq!(old.answer().await.status, 200);
    assert_eq!(new.answer().await.status, 200);
    let log = site.origin.log();
    let keys: Vec<_> = log.on("/pay/7").filter_map(|record| record.key()).collect();
    assert_eq!(keys, ["account/7", "konto/7"]);
    by_account(History::of(&log)).assert_holds();
}

/// Whatever was taken over before it, and whatever is after it: who runs under the old key is waited for.
#[tokio::test]
async fn changes_that_move_no_key_neither_hide_who_runs_under_an_old_one_nor_let_anybody_in() {
    let site = Site::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let held = site.origin.holds("/pay/7");
    let old = gateway.begin(Ask::post("/pay/7").field(ATTEMPT, "old"));
    site.origin.request("/pay/7", 1).await;
    let policy = |key: &str, queue: usize| {
        let policy = site.policy("gw-1").with("/routes/0/fence/key", key);
        policy.with("/routes/0/fence/queue", queue)
    };
    for policy in [
        policy("account/{path.account}", 41),
        policy("konto/{path.account}", 41),
        policy("konto/{path.account}", 42),
    ] {
        gateway.rewrite(&policy);
        assert_eq!(gateway.reload(&[]).await.1["result"], "applied");
    }
    let new = gateway.begin(Ask::post("/pay/7").field(ATTEMPT, "new"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 1, "worked on under both keys");
    held.let_go();
    assert_eq!(old.answer().await.status, 200);
    assert_eq!(new.answer().await.status, 200);
    by_account(History::of(&site.origin.log())).assert_holds();
}

/// Whichever service the account lives at, and whatever it is called there: who still works on it under the first plan is
/// waited for, though the plan in between knew nothing of it.
#[tokio::test]
async fn a_route_that_went_and_came_back_at_another_service_waits_for_who_began_before() {
    let site = Site::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = Gateway::start(&policy).await;
    let elsewhere = Origin::start();
    let held = site.origin.holds("/pay/7");
    let old = gateway.begin(Ask::post("/pay/7"));
    site.origin.request("/pay/7", 1).await;
    let without = policy.without_route("pay");
    let back = without
        .clone()
        .with("/upstreams/treasury/endpoints", json!([format!("http://{}", elsewhere.door("gw-1"))]))
        .with("/upstreams/treasury/fencing", "upstream")
        .route(json!({
            "name": "charge", "upstream": "treasury", "match": {"methods": ["POST"], "path": "/pay/{account}"},
            "fence": {"key": "konto/{path.account}", "wait": "5s"},
        }));
    for policy in [&without, &back] {
        gateway.rewrite(policy);
        assert_eq!(gateway.reload(&[]).await.1["result"], "applied");
    }
    let new = gateway.begin(Ask::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(elsewhere.count("/pay/7"), 0, "worked on under both keys");
    held.let_go();
    assert_eq!(old.answer().await.status, 200);
    assert_eq!(new.answer().await.status, 200);
    assert_eq!(elsewhere.count("/pay/7"), 1);
}

/// What is not in use is told as often as somebody asks, and no longer than that.
#[tokio::test]
async fn a_change_that_needs_a_restart_is_told_until_it_is_taken_back() {
    let site = Site::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = Gateway::start(&policy).await;
    let restart = async |policy: &Policy| {
        gateway.rewrite(policy);
        let (code, report) = gateway.reload(&[]).await;
        assert_eq!(code, Some(0), "{report}");
        assert_eq!(report["difference"]["settings"], json!([]), "{report}");
        (report["result"].clone(), report["difference"]["restart"].clone())
    };
    let other = policy
        .clone()
        .with("/zookeeper/session_timeout", "3s")
        .with("/listeners/public/protocols", json!(["http1"]));
    assert_eq!(restart(&other).await, (json!("applied"), json!(["listeners", "zookeeper"])));
    assert_eq!(restart(&other).await, (json!("unchanged"), json!(["listeners", "zookeeper"])));
    assert_eq!(restart(&policy).await.1, json!([]), "what it was started with");
    assert_eq!(restart(&policy).await, (json!("unchanged"), json!([])));
}

/// Looking on refuses nothing; but what is told to stop takes nothing on.
#[tokio::test]
async fn a_route_that_only_observes_does_not_refuse_what_waited_in_vain_for_the_last_plan() {
    let site = Site::fresh().await;
    let policy = site.policy("gw-1").with("/listeners/public/timeouts/drain", "4s");
    let gateway = Gateway::start(&policy).await;
    let held = site.origin.holds("/pay/7");
    let old = gateway.begin(Ask::post("/pay/7"));
    site.origin.request("/pay/7", 1).await;
    gateway.rewrite(
        &policy
            .with("/routes/0/fence/key", "konto/{path.account}")
            .with("/routes/0/fence/wait", "1m")
            .with("/routes/0/fence/enforce", "observe"),
    );
    assert_eq!(gateway.reload(&[]).await.1["result"], "applied");
    let passed = gateway.send(&Ask::post("/pay/7").field("prefer", "wait=1")).await;
    assert_eq!((passed.status, passed.outcome()), (200, Some(Outcome::Done)));
    assert!(
        passed.field("fencing-outcome").is_some_and(|text| text.contains("observe=locked")),
        "{passed:?}"
    );
    assert_eq!(site.origin.request("/pay/7", 2).await.token(), None, "nobody holds the key for it");

    let waits = gateway.begin(Ask::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    gateway.signal(Signal::TERM);
    let told = waits.answer().await;
    assert_eq!((told.status, told.reason().as_str()), (503, "draining"));
    held.let_go();
    assert_eq!(old.answer().await.status, 200);
    assert_eq!(site.origin.count("/pay/7"), 2);
}

/// Nothing was promised to what passed without a lock; but to who comes after the change.
#[tokio::test]
async fn who_comes_when_a_route_no_longer_only_observes_waits_for_what_passed_without_a_lock() {
    let site = Site::fresh().await;
    let policy = site
        .policy("gw-1")
        .with("/routes/0/match/path", "/pay")
        .with("/routes/0/fence/key", "account/{header.x-account}");
    let gateway = Gateway::start(&policy.clone().with("/routes/0/fence/enforce", "observe")).await;
    let latch = Latch::default();
    site.origin.script("/pay", [Act::HoldInBody(latch.clone(), Reply::with_body(vec![7; 1 << 20]))]);
    let unlocked = gateway.begin(Ask::post("/pay"));
    assert_eq!(site.origin.request("/pay", 1).await.token(), None, "it names no account");
    gateway.rewrite(&policy);
    assert_eq!(gateway.reload(&[]).await.1["difference"]["rekeyed"], json!(["pay"]));
    let first = gateway.begin(Ask::post("/pay").field("x-account", "7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay"), 1, "it began beside one without a lock");
    latch.let_go();
    assert_eq!(unlocked.answer().await.status, 200);
    assert_eq!(first.answer().await.status, 200);
}

/// Under the name of the account alone: which key it had, depends on the plan of the moment.
fn by_account(mut history: History) -> History {
    for execution in &mut history.executions {
        execution.key = execution.key.split('/').next_back().unwrap_or_default().to_owned();
    }
    history
}

#[tokio::test]
async fn under_load_no_reload_fails_a_request_or_lets_two_keys_of_one_resource_meet() {
    let site = Site::fresh().await;
    let policy = |round: usize| {
        let prefix = if round % 3 == 1 { "konto" } else { "account" };
        let key = if round % 5 == 4 { Value::Null } else { json!(format!("{prefix}/{{path.account}}")) };
        site.policy("gw-1")
            .cached()
            .with("/routes/0/fence/key", key)
            .with("/routes/0/fence/queue", 40 + round)
    };
    let gateway = Gateway::start(&policy(0)).await;
    let plan = Plan {
        gateways: vec![gateway.public],
        paths: (0..4).map(|account| format!("/pay/{account}")).collect(),
        clients: 8,
        requests: 100_000,
        pause: Duration::ZERO,
    };
    let load = Load::start("reload", &plan);
    for round in 1..20 {
        site.origin.request("/pay/0", site.origin.count("/pay/0") + 5).await;
        gateway.rewrite(&policy(round));
        let (code, report) = gateway.reload(&[]).await;
        assert_eq!(code, Some(if round % 5 == 4 { 78 } else { 0 }), "{report}");
    }
    let told = load.stop().await;
    assert!(told.len() > 200, "not exercised: {} requests", told.len());
    for told in &told {
        let answer = told.answer.as_ref().expect("an answer");
        assert_eq!((answer.status, answer.outcome()), (200, Some(Outcome::Done)), "{answer:?}");
    }
    let history = by_account(History::of(&site.origin.log()).with(&told));
    assert!(history.executions.len() >= told.len());
    history.assert_holds();
}

/// Metrics are told to whoever asks, there is no event.
async fn counts_unlike(gateway: &Gateway, gateways: f64) {
    let reached = async {
        while metric(gateway, "fencegate_config_mismatch", &[]).await != gateways {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    patiently(&format!("{gateways} gateways with other locks"), reached, || gateway.log()).await;
}

/// Its sessions tell of the new plan with their next heartbeats: until then they differ among themselves.
#[tokio::test]
async fn a_gateway_of_several_sessions_that_changes_its_keys_is_not_taken_for_another_one() {
    let site = Site::fresh().await;
    let policy = |key: &str| {
        site.policy("gw-1")
            // Many, so that their heartbeats do not come at one time.
            .with("/zookeeper/sessions", 48)
            .with("/zookeeper/session_timeout", "12s")
            .with("/routes/0/fence/key", format!("{key}/{{path.account}}"))
    };
    let gateway = Gateway::start(&policy("account")).await;
    for key in ["konto", "account", "konto"] {
        gateway.rewrite(&policy(key));
        let (code, report) = gateway.reload(&[]).await;
        assert_eq!((code, &report["result"]), (Some(0), &json!("applied")), "{report}");
        // Some session looks within a second.
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert!(!gateway.log().contains("FG0515"), "it met itself: {}", gateway.log());
    }
}

#[tokio::test]
async fn gateways_that_lock_other_keys_are_counted_and_named_until_they_agree() {
    let site = Site::fresh().await;
    let (first, third) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-3"));
    let other = site.policy("gw-2").with("/routes/0/fence/key", "konto/{path.account}");
    let second = Gateway::start(&other).await;
    let named = first.says("who differs", |line| line.message().ends_with("lock other keys")).await;
    assert_eq!((named.field("code"), named.field("gateways")), ("FG0515", "gw-2"));
    counts_unlike(&first, 1.0).await;
    counts_unlike(&third, 1.0).await;
    // Who is alone with its keys differs from both others.
    counts_unlike(&second, 2.0).await;
    second.rewrite(&site.policy("gw-2"));
    let (code, report) = second.reload(&[]).await;
    assert_eq!((code, &report["result"]), (Some(0), &json!("applied")), "{report}");
    for gateway in [&first, &second, &third] {
        counts_unlike(gateway, 0.0).await;
    }
    first.says("that all agree", |line| line.message().ends_with("lock the same keys")).await;
}
