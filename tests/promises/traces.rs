//! The steps of a request are spans at an OpenTelemetry collector, under the ids that its client and its upstream
//! have. No request waits for the collector.
//!
//! No span has a secret.

use std::{net::SocketAddr, time::Duration};

use fencegate_testkit::{
    child::ChildProcess,
    wait::{PATIENCE, wait_until},
};
use fencegate_tests::{
    client::TestRequest, gateway::Gateway, guarded::GuardedSite, policy::TestPolicy, site::TestSite,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::OnceCell};

use super::clients::python_with_package;

/// A collector that decodes spans with OpenTelemetry's own messages for Python.
struct TraceCollector {
    child: ChildProcess,
    address: SocketAddr,
}

impl TraceCollector {
    async fn start() -> Self {
        static MADE: OnceCell<String> = OnceCell::const_new();
        let python =
            MADE.get_or_init(|| python_with_package("opentelemetry", "opentelemetry-proto==1.38.0")).await;
        let child = ChildProcess::spawn(python, ["-c", include_str!("collector.py")]).expect("setpriv");
        let line = child.wait_line(|line| line.starts_with("collects on "), PATIENCE).expect("it listens");
        let port = line.rsplit(' ').next().and_then(|port| port.parse().ok()).expect("a port");
        Self { child, address: ([127, 0, 0, 1], port).into() }
    }

    fn spans(&self) -> Vec<Value> {
        let log = self.child.log();
        let spans = log.lines().filter_map(|line| line.strip_prefix("span "));
        spans.map(|span| serde_json::from_str(span).expect("JSON")).collect()
    }

