//! A gateway sends nothing to a guard that it has a reason to distrust: one with another or an older store, of another
//! installation, or with times that do not fit.

use std::{fs, net::SocketAddr};

use fencegate_testkit::{fault_proxy::FaultProxy, wait::wait_until};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    ensemble::free_ports,
    gateway::{Gateway, GatewayLaunch},
    guard::{self, ENSEMBLE},
    guarded::GuardedSite,
    hosts::HostsFile,
    http_proxy::{HttpProxy, ViaMode},
};
use serde_json::json;

#[track_caller]
fn assert_distrusted(answer: &ClientResponse, reason: &str) {
    assert_eq!((answer.status, answer.reason().as_str()), (503, reason), "{answer:?}");
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(answer.field("retry-after").is_some());
}

async fn start_gateway_for(guarded: &GuardedSite, guards: &[SocketAddr]) -> Gateway {
    Gateway::start(&guarded.policy("gw-1", guards)).await
}

async fn wait_distrust_reason(gateway: &Gateway, part: &'static str) {
    let distrusted = move |line: &fencegate_tests::gateway::LogLine| {
        line.message() == "guard.distrusted" && line.field("why").contains(part)
    };
    gateway.wait_line(part, distrusted).await;
}

/// Two guards with a store each get nothing, not even the first request: neither guard has a record of what the other has
/// admitted.
#[tokio::test]
async fn separate_stores_get_no_request() {
    let guarded = GuardedSite::fresh().await;
    let one = guarded.guard().await;
    let two = guarded.guard().await;
    let gateway = start_gateway_for(&guarded, &[one.public, two.public]).await;
    for _ in 0..4 {
        assert_distrusted(&gateway.send(&TestRequest::post("/pay/7")).await, "guard-split");
    }
    assert_eq!(guarded.site.origin.count("/pay/7"), 0);
    wait_distrust_reason(&gateway, "different stores").await;
    // An operator stops the wrong one.
    two.stop().await;
    let served = async { while gateway.send(&TestRequest::post("/pay/7")).await.status != 200 {} };
    wait_until("one to be believed", served, || gateway.log()).await;
    assert_eq!(guarded.site.origin.count("/pay/7"), 1);
}

/// Two guards behind one name that do not share a store get nothing: a name may lead to more guards or fewer guards
/// tomorrow.
#[tokio::test]
async fn separate_stores_behind_name_get_nothing() {
    const NAME: &str = "guard.test";
    let guarded = GuardedSite::fresh().await;
    let one = guarded.guard().await;
    let port = one.public.port();
    let launch = guarded.launch().await.with("/listener/address", format!("127.0.0.2:{port}"));
    let _two = launch.start().await;
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1"]);
    let policy = guarded
        .policy("gw-1", &[])
        .with("/upstreams/ledger/endpoints", json!([format!("http://{NAME}:{port}")]))
        .with("/upstreams/ledger/dns", json!({"refresh": "50ms"}));
    let gateway = GatewayLaunch::new(&policy).with_hosts(&hosts).start().await;
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);

    hosts.set(NAME, &["127.0.0.1", "127.0.0.2"]);
    let split = async { while gateway.send(&TestRequest::post("/pay/7")).await.status == 200 {} };
    wait_until("the second guard to be seen", split, || gateway.log()).await;
    let executions = |path: &str| guarded.site.origin.count(path);
    for path in ["/pay/8", "/pay/9"] {
        assert_distrusted(&gateway.send(&TestRequest::post(path)).await, "guard-split");
        assert_eq!(executions(path), 0, "{path}");
    }
    wait_distrust_reason(&gateway, "different stores").await;

    hosts.set(NAME, &["127.0.0.1"]);
    let served = async { while gateway.send(&TestRequest::post("/pay/8")).await.status != 200 {} };
    wait_until("the one that is left to be believed", served, || gateway.log()).await;
    assert_eq!(executions("/pay/8"), 1);
}

