//! Elections that a client may not see, many elections, and lease ids that no gateway has issued cost ZooKeeper
//! little, however often clients ask for them.

use std::time::{Duration, Instant};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{RawClient, TestRequest},
    gateway::Gateway,
    leases::{CLIENT, ClientLease, LeaseTokens, OPERATOR, OTHER, json_body},
    site::TestSite,
    zookeeper::packets_received,
};
use tokio::time::sleep;

use super::pay;

fn election_request(name: &str, token: &str) -> TestRequest {
    TestRequest::get(&format!("/.fencegate/v1/elections/{name}"))
        .field("authorization", &format!("Bearer {token}"))
}

/// A connection that follows an election, and the status of the answer.
async fn follow_election(gateway: &Gateway, name: &str, token: &str) -> (RawClient, u16) {
    let mut raw = RawClient::connect(gateway.public).await.expect("listens");
    let asked = format!(
        "GET /.fencegate/v1/elections/{name} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n"
    );
    raw.send(asked).await.expect("taken");
    let head = raw.read_head().await.expect("an answer");
    let status = head.word(1).parse().expect("a status");
    (raw, status)
}

/// Only operators and clients that may stand see an election, and each follows at most `leases.per_principal` of
/// them.
#[tokio::test]
async fn election_visible_to_candidates_and_operators() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1").with("/leases/per_principal", 3)).await;
    let leads = ClientLease::acquire_exclusive(&gateway, "election/primary").await;
    let answer = gateway.send(&election_request("primary", OTHER)).await;
    assert_eq!((answer.status, answer.reason().as_str()), (403, "lease-forbidden"), "{answer:?}");
    assert_eq!(follow_election(&gateway, "primary", OTHER).await.1, 403);
    for token in [CLIENT, OPERATOR] {
        let told = json_body(&gateway.send(&election_request("primary", token)).await);
        assert_eq!(told["leader"]["token"], leads.document["token"], "{told}");
    }
    let mut following = Vec::new();
    for name in ["primary", "primary", "other"] {
        let (raw, status) = follow_election(&gateway, name, CLIENT).await;
        assert_eq!(status, 200);
        following.push(raw);
    }
    assert_eq!(follow_election(&gateway, "primary", CLIENT).await.1, 429);
    assert_eq!(follow_election(&gateway, "primary", OPERATOR).await.1, 200, "others have their own");
    following.pop();
    let free = async { while follow_election(&gateway, "primary", CLIENT).await.1 != 200 {} };
    wait_until("room for another follower", free, || gateway.log()).await;
}

/// Two hundred followed elections cost ZooKeeper fewer than 250 requests a second.
#[tokio::test]
async fn many_followed_elections_cost_bounded_requests() {
    let (zookeeper, site) = TestSite::with_own_zookeeper().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1")).await;
    let server = zookeeper.server.address();
    let mut following = Vec::new();
    for number in 0..200 {
        let (raw, status) = follow_election(&gateway, &format!("e{number}"), CLIENT).await;
        assert_eq!(status, 200);
        following.push(raw);
    }
    // The gateway has read each election for the first time.
    sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    let before = packets_received(server).await;
    sleep(Duration::from_secs(3)).await;
    let asked = packets_received(server).await - before;
    let in_a_second = u128::from(asked) * 1000 / begun.elapsed().as_millis();
    println!("200 followed elections: {in_a_second} requests a second");
    assert!(in_a_second > 10, "nobody looks");
    assert!(in_a_second < 250, "{in_a_second} requests a second");
}

/// Six hundred invented lease ids cost ZooKeeper fewer than 100 requests, and a genuine id is still found.
#[tokio::test]
async fn invented_lease_ids_cost_few_requests() {
    let (zookeeper, site) = TestSite::with_own_zookeeper().await;
    let tokens = LeaseTokens::default();
    let policies = ["gw-1", "gw-2"].map(|name| tokens.policy(&site, name));
    let (one, other) = Gateway::start_both(&policies[0], &policies[1]).await;
    let server = zookeeper.server.address();
    let begun = Instant::now();
    let before = packets_received(server).await;
    sleep(Duration::from_secs(2)).await;
    let quiet = begun.elapsed();
    let idle = packets_received(server).await - before;
    let sent = 600;
    let begun = Instant::now();
    let before = packets_received(server).await;
    let ask = |number: u32| {
        let member = match number % 3 {
            0 => format!("gw-2-{number:016x}"),
            1 => format!("x{number}"),
            _ => format!("../locks-{number:016x}"),
        };
        let secret = BASE64_URL_SAFE_NO_PAD.encode([0; 32]);
        let id = format!("v1.{}.0123456789abcdef.{secret}", BASE64_URL_SAFE_NO_PAD.encode(member));
        let ask = if number.is_multiple_of(2) {
            pay()
        } else {
            TestRequest::get("/.fencegate/v1/leases/0123456789abcdef")
        };
        ask.field("fencing-lease", &id)
    };
    for round in 0..sent / 200 {
        let asked: Vec<_> = (0..200).map(|number| one.begin(ask(round * 200 + number))).collect();
        for asked in asked {
            let answer = asked.answer().await;
            assert_eq!((answer.status, answer.reason().as_str()), (412, "stale-token"), "{answer:?}");
        }
    }
    // The gateways also send heartbeats meanwhile, which are subtracted.
    let cost = packets_received(server).await - before;
    let took = begun.elapsed();
    let proofs = u128::from(idle) * took.as_millis() / quiet.as_millis();
    println!("{sent} invented ids: {cost} requests in {took:?}, {proofs} of them without any");
    assert!(u128::from(cost) < proofs + 100, "{cost} requests in {took:?}, {proofs} of them without any");
    // A genuine lease id is still found, through either gateway.
    let lease = ClientLease::acquire_exclusive(&other, "account/7").await;
    assert_eq!(json_body(&lease.get(&one).await)["state"], "held");
    assert_eq!(one.send(&lease.with_lease(pay())).await.status, 200);
}
