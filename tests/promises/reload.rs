//! Another policy takes over while requests run: none of them fails or sees parts of both policies, and a bad file
//! changes nothing.
//!
//! A running request ends under its own plan. No resource is used under two keys at once. Where a route no longer
//! only observes, no request with a lock runs beside one without. A refused file does not make the log show keys.

mod mismatch;
mod resources;

use fencegate_testkit::{child::Signal, wait::QUIET};
use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, GatewayLaunch},
    origin::{Origin, OriginAction},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;

fn policy_with_ping_route(site: &TestSite) -> TestPolicy {
    site.policy("gw-1").with_route(json!({
        "name": "ping", "upstream": "ledger", "fence": "none",
        "match": {"methods": ["PUT"], "path": "/ping"},
    }))
}

async fn metric(gateway: &Gateway, name: &str, labels: &[&str]) -> f64 {
    gateway.metrics().await.sum(name, labels)
}

/// A bad file changes nothing, and the command, the log and the metrics report it.
#[tokio::test]
async fn bad_file_changes_nothing() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = Gateway::start(&policy).await;
    let before = metric(&gateway, "fencegate_config_info", &[]).await;
    gateway.rewrite(&policy.clone().with("/routes/0/fence/key", "account/{path.acount}"));
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["result"]), (Some(78), &json!("refused")), "{report}");
    let said = report["said"][0].as_str().unwrap_or_default();
    assert!(said.contains("error[FG0203]") && said.contains("policy.yaml"), "{said}");
    gateway.wait_line("the refusal", |line| line.message().starts_with("config.refused")).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(metric(&gateway, "fencegate_config_last_reload_successful", &[]).await, 0.0);
    assert_eq!(metric(&gateway, "fencegate_config_reloads_total", &["result=\"refused\""]).await, 1.0);
    assert_eq!(metric(&gateway, "fencegate_config_info", &[]).await, before);

    gateway.rewrite(&policy);
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["result"]), (Some(0), &json!("unchanged")), "{report}");
    assert_eq!(metric(&gateway, "fencegate_config_last_reload_successful", &[]).await, 1.0);
}

/// A reload that is refused at its last step does not change `log.keys`, so the log still contains no key.
///
/// The new plan is valid except for the last file, which is only read when connections are prepared.
#[tokio::test]
async fn refused_reload_keeps_log_redaction() {
    const CANARY: &str = "canary-5c1e";
    let site = TestSite::fresh().await;
    let home = tempfile::tempdir().expect("a place");
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
    // The log line of a retired tenure contains its key.
    let path = format!("/pay/{CANARY}");
    site.origin.script(&path, [OriginAction::Reset]);
    assert_eq!(gateway.send(&TestRequest::post(&path)).await.status, 502);
    gateway.wait_line("the end of the tenure", |line| line.message() == "tenure.retired").await;
    assert!(!gateway.log().contains(CANARY), "{}", gateway.log());
}

#[tokio::test]
async fn dry_run_reports_and_changes_nothing() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let other = policy_with_ping_route(&site)
        .with("/routes/0/fence/key", "konto/{path.account}")
        .with("/routes/1/name", "look")
        .with("/upstreams/ledger/response_timeout", "9s");
    gateway.rewrite(&other);
    let (code, report) = gateway.reload(&["--dry-run"]).await;
    let difference = json!({
        "added": ["look", "ping"], "removed": ["read"], "changed": ["pay"], "rekeyed": ["pay"],
        "upstreams": ["ledger"], "forgets": [], "settings": [], "restart": [],
    });
    assert_eq!((code, &report["result"], &report["difference"]), (Some(0), &json!("dry"), &difference));
    assert_eq!(gateway.send(&TestRequest::with_method("PUT", "/ping")).await.reason(), "no-route");
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["result"], &report["difference"]), (Some(0), &json!("applied"), &difference));
    assert_eq!(gateway.send(&TestRequest::with_method("PUT", "/ping")).await.status, 200);
}