/// One guard with two addresses, like a host with two interfaces or the name `localhost`, is used through each that
/// answers. Another guard at one of them is distrusted.
#[tokio::test]
async fn guard_serves_at_each_address() {
    const NAME: &str = "guard.test";
    let guarded = GuardedSite::fresh().await;
    let port = free_ports(1)[0];
    let at =
        |launch: guard::GuardLaunch, host: &str| launch.with("/listener/address", format!("{host}:{port}"));
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1", "127.0.0.2"]);
    let policy = guarded
        .policy("gw-1", &[])
        .with("/upstreams/ledger/endpoints", json!([format!("http://{NAME}:{port}")]))
        .with("/upstreams/ledger/dns", json!({"refresh": "50ms"}))
        // Each request makes a new connection, to either address.
        .with("/upstreams/ledger/pool", json!({"max_idle": 0}));
    let gateway = GatewayLaunch::new(&policy).with_hosts(&hosts).start().await;
    gateway.wait_ready().await;
    let mut number = 0;
    let mut served = async |what: &str| {
        for _ in 0..6 {
            number += 1;
            let path = format!("/pay/{number}");
            let answer = gateway.send(&TestRequest::post(&path)).await;
            assert_eq!(answer.status, 200, "{what}: {answer:?}\n{}", gateway.log());
            assert_eq!(guarded.site.origin.count(&path), 1);
            gateway.wait_lookup("good").await;
        }
    };
    let guard = at(guarded.launch().await, "0.0.0.0").start().await;
    served("both").await;
    // The restarted guard contradicts its earlier announcement at both addresses.
    let guard = guard.stop().await.start().await;
    served("restarted").await;
    let guard = at(guard.stop().await, "127.0.0.1").start().await;
    served("the second one is dead").await;
    let guard = at(guard.stop().await, "127.0.0.2").start().await;
    served("the first one is dead").await;
    assert!(!gateway.log().contains("guard.distrusted"), "{}", gateway.log());

    // A guard that comes up at the dead address is another guard. It gets nothing.
    let second = at(guarded.launch().await, "127.0.0.1").start().await;
    let split = async { while gateway.send(&TestRequest::post("/pay/7")).await.status == 200 {} };
    wait_until("the second guard to be seen", split, || gateway.log()).await;
    for path in ["/pay/70", "/pay/71", "/pay/72", "/pay/73"] {
        assert_distrusted(&gateway.send(&TestRequest::post(path)).await, "guard-split");
        assert_eq!(guarded.site.origin.count(path), 0, "{path}");
    }
    wait_distrust_reason(&gateway, "different stores").await;
    let decided = second.metrics().await.sum("fencegate_guard_decisions_total", &[]);
    assert!(decided < 1.0, "{decided} requests came to the second one");
    drop(guard);
}

/// Two gateways never use one of two guards each. They may have the list in different orders, and each would otherwise
/// use another guard.
#[tokio::test]
async fn gateways_never_split_over_guards() {
    let guarded = GuardedSite::fresh().await;
    let one = guarded.guard().await;
    let two = guarded.guard().await;
    let orders = [[one.public, two.public], [two.public, one.public]];
    let (first, second) =
        tokio::join!(start_gateway_for(&guarded, &orders[0]), start_gateway_for(&guarded, &orders[1]));
    for gateway in [&first, &second] {
        assert_distrusted(&gateway.send(&TestRequest::post("/pay/7")).await, "guard-split");
    }
    assert_eq!(guarded.site.origin.count("/pay/7"), 0);
}