    /// The spans of the trace of this route, ordered by kind, once there are `count` of them.
    async fn wait_spans(&self, name: &str, count: usize) -> Vec<Value> {
        let of = |span: &Value| span["attributes"]["fencegate.route"] == name;
        let found = || {
            let spans = self.spans();
            let trace = spans.iter().find(|span| of(span)).map(|span| span["trace"].clone());
            let mut spans: Vec<Value> =
                spans.into_iter().filter(|span| Some(&span["trace"]) == trace.as_ref()).collect();
            spans.sort_by_key(|span| span["kind"].to_string());
            spans
        };
        let enough = async {
            while found().len() < count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        wait_until("the spans", enough, || self.child.log()).await;
        found()
    }
}

fn with_traces(policy: TestPolicy, collector: SocketAddr) -> TestPolicy {
    let traces = json!({"endpoint": format!("http://{collector}"), "service_name": "pay"});
    policy.with("/log", json!({"keys": "hash", "traces": traces}))
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// A fenced request has three spans, and its upstream gets the id of the last of them.
#[tokio::test]
async fn fenced_request_has_three_spans() {
    let site = TestSite::fresh().await;
    let collector = TraceCollector::start().await;
    let gateway = Gateway::start(&with_traces(site.policy("gw-1"), collector.address)).await;
    let ask = TestRequest::post("/pay/7?card=4111").field("traceparent", &traceparent("01"));
    let answer = gateway.send(&ask).await;
    assert_eq!(answer.status, 200);
    let spans = collector.wait_spans("pay", 3).await;
    let [upstream, lock, request] = spans.as_slice() else { panic!("{spans:#?}") };
    for (span, kind, name, above) in [
        (request, "SPAN_KIND_SERVER", "POST pay", &json!(PARENT)),
        (lock, "SPAN_KIND_INTERNAL", "lock", &request["id"]),
        (upstream, "SPAN_KIND_CLIENT", "POST", &request["id"]),
    ] {
        assert_eq!((&span["kind"], &span["name"], &span["parent"]), (&json!(kind), &json!(name), above));
        assert_eq!((&span["trace"], &span["failed"]), (&json!(TRACE), &json!(false)), "{span}");
        assert_eq!(span["resource"]["service.name"], "pay");
        let start = span["start"].as_u64();
        let end = span["end"].as_u64();
        assert!(start.is_some() && start <= end, "{span}");
        assert!(request["start"].as_u64() <= start && end <= request["end"].as_u64(), "{span}");
    }
    assert!(lock["end"].as_u64() <= upstream["start"].as_u64(), "sent before the lock was there");
    for (span, attribute, value) in [
        (request, "http.request.method", json!("POST")),
        (request, "http.response.status_code", json!(200)),
        (request, "fencegate.outcome", json!("done")),
        (request, "fencegate.token", json!(answer.field("fencing-token"))),
        (upstream, "fencegate.upstream", json!("ledger")),
        (upstream, "http.response.status_code", json!(200)),
    ] {
        assert_eq!(span["attributes"][attribute], value, "{attribute}: {span}");
    }
    let key = request["attributes"]["fencegate.key"].as_str().unwrap_or_default();
    assert!(key.len() == 16 && key != "account/7", "{key}");
    let told = json!(spans).to_string();
    assert!(!["4111", "/pay/7", "account/7"].iter().any(|secret| told.contains(secret)), "{told}");
    let id = upstream["id"].as_str().expect("an id");
    let seen = site.origin.log();
    let seen = seen.requests_for("/pay/7?card=4111").next().expect("it arrived");
    assert_eq!(seen.request.field("traceparent"), Some(format!("00-{TRACE}-{id}-01").as_str()));
}

/// The span of a refusal has its reason, and a request that is not sampled has no span.
#[tokio::test]
async fn refusal_span_has_reason() {
    let site = TestSite::fresh().await;
    let collector = TraceCollector::start().await;
    let policy = with_traces(site.policy("gw-1"), collector.address).with("/routes/0/fence/wait", "50ms");
    let gateway = Gateway::start(&policy).await;
    let holder = site
        .origin
        .hold_request(&gateway, TestRequest::post("/pay/7").field("traceparent", &traceparent("00")))
        .await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 423);
    assert_eq!(holder.finish().await.status, 200);
    let spans = collector.wait_spans("pay", 2).await;
    let [lock, request] = spans.as_slice() else { panic!("{spans:#?}") };
    assert_eq!(request["attributes"]["fencegate.reason"], "locked");
    assert_eq!(request["attributes"]["fencegate.outcome"], "not-dispatched");
    assert_eq!((&request["parent"], &request["failed"]), (&json!(""), &json!(false)), "the client's trouble");
    let waited = lock["end"].as_u64().zip(lock["start"].as_u64()).map(|(end, start)| end - start);
    assert!(waited.is_some_and(|nanos| nanos >= 45_000_000), "{lock}");
    assert!(
        !collector.spans().iter().any(|span| span["trace"] == TRACE),
        "a client said that it records nothing"
    );
}

#[tokio::test]
async fn guard_continues_gateway_trace() {
    let guarded = GuardedSite::fresh().await;
    let collector = TraceCollector::start().await;
    let traces = json!({"endpoint": format!("http://{}", collector.address), "service_name": "guard"});
    let guard = guarded.launch().await.with("/log", json!({"traces": traces})).start().await;
    let policy = with_traces(guarded.policy("gw-1", &[guard.public]), collector.address);
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let spans = collector.wait_spans("pay", 5).await;
    let of = |service: &str, kind: &str| {
        let found =
            spans.iter().find(|span| span["resource"]["service.name"] == service && span["kind"] == kind);
        found.unwrap_or_else(|| panic!("{service}, {kind}: {spans:#?}"))
    };
    let sent = of("pay", "SPAN_KIND_CLIENT");
    let came = of("guard", "SPAN_KIND_SERVER");
    assert_eq!(sent["id"], came["parent"]);
    assert_eq!(of("guard", "SPAN_KIND_CLIENT")["parent"], came["id"]);
}

/// No request waits for a collector, and the spans that it does not take are counted.
///
/// The collector accepts connections, and never answers.
#[tokio::test]
async fn collector_delays_no_request() {
    let site = TestSite::fresh().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let nobody = {
        let gone = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        gone.local_addr().expect("bound")
    };
    for (collector, lost) in [(silent.local_addr().expect("bound"), false), (nobody, true)] {
        let gateway = Gateway::start(&with_traces(site.policy("gw-1"), collector)).await;
        for _ in 0..20 {
            let answer = gateway.send(&TestRequest::post("/pay/7")).await;
            assert!(answer.status == 200 && answer.took() < Duration::from_secs(5), "{answer:?}");
        }
        if lost {
            gateway.wait_series_at_least("fencegate_spans_lost_total", &[], 40.0).await;
            gateway
                .wait_line("that the collector is away", |line| line.text().contains("spans.not_taken"))
                .await;
        }
        // At its end the gateway waits only for a limited time to deliver its last spans.
        let began = std::time::Instant::now();
        gateway.signal(fencegate_testkit::child::Signal::TERM);
        assert_eq!(gateway.exit().await.code(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
