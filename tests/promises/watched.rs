//! The shipped Prometheus configuration, dashboards and rules, on gateways and guards under load. One gateway is
//! paused past the end of its session, and one guard has its store in a database.
//!
//! Every panel and every rule finds data in a real Prometheus, and the right alerts fire.

use std::{fs, time::Duration};

use fencegate_testkit::{child::Signal, fault_proxy::FaultProxy, postgres::fresh_database, wait::wait_until};
use fencegate_tests::{
    client::TestRequest,
    gateway::Gateway,
    guarded::GuardedSite,
    load::{LoadPlan, RunningLoad},
    prometheus::{Prometheus, deploy},
    shared_database::SharedDatabase,
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{
    admin_page::assert_shows_lost_sessions,
    identity::{IssuerKey, issuer, rotation::KeyServer},
    tls::TlsFiles,
};

const OLD: &str = "the-old-one";

/// The values that Grafana would put in the place of its variables: everything, four scrapes, and the time range.
const VARIABLES: [(&str, &str); 6] = [
    ("$__rate_interval", "4s"),
    ("$__range", "300s"),
    ("$cluster", ".*"),
    ("$job", "fencegate|fencegate-guard"),
    ("$route", ".*"),
    ("$instance", ".*"),
];

/// The processes that Prometheus watches, and Prometheus.
struct MonitoredSite {
    prometheus: Prometheus,
    _guarded: GuardedSite,
}

impl MonitoredSite {
    /// Stops a gateway whose request is on its way, and lets another gateway get its key. The request arrives too late,
    /// and then the first gateway is resumed.
    async fn run_accident() -> Self {
        let guarded = GuardedSite::fresh().await;
        let keys = TlsFiles::new();
        let guard = guarded.guard().await;
        let relay = FaultProxy::start(guard.public);
        let policy = |name: &str, upstream| guarded.policy(name, &[upstream]).with_cached_hold();
        // This gateway gets no requests. It has a certificate, and fetches the keys of an issuer.
        let issuer_keys = KeyServer::start(&[&IssuerKey::new("a")]);
        let secured = policy("secured", guard.public)
            .with("/jwt", json!([issuer(("jwks_url", &issuer_keys.url()))]))
            .with("/listeners/public/tls", json!({"certificates": [keys.write("a", "pay.example")]}));
        let victim = policy("victim", relay.address);
        let next = policy("next", guard.public);
        let (victim, next, secured) =
            tokio::join!(Gateway::start(&victim), Gateway::start(&next), Gateway::start(&secured));
        let database = spawn_blocking(fresh_database).await.expect("no panic");
        let sharing = SharedDatabase::new(&database.url());
        let [shared, _] = guarded.launch_pair(&sharing).await;
        let shared = shared.start().await;
        let before_it = guarded.gateway_through("before-it", &[shared.public]).await;
        let gateways = [victim.admin, next.admin, secured.admin];
        let prometheus = Prometheus::start(&gateways, &[guard.admin, shared.admin]).await;
        let plan = LoadPlan {
            gateways: vec![victim.public, next.public],
            paths: (0..2).map(|key| format!("/pay/{key}")).collect(),
            clients: 6,
            requests: 10_000,
            pause: Duration::from_millis(40),
        };
        let load = RunningLoad::start("load", &plan);
        let apart = LoadPlan {
            gateways: vec![before_it.public],
            paths: vec!["/pay/shared".to_owned()],
            clients: 2,
            ..plan.clone()
        };
        let load_apart = RunningLoad::start("apart", &apart);
        assert_eq!(next.send(&TestRequest::post("/nowhere")).await.status, 404);
        // A counter must have been scraped at zero before it grows.
        wait_series(&prometheus, "rate(fencegate_zk_session_expirations_total[4s])", 3).await;

        let hold = relay.hold_containing(OLD);
        let asked = victim.begin(TestRequest::post("/pay/7").field("x-attempt", OLD));
        hold.wait_captured().await;
        let refused = next.send(&TestRequest::post("/pay/7").field("prefer", "wait=0")).await;
        assert_eq!(refused.status, 423, "somebody is refused on the route");
        victim.signal(Signal::STOP);
        assert_eq!(next.send(&TestRequest::post("/pay/7")).await.status, 200);
        hold.release();
        guard.wait_decisions("stale", 1.0).await;
        victim.signal(Signal::CONT);
        asked.result().await.ok();
        victim.wait_ready().await;
        wait_firing(&prometheus, "FencegateStaleTokenRejected").await;
        wait_firing(&prometheus, "FencegateSessionExpired").await;
        assert_shows_lost_sessions(&victim, "watched.png").await;
        drop((load.stop().await, load_apart.stop().await));
        drop((victim, next, secured, before_it, guard, shared));
        Self { prometheus, _guarded: guarded }
    }
}

/// Polls until an expression gives this number of series, because Prometheus sends no event.
async fn wait_series(prometheus: &Prometheus, expression: &str, series: usize) {
    let seen = async {
        while prometheus.query(expression).await.len() < series {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until(&format!("{series} of {expression}"), seen, || prometheus.log()).await;
}

async fn wait_firing(prometheus: &Prometheus, alert: &str) {
    wait_series(prometheus, &format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}"), 1).await;
}

fn with_variables(expression: &str) -> String {
    VARIABLES.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Expressions of the shipped dashboards, with the places where they stand.
fn dashboard_expressions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(deploy().join("grafana/dashboards")).expect("shipped") {
        let text = fs::read_to_string(entry.expect("readable").path()).expect("shipped");
        let dashboard: Value = serde_json::from_str(&text).expect("JSON");
        let title = |value: &Value| value["title"].as_str().unwrap_or_default().to_owned();
        for panel in dashboard["panels"].as_array().expect("panels") {
            let unit = panel["fieldConfig"]["defaults"]["unit"].as_str();
            assert!(unit.is_some_and(|unit| !unit.is_empty()), "a number without a unit: {panel}");
            for target in panel["targets"].as_array().expect("targets") {
                let expression = target["expr"].as_str().expect("an expression").to_owned();
                found.push((format!("{}: {}", title(&dashboard), title(panel)), expression));
            }
        }
        for annotation in dashboard["annotations"]["list"].as_array().expect("annotations") {
            let expression = annotation["expr"].as_str().expect("an expression").to_owned();
            found.push((format!("{}: {}", title(&dashboard), annotation["name"]), expression));
        }
        let variables = dashboard["templating"]["list"].as_array().expect("variables");
        for name in ["datasource", "cluster", "job"] {
            assert!(variables.iter().any(|variable| variable["name"] == name), "{name}: {variables:?}");
        }
        for variable in variables.iter().filter(|variable| variable["type"] == "query") {
            let asked = variable["query"]["query"].as_str().expect("a query");
            let inside = asked.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (series, label) = inside.and_then(|inside| inside.rsplit_once(", ")).expect("of a label");
            // A Prometheus without a cluster label has no values for this variable.
            if label != "cluster" {
                found.push((format!("{}: {}", title(&dashboard), variable["name"]), series.to_owned()));
            }
        }
    }
    found
}

/// The names in an expression that neither a gateway nor a guard has.
fn unknown_names(expression: &str) -> Vec<String> {
    let documented = fs::read_to_string(deploy().join("METRICS.md")).expect("shipped");
    let selected = selectors(expression).into_iter();
    let names = selected.map(|selector| selector.split('{').next().unwrap_or_default().to_owned());
    names
        .filter(|name| {
            let family = ["_bucket", "_count", "_sum"].iter().find_map(|part| name.strip_suffix(part));
            let known = |name: &str| documented.contains(&format!("| `{name}` |"));
            !known(name) && !family.is_some_and(known)
        })
        .collect()
}

/// The selectors of an expression: names of our series, or `up`, with the matchers behind them.
fn selectors(expression: &str) -> Vec<String> {
    const OURS: [&str; 4] = ["fencegate_", "process_", "job_route:", "job_instance:"];
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(is_of_a_name) {
        rest = &rest[start..];
        let length = rest.find(|c| !is_of_a_name(c)).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(length);
        rest = behind;
        if name == "up" || OURS.iter().any(|prefix| name.starts_with(prefix)) {
            let end = rest.starts_with('{').then(|| rest.find('}')).flatten().map_or(0, |end| end + 1);
            let (matchers, behind) = rest.split_at(end);
            found.push(format!("{name}{matchers}"));
            rest = behind;
        }
    }
    found
}

/// Every panel and every rule finds data, and no alert reports an unexplained stale token.
#[tokio::test]
async fn dashboards_and_rules_find_data() {
    let watched = MonitoredSite::run_accident().await;
    let prometheus = &watched.prometheus;
    let firing = prometheus.query("ALERTS{alertname=\"FencegateStaleTokenUnexplained\"}").await;
    assert!(firing.is_empty(), "the victim lost its tenure: {firing:?}");

    let panels = dashboard_expressions();
    assert!(panels.len() > 40, "not all were found: {panels:?}");
    for (place, expression) in panels {
        let unknown = unknown_names(&expression);
        assert!(unknown.is_empty(), "{place}: nobody has {unknown:?}");
        assert!(
            prometheus.count_values(&with_variables(&expression)).await > 0,
            "{place}: nothing for {expression}"
        );
    }

    let told = prometheus.query_api("/api/v1/rules", &[]).await;
    let groups = told["data"]["groups"].as_array().expect("groups");
    let rules: Vec<&Value> = groups.iter().filter_map(|group| group["rules"].as_array()).flatten().collect();
    assert!(rules.len() > 25, "{told}");
    for rule in rules {
        let name = rule["name"].as_str().expect("a name");
        let query = rule["query"].as_str().expect("a query");
        assert_eq!(rule["health"], "ok", "{rule}");
        let wanted = if rule["type"] == "recording" { vec![name.to_owned()] } else { selectors(query) };
        assert!(!wanted.is_empty(), "{name} asks for nothing: {query}");
        // No filter runs here. The tests in `alerts_fire` have one.
        for selector in wanted.into_iter().filter(|selector| !selector.starts_with("fencegate_clock_")) {
            assert!(prometheus.count_values(&selector).await > 0, "{name}: nothing for {selector}");
        }
    }
}

#[test]
fn selectors_are_found_in_expressions() {
    let found = selectors(
        "sum by (route) (increase(fencegate_x_total{reason=\"up\"}[5m])) > on () up / job_route:a:b",
    );
    assert_eq!(found, ["fencegate_x_total{reason=\"up\"}", "up", "job_route:a:b"]);
}