/// Two guards behind one address, as in a cluster where an operator has set two replicas, are detected before anything is
/// sent to the second one.
#[tokio::test]
async fn second_guard_behind_address_is_detected() {
    let guarded = GuardedSite::fresh().await;
    let one = guarded.guard().await;
    let two = guarded.guard().await;
    let balancer = FaultProxy::start_balancing(&[one.public, two.public]);
    let gateway = start_gateway_for(&guarded, &[balancer.address]).await;
    let origin = &guarded.site.origin;
    let first = origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    // The one connection is in use, so this request needs a second connection.
    assert_distrusted(&gateway.send(&TestRequest::post("/pay/8")).await, "guard-split");
    wait_distrust_reason(&gateway, "two guards answer at this address").await;
    assert_eq!(first.finish().await.status, 200);
    // The connection to the first guard is not used either: it is not known which guard is the right one.
    for _ in 0..4 {
        assert_distrusted(&gateway.send(&TestRequest::post("/pay/9")).await, "guard-split");
    }
    assert_eq!((origin.count("/pay/8"), origin.count("/pay/9")), (0, 0));
    // An operator stops the wrong guard and restarts the other one.
    two.stop().await;
    let one = one.stop().await.start().await;
    balancer.set_targets(&[one.public]);
    let served = async { while gateway.send(&TestRequest::post("/pay/9")).await.status != 200 {} };
    wait_until("the one that is left to be believed", served, || gateway.log()).await;
    assert_eq!(origin.count("/pay/9"), 1);
}

/// A guard that was made anew gets nothing: the floor of its store is below tokens that the old guard admitted and that
/// the new store has never seen.
#[tokio::test]
async fn reinitialized_guard_gets_nothing() {
    let guarded = GuardedSite::fresh().await;
    let balancer = FaultProxy::start_balancing(&[]);
    let one = guarded.guard().await;
    let two = guarded.launch().await;
    balancer.set_targets(&[one.public]);
    let gateway = start_gateway_for(&guarded, &[balancer.address]).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let one = one.stop().await;
    let two = two.start().await;
    balancer.set_targets(&[two.public]);
    for path in ["/pay/7", "/pay/8"] {
        assert_distrusted(&gateway.send(&TestRequest::post(path)).await, "guard");
    }
    wait_distrust_reason(&gateway, "older store").await;
    assert_eq!(guarded.site.origin.log().records.len(), 1);
    // With its store the first guard is trusted as before.
    two.stop().await;
    let one = one.start().await;
    balancer.set_targets(&[one.public]);
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
}

/// A guard is not taken for one with an older store because of what it admits while its announcement is on the way.
#[tokio::test]
async fn admission_during_announcement_is_trusted() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let hop = HttpProxy::start(guard.public, ViaMode::Nothing).await;
    let gateway = GatewayLaunch::new(&guarded.policy("gw-1", &[hop.address()])).with_workers(1).start().await;
    gateway.wait_ready().await;
    let origin = &guarded.site.origin;
    let first = origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    // The one connection is in use, so this request needs a second connection.
    let kept = hop.hold_announcement();
    let second = gateway.begin(TestRequest::post("/pay/8"));
    kept.wait_received().await;
    assert_eq!(first.finish().await.status, 200);
    // This request goes over the first connection. Its token is newer than any that the guard had seen when it made its
    // announcement.
    assert_eq!(gateway.send(&TestRequest::post("/pay/9")).await.status, 200);
    kept.release();
    let answer = second.answer().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!gateway.log().contains("guard.distrusted"), "{}", gateway.log());
}

/// A guard that is away is reported as unreachable, and is not distrusted.
#[tokio::test]
async fn absent_guard_is_not_distrusted() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    // The balancer accepts the connection and closes it before an answer.
    let balancer = FaultProxy::start_balancing(&[closed_address()]);
    let gateway = start_gateway_for(&guarded, &[balancer.address]).await;
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (502, "upstream-connect"), "{answer:?}");
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    balancer.set_targets(&[guard.public]);
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert!(!gateway.log().contains("guard.distrusted"), "{}", gateway.log());
}

/// An address where nothing listens.
fn closed_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_ports(1)[0]))
}

