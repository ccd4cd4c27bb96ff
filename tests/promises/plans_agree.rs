//! Gateways whose plans would lock one resource in two ways never both serve it: the younger one refuses until their
//! plans are compatible.
//!
//! Unfenced routes and the names of routes do not count. A gateway that reloads gives way. A new gateway gives way to
//! a dead predecessor, and to a build that publishes no plan. `reload --dry-run --fleet` reports the conflict
//! beforehand.

use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

/// The gauge of routes that are refused because of other gateways.
const REFUSED: &str = "fencegate_config_refused_routes";

fn conflicting_policy(site: &TestSite, name: &str) -> TestPolicy {
    site.policy(name).with("/routes/0/fence/key", "konto/{path.account}")
}

async fn send_payment(gateway: &Gateway) -> ClientResponse {
    gateway.send(&TestRequest::post("/pay/7")).await
}

async fn assert_plan_refused(gateway: &Gateway) {
    gateway.wait_gauge(REFUSED, 1.0).await;
    let refused = send_payment(gateway).await;
    let told = (refused.status, refused.reason(), refused.outcome());
    assert_eq!(told, (503, "config-mismatch".to_owned(), Some(FencingOutcome::NotDispatched)));
}

async fn wait_serving_again(gateway: &Gateway) {
    gateway.wait_gauge(REFUSED, 0.0).await;
    assert_eq!(send_payment(gateway).await.status, 200);
}

/// Of two templates for one resource the older gateway's is served; the younger gateway refuses the route meanwhile.
#[tokio::test]
async fn older_template_wins_over_younger() {
    let site = TestSite::fresh().await;
    let first = site.gateway("gw-1").await;
    let second = Gateway::start(&conflicting_policy(&site, "gw-2")).await;
    assert_plan_refused(&second).await;
    let said = second.wait_line("because of whom", |line| line.field("code") == "FG0550").await;
    assert_eq!((said.field("routes"), said.field("gateways")), ("pay", "gw-1"));
    assert_eq!(
        second.send(&TestRequest::get("/read")).await.status,
        200,
        "unfenced requests are nobody else's business"
    );
    assert_eq!(send_payment(&first).await.status, 200);
    assert_eq!(first.metrics().await.sum(REFUSED, &[]), 0.0);
    // The younger gateway refuses one route, and still serves a route that both lock alike.
    second.rewrite(&conflicting_policy(&site, "gw-2").with_route(common_route()));
    first.rewrite(&site.policy("gw-1").with_route(common_route()));
    for gateway in [&first, &second] {
        assert_eq!(gateway.reload(&[]).await.0, Some(0));
    }
    assert_eq!(second.send(&TestRequest::post("/book/7")).await.status, 200);
    first.stop().await;
    wait_serving_again(&second).await;
}

/// A route that is the same in both policies.
fn common_route() -> Value {
    json!({
        "name": "book", "upstream": "ledger", "fence": {"key": "book/{path.id}"},
        "match": {"methods": ["POST"], "path": "/book/{id}"},
    })
}

#[tokio::test]
async fn unfenced_or_renamed_routes_are_compatible() {
    let site = TestSite::fresh().await;
    let first = site.gateway("gw-1").await;
    let renamed = site
        .policy("gw-2")
        .with("/routes/0/name", "zahlen")
        .with("/routes/0/match/path", "/pay/{konto}")
        .with("/routes/0/fence/key", "account/{path.konto}")
        .with("/routes/0/fence/wait", "1s")
        .with_route(json!({
            "name": "ping", "upstream": "ledger", "fence": "none",
            "match": {"methods": ["PUT"], "path": "/ping"},
        }));
    let second = Gateway::start(&renamed).await;
    for gateway in [&first, &second] {
        assert_eq!(send_payment(gateway).await.status, 200);
        assert_eq!(gateway.metrics().await.sum(REFUSED, &[]), 0.0);
    }
}