/// A reload also takes over settings outside of routes and upstreams.
#[tokio::test]
async fn listener_settings_are_reloaded() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&TestRequest::get("/before")).await.status, 200);
    gateway.rewrite(&policy.with("/listeners/public/hosts", json!(["pay.example"])));
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["result"]), (Some(0), &json!("applied")), "{report}");
    assert_eq!(gateway.send(&TestRequest::get("/after")).await.reason(), "misdirected");
}

#[tokio::test]
async fn sighup_and_file_change_reload() {
    let site = TestSite::fresh().await;
    let gateway = GatewayLaunch::new(&site.policy("gw-1")).with_file_watch().start().await;
    gateway.wait_ready().await;
    let ping = TestRequest::with_method("PUT", "/ping");
    gateway.rewrite(&policy_with_ping_route(&site));
    gateway.wait_line("the change of the file", |line| line.message() == "config.reloaded").await;
    assert_eq!(gateway.send(&ping).await.status, 200);

    let gateway = site.gateway("gw-2").await;
    gateway.rewrite(&policy_with_ping_route(&site).with("/name", "gw-2"));
    gateway.signal(Signal::HUP);
    gateway.wait_line("the signal", |line| line.message() == "config.reloaded").await;
    assert_eq!(gateway.send(&ping).await.status, 200);
}

/// A request ends under the plan that it began with; the next one of its key waits and uses the new plan.
#[tokio::test]
async fn running_requests_keep_their_plan() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let elsewhere = Origin::start();
    let pay = site.origin.hold("/pay/7");
    let get = site.origin.hold("/slow");
    let running = [gateway.begin(TestRequest::post("/pay/7")), gateway.begin(TestRequest::get("/slow"))];
    site.origin.wait_for_request("/pay/7", 1).await;
    site.origin.wait_for_request("/slow", 1).await;
    let endpoint = format!("http://{}", elsewhere.open_listener("gw-1"));
    gateway.rewrite(&site.policy("gw-1").with("/upstreams/ledger/endpoints", json!([endpoint])));
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    assert_eq!(gateway.send(&TestRequest::get("/slow")).await.status, 200);
    assert_eq!((elsewhere.count("/slow"), site.origin.count("/slow")), (1, 1));
    // The key is the same in both plans. The next request waits for the first one, and goes to the endpoint of the
    // new plan.
    let next = gateway.begin(TestRequest::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(elsewhere.count("/pay/7"), 0);
    pay.release();
    get.release();
    for running in running {
        assert_eq!(running.answer().await.status, 200);
    }
    assert_eq!(next.answer().await.status, 200);
    assert_eq!((elsewhere.count("/pay/7"), site.origin.count("/pay/7")), (1, 1));
}

/// A file that would change a setting which needs a restart is refused as a whole, however the reload is requested,
/// until the file has the earlier setting again.
#[tokio::test]
async fn plan_that_needs_restart_changes_nothing() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = Gateway::start(&policy).await;
    let with_ping = policy_with_ping_route(&site);
    for (field, value, told) in [
        ("/zookeeper/session_timeout", json!("3s"), "zookeeper"),
        ("/listeners/public/protocols", json!(["http1"]), "listeners"),
        ("/name", json!("gw-2"), "name"),
        ("/state_dir", json!("/nowhere"), "state_dir"),
    ] {
        gateway.rewrite(&with_ping.clone().with(field, value));
        for more in [&["--dry-run"][..], &[], &[]] {
            let (code, report) = gateway.reload(more).await;
            assert_eq!(
                (code, &report["result"]),
                (Some(78), &json!("refused")),
                "{field} {more:?}: {report}"
            );
            assert_eq!(report["difference"]["restart"], json!([told]), "{report}");
            assert!(report["said"].to_string().contains("FG0553"), "{report}");
        }
        assert_eq!(
            gateway.send(&TestRequest::with_method("PUT", "/ping")).await.reason(),
            "no-route",
            "{field}"
        );
    }
    gateway.rewrite(&with_ping);
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["result"]), (Some(0), &json!("applied")), "{report}");
    assert_eq!(gateway.send(&TestRequest::with_method("PUT", "/ping")).await.status, 200);
    gateway.rewrite(&policy);
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
}