/// A client does not reach a guard's own endpoints through a gateway: they are for gateways only.
#[tokio::test]
async fn guard_endpoint_is_not_proxied() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let policy = guarded.policy("gw-1", &[guard.public]).with("/unmatched", json!({"pass": "ledger"}));
    let gateway = Gateway::start(&policy).await;
    for path in [
        "/.fencegate/v1/guard",
        "/%2Efencegate/v1/guard",
        "/.%66encegate/v1/guard?x=1",
        "/.FenceGate/v1/guard",
        "/.fencegate/",
        "/.fencegate",
    ] {
        for request in [TestRequest::get(path), TestRequest::post(path)] {
            let answer = gateway.send(&request).await;
            assert_eq!((answer.status, answer.reason().as_str()), (404, "no-route"), "{path}: {answer:?}");
        }
    }
    for path in ["//.fencegate/v1/guard", "/x/../.fencegate/v1/guard", "/.fencegate%2fv1/guard"] {
        assert_eq!(gateway.send(&TestRequest::get(path)).await.reason(), "ambiguous-path", "{path}");
    }
    assert_eq!(gateway.send(&TestRequest::get("/fencegate/v1/guard")).await.status, 200);
    assert_eq!(guarded.site.origin.log().records.len(), 1);
}

/// A guard whose store was restored from an older copy gets nothing.
#[tokio::test]
async fn restored_older_store_gets_nothing() {
    let guarded = GuardedSite::fresh().await;
    let launch = guarded.launch().await;
    let older = launch.copy();
    let guard = launch.start().await;
    let gateway = start_gateway_for(&guarded, &[guard.public]).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let launch = guard.stop().await;
    let newer = launch.copy();
    fs::copy(older.store(), launch.store()).expect("restored");
    let guard = launch.start().await;
    for path in ["/pay/7", "/pay/8"] {
        assert_distrusted(&gateway.send(&TestRequest::post(path)).await, "guard");
    }
    wait_distrust_reason(&gateway, "older store").await;
    assert_eq!(guarded.site.origin.log().records.len(), 1);
    // The right store is put back.
    let launch = guard.stop().await;
    fs::copy(newer.store(), launch.store()).expect("restored");
    let _guard = launch.start().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
}

#[tokio::test]
async fn guard_of_other_installation_gets_nothing() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.launch_of(ENSEMBLE).await.start().await;
    let gateway = start_gateway_for(&guarded, &[guard.public]).await;
    assert_distrusted(&gateway.send(&TestRequest::post("/pay/7")).await, "guard");
    wait_distrust_reason(&gateway, "another installation").await;
    assert_eq!(guarded.site.origin.log().records.len(), 0);
}

/// A service that is no guard gets no request but the one for a guard's announcement.
#[tokio::test]
async fn service_without_guard_gets_nothing() {
    let guarded = GuardedSite::fresh().await;
    let door = guarded.site.origin.open_listener("no guard");
    let gateway = start_gateway_for(&guarded, &[door]).await;
    for request in [TestRequest::post("/pay/7"), TestRequest::post("/pay/7"), TestRequest::get("/pay/7")] {
        assert_distrusted_or_unfenced(&gateway.send(&request).await);
    }
    wait_distrust_reason(&gateway, "no guard").await;
    let log = guarded.site.origin.log();
    assert!(log.records.iter().all(|record| record.path() == "/.fencegate/v1/guard"), "{:?}", log.records);
    assert!(!log.records.is_empty());
}

/// An answer on an unfenced route has no outcome.
#[track_caller]
fn assert_distrusted_or_unfenced(answer: &ClientResponse) {
    assert_eq!((answer.status, answer.reason().as_str()), (503, "guard"), "{answer:?}");
    assert!(matches!(answer.outcome(), Some(FencingOutcome::NotDispatched) | None));
}

/// A guard that may settle and execute for as long as the gateway's `response_timeout` gets nothing.
#[tokio::test]
async fn guard_slower_than_gateway_gets_nothing() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    // The guard settles for 6 s, and takes an execution for over after 9 s.
    let policy = guarded.policy("gw-1", &[guard.public]).with("/upstreams/ledger/response_timeout", "15s");
    let gateway = Gateway::start(&policy).await;
    assert_distrusted(&gateway.send(&TestRequest::post("/pay/7")).await, "guard");
    wait_distrust_reason(&gateway, "FG0504").await;
    assert_eq!(guarded.site.origin.log().records.len(), 0);
}