/// With `allow_mixed` a gateway serves beside an incompatible one and warns.
#[tokio::test]
async fn allow_mixed_serves_with_warning() {
    let site = TestSite::fresh().await;
    let first = site.gateway("gw-1").await;
    let second = Gateway::start(&conflicting_policy(&site, "gw-2").with("/allow_mixed", true)).await;
    second.wait_line("that it is let be", |line| line.field("code") == "FG0254").await;
    assert_eq!((send_payment(&first).await.status, send_payment(&second).await.status), (200, 200));
    // Without `allow_mixed` the gateway refuses the route at once.
    second.rewrite(&conflicting_policy(&site, "gw-2"));
    assert_eq!(second.reload(&[]).await.0, Some(0));
    assert_plan_refused(&second).await;
}

/// Two incompatible gateways that start at the same time never both serve a resource.
///
/// Each gateway makes its own node before it looks at the others. So at least one of two gateways sees the other.
#[tokio::test]
async fn concurrent_starts_never_both_serve() {
    let site = TestSite::fresh().await;
    let many = |policy: TestPolicy| policy.with("/zookeeper/sessions", 3);
    for round in 0..3 {
        let [one, two] = [
            many(site.policy(&format!("one-{round}"))),
            many(conflicting_policy(&site, &format!("two-{round}"))),
        ];
        let (one, two) = tokio::join!(GatewayLaunch::new(&one).start(), GatewayLaunch::new(&two).start());
        tokio::join!(one.wait_ready(), two.wait_ready());
        for account in 0..8 {
            let ask = TestRequest::post(&format!("/pay/{account}"));
            let (one, two) = tokio::join!(one.send(&ask), two.send(&ask));
            let served = [&one, &two].map(|answer| answer.status == 200);
            assert_ne!(served, [true, true], "{account}: {one:?} {two:?}");
            for answer in [one, two].iter().filter(|answer| answer.status != 200) {
                assert_eq!(answer.reason(), "config-mismatch");
            }
        }
        // A gateway that is alone serves.
        one.stop().await;
        wait_serving_again(&two).await;
        two.stop().await;
    }
}

#[tokio::test]
async fn fleet_dry_run_names_incompatible_gateways() {
    let site = TestSite::fresh().await;
    let (first, second) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let (code, report) = first.reload(&["--dry-run", "--fleet"]).await;
    let told = |report: &Value| (report["fleet"]["safe"].clone(), report["fleet"]["routes"].clone());
    let agrees = json!([{"route": "pay", "agrees": true, "unlike": []}]);
    assert_eq!((code, told(&report)), (Some(0), (json!(true), agrees)), "{report}");
    assert_eq!(report["fleet"]["gateways"], json!(["gw-2"]));
    first.rewrite(&conflicting_policy(&site, "gw-1"));
    let (code, report) = first.reload(&["--dry-run", "--fleet"]).await;
    let unlike = json!([{"route": "pay", "agrees": false, "unlike": ["gw-2"]}]);
    assert_eq!((code, told(&report)), (Some(3), (json!(false), unlike)), "{report}");
    // The dry run changed nothing.
    assert_eq!((send_payment(&first).await.status, send_payment(&second).await.status), (200, 200));
    second.stop().await;
    let (code, report) = first.reload(&["--dry-run", "--fleet"]).await;
    assert_eq!((code, &report["fleet"]["safe"]), (Some(0), &json!(true)), "{report}");
}

/// A gateway that reloads other templates gives way until all gateways have them.
///
/// A gateway that changes its templates counts as the younger one, and first finishes its earlier requests.
#[tokio::test]
async fn reloaded_template_waits_for_agreement() {
    let site = TestSite::fresh().await;
    let (first, second) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let begun = site.origin.hold_request(&first, TestRequest::post("/pay/9")).await;
    first.rewrite(&conflicting_policy(&site, "gw-1"));
    assert_eq!(first.reload(&[]).await.0, Some(0));
    // A request under the old template continues, and until it ends no other gateway learns of the new template.
    assert_eq!(second.metrics().await.sum(REFUSED, &[]), 0.0);
    assert_eq!(begun.finish().await.status, 200);
    assert_plan_refused(&first).await;
    assert_eq!(send_payment(&second).await.status, 200);
    second.rewrite(&conflicting_policy(&site, "gw-2"));
    assert_eq!(second.reload(&[]).await.0, Some(0));
    wait_serving_again(&first).await;
    wait_serving_again(&second).await;
    let log = site.origin.log();
    let keys: Vec<_> = log.requests_for("/pay/7").filter_map(|record| record.key()).collect();
    assert_eq!(keys, ["account/7", "konto/7", "konto/7"]);
}

/// A gateway with other templates that starts in place of a killed one waits until the session of the killed one is
/// over.
///
/// Requests of the dead process may still run, and its member node shows its templates until the session is over.
#[tokio::test]
async fn successor_waits_for_dead_session() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/zookeeper/session_timeout", "6s");
    let first = Gateway::start(&policy).await;
    first.signal(Signal::KILL);
    first.exit().await;
    let same = Gateway::start(&policy).await;
    assert_eq!(send_payment(&same).await.status, 200, "with the same templates there is nothing to wait for");
    same.signal(Signal::KILL);
    same.exit().await;
    let next = Gateway::start(&conflicting_policy(&site, "gw-1")).await;
    assert_plan_refused(&next).await;
    wait_serving_again(&next).await;
}

/// A gateway yields to an earlier version, however old it is itself, because earlier versions do not read other plans.
#[tokio::test]
async fn earlier_build_takes_precedence() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let tree = site.tree().await;
    let config: Value = serde_json::from_slice(&gateway.admin("/api/v1/config").await.body).expect("JSON");
    let ours = config["fingerprint"].as_str().expect("a fingerprint").to_owned();
    let member = |plan: &str| format!(r#"{{"format":2,"version":"0.0.9","plan":"{plan}"}}"#);
    let node = "/members/old-0000000000000001";
    tree.create(node, member(&ours).as_bytes()).await;
    gateway.wait_gauge(REFUSED, 0.0).await;
    assert_eq!(send_payment(&gateway).await.status, 200);
    tree.set(node, member("00000000000000ff").as_bytes()).await;
    // Each session checks the other gateways by itself.
    let given_way = async { while send_payment(&gateway).await.status == 200 {} };
    wait_until("it to give way", given_way, || gateway.log()).await;
    assert_plan_refused(&gateway).await;
    tree.delete(node).await.expect("deleted");
    wait_serving_again(&gateway).await;
}

/// A node that a session leaves beside its member node does not count as a gateway. A session makes one after a
/// reconnect, to see whether the connection is still its own, and a session that is cut off leaves it until it ends.
#[tokio::test]
async fn reconnect_probe_node_is_no_gateway() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let tree = site.tree().await;
    tree.create("/members/gw-2-0000000000000001-probe", b"").await;
    // The check has seen the node above when it has seen this real member of an earlier version.
    let node = "/members/old-0000000000000002";
    tree.create(node, br#"{"format":2,"version":"0.0.9","plan":"00000000000000ff"}"#).await;
    // Each session checks the other gateways by itself.
    let given_way = async { while send_payment(&gateway).await.status == 200 {} };
    wait_until("it to give way", given_way, || gateway.log()).await;
    assert_plan_refused(&gateway).await;
    tree.delete(node).await.expect("deleted");
    wait_serving_again(&gateway).await;
}

/// Each session names the published plan of its gateway, and the plan is removed when no session names it any more.
///
/// A session ends with its member nodes, and a plan that a gateway names always exists.
#[tokio::test]
async fn published_plan_ends_with_session() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&site.policy("gw-1").with("/zookeeper/sessions", 2)).await;
    let tree = site.tree().await;
    let named = async || {
        let paths = tree.paths().await;
        let nodes: Vec<&str> = paths.iter().filter_map(|path| path.strip_prefix("/plans/")).collect();
        let namings = nodes.iter().filter(|node| node.contains('/')).count();
        (nodes.len() - namings, namings)
    };
    assert_eq!(named().await, (1, 2));
    gateway.rewrite(&conflicting_policy(&site, "gw-1").with("/zookeeper/sessions", 2));
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    wait_serving_again(&gateway).await;
    gateway.stop().await;
    // The server may remove a plan some time later, but no member names it any more.
    assert_eq!(named().await.1, 0);
}
