//! The peer listener accepts gateways of the installation only, and no other process can act as one of them.
//!
//! A peer shows the pass of this process, and a certificate where the policy requires one. The gateway serves a peer
//! only for a key that it holds itself. The pass is worth nothing at another listener.

use std::net::SocketAddr;

use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, Http1Client, RawClient, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    policy::TestPolicy,
    site::TestSite,
    zookeeper::ZnodeTree,
};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::tls::TlsFiles;

fn policy_with_peer(site: &TestSite, name: &str) -> TestPolicy {
    let peer = json!({"address": "127.0.0.1:0", "advertise": "127.0.0.1:1"});
    site.policy(name).with_cached_hold().with("/peer", peer)
}

/// The address of the peer listener.
async fn peer_address(gateway: &Gateway) -> SocketAddr {
    let line =
        gateway.wait_line("where gateways are listened to", |line| line.field("listener") == "peer").await;
    line.field("address").parse().expect("an address")
}

/// The address and the pass in the member node of a gateway.
async fn member_address_and_pass(tree: &ZnodeTree, name: &str) -> (String, String) {
    let members = tree.members().await;
    let node = members.iter().find(|node| node.contains(&format!("/{name}-"))).expect("it is registered");
    let member: Value = serde_json::from_slice(&tree.data(node).await).expect("JSON");
    let text = |field: &str| member["peer"][field].as_str().expect("said").to_owned();
    (text("address"), text("pass"))
}

fn forwarded_request(pass: &str, key: &str) -> TestRequest {
    TestRequest::post("/pay/7")
        .field("Fencing-Forwarded", &format!("pass={pass}; key={key}; wait=1000; from=gw-x"))
}

fn is_forbidden(answer: &ClientResponse) -> bool {
    let told = answer
        .field("fencing-outcome")
        .is_some_and(|told| told.starts_with("not-dispatched; reason=peer-forbidden"));
    answer.status == 403 && answer.outcome() == Some(FencingOutcome::NotDispatched) && told
}

/// A request without the pass is refused however often it comes, and uses up nothing that clients need.
#[tokio::test]
async fn request_without_pass_is_refused() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy_with_peer(&site, "gw-1")).await;
    let door = peer_address(&gateway).await;
    let (address, pass) = member_address_and_pass(&site.tree().await, "gw-1").await;
    assert_eq!(address, door.to_string(), "what is told is where it listens");
    let line = format!("pass={pass}; key=account/7; wait=1000; from=gw-x");
    let mut client = Http1Client::connect(door).await.expect("listens");
    for ask in [
        TestRequest::post("/pay/7"),
        TestRequest::get("/anything"),
        forwarded_request("", "account/7"),
        forwarded_request(&"0".repeat(64), "account/7"),
        forwarded_request(&pass[..63], "account/7"),
        forwarded_request(&pass.to_uppercase(), "account/7"),
        forwarded_request(&pass, "account/7").field("Fencing-Forwarded", &line),
        TestRequest::post("/pay/7").field("Fencing_Forwarded", &line),
    ] {
        let answer = client.send(&ask).await.expect("answered");
        assert!(is_forbidden(&answer), "{ask:?}: {answer:?}");
    }
    for _ in 0..1000 {
        let answer = client.send(&forwarded_request(&"0".repeat(64), "account/7")).await.expect("answered");
        assert!(is_forbidden(&answer), "{answer:?}");
    }
    assert_eq!(site.origin.count("/pay/7"), 0, "it was dispatched");
    assert!(!gateway.log().contains(&pass), "the pass stands in the log");
    // Rejected attempts use up nothing that a client needs.
    assert_eq!(gateway.send(&TestRequest::post("/pay/8")).await.status, 200);
}

#[tokio::test]
async fn pass_is_worthless_at_public_listener() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy_with_peer(&site, "gw-1")).await;
    let (_, pass) = member_address_and_pass(&site.tree().await, "gw-1").await;
    let ask = forwarded_request(&pass, "another/key").field("X-Forwarded-For", "198.51.100.7");
    let answer = gateway.send(&ask).await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    let request = site.origin.wait_for_request("/pay/7", 1).await.request;
    assert_eq!(request.field("fencing-forwarded"), None, "{request:?}");
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"), "{request:?}");
}

#[tokio::test]
async fn pass_changes_with_every_start() {
    let site = TestSite::fresh().await;
    let tree = site.tree().await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let gateway = Gateway::start(&policy_with_peer(&site, "gw-1")).await;
        seen.push(member_address_and_pass(&tree, "gw-1").await.1);
        gateway.signal(Signal::TERM);
        assert!(gateway.exit().await.success());
    }
    assert_eq!(seen[0].len(), 64);
    assert_ne!(seen[0], seen[1]);
}

/// With `peer.tls` only a peer with a certificate of the configured authority can connect.
#[tokio::test]
async fn peers_require_certificates_with_tls() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    let others = TlsFiles::new();
    keys.authority.write(&keys.path("peers.pem"));
    let mut tls = keys.write("gw", "127.0.0.1");
    tls["ca_file"] = json!(keys.path("peers.pem"));
    let gateway = Gateway::start(&policy_with_peer(&site, "gw-1").with("/peer/tls", tls)).await;
    let door = peer_address(&gateway).await;
    let (_, pass) = member_address_and_pass(&site.tree().await, "gw-1").await;
    let shows = |keys: &TlsFiles, name| {
        let signed = keys.authority.sign(&[name]);
        keys.client().with_certificate(signed.certificate(), signed.key())
    };
    let stranger = others.authority.sign(&["gw-2"]);
    for (who, secure, comes_in) in [
        ("a gateway", shows(&keys, "gw-2"), true),
        ("a stranger", keys.client().with_certificate(stranger.certificate(), stranger.key()), false),
        ("nobody", keys.client(), false),
    ] {
        let asked = async {
            let stream = secure.connect(door, "127.0.0.1").await?;
            Http1Client::on_stream(stream, door).await?.send(&TestRequest::post("/pay/7")).await
        };
        let answer = wait_until(who, asked, || gateway.log()).await;
        // A peer with an accepted certificate is answered 403, because it still needs the pass.
        assert_eq!(answer.as_ref().is_ok_and(is_forbidden), comes_in, "{who}: {answer:?}");
    }
    let mut plain = RawClient::connect(door).await.expect("listens");
    let line = format!("pass={pass}; key=account/7; wait=1000; from=gw-x");
    plain
        .send(format!(
            "POST /pay/7 HTTP/1.1\r\nHost: a\r\nFencing-Forwarded: {line}\r\nContent-Length: 0\r\n\r\n"
        ))
        .await
        .expect("sent");
    let answer = plain.read_response().await.expect("an answer");
    assert_eq!(answer.word(1), "400", "{answer:?}");
    assert_eq!(site.origin.count("/pay/7"), 0);
}

/// An address in use and missing TLS files end the start with a message that names them.
#[tokio::test]
async fn unusable_address_or_files_prevent_start() {
    let site = TestSite::fresh().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let policy = policy_with_peer(&site, "gw-1").with("/peer/address", address.clone());
    let said = GatewayLaunch::new(&policy).expect_start_failure().await;
    assert!(said.contains(&format!("FG0527: cannot listen on {address}, the peer listener")), "{said}");
    assert!(said.contains("`ss -ltnp`"), "{said}");
    let tls =
        json!({"certificate_file": "/nowhere.pem", "key_file": "/nowhere.key", "ca_file": "/nowhere.pem"});
    let said = GatewayLaunch::new(&policy_with_peer(&site, "gw-1").with("/peer/tls", tls))
        .expect_start_failure()
        .await;
    assert!(said.contains("FG0510") && said.contains("/nowhere.pem"), "{said}");
}

#[tokio::test]
async fn silent_or_garbled_connection_is_closed() {
    let site = TestSite::fresh().await;
    let policy =
        policy_with_peer(&site, "gw-1").with("/listeners/public/timeouts", json!({"detect": "300ms"}));
    let gateway = Gateway::start(&policy).await;
    let door = peer_address(&gateway).await;
    let mut silent = tokio::net::TcpStream::connect(door).await.expect("listens");
    let mut said = Vec::new();
    let read = wait_until("the end", silent.read_to_end(&mut said), || gateway.log()).await;
    assert_eq!(read.expect("an orderly end"), 0);
    for nonsense in
        ["\0\u{1}\u{2}\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nHost a\r\n\r\n"]
    {
        let mut raw = RawClient::connect(door).await.expect("listens");
        raw.send(nonsense).await.expect("sent");
        let answer = wait_until(nonsense, raw.read_response(), || gateway.log()).await;
        assert!(answer.is_err() || answer.as_ref().is_ok_and(|a| a.word(1) == "400"), "{answer:?}");
    }
    gateway.wait_ready().await;
}

/// A request is served only for a key that this gateway holds and both gateways derive; else it gets `not-holder`.
#[tokio::test]
async fn only_cached_matching_key_is_served() {
    let site = TestSite::fresh().await;
    let policy = policy_with_peer(&site, "gw-1").with_linger("20s");
    let gateway = Gateway::start(&policy).await;
    let door = peer_address(&gateway).await;
    let (_, pass) = member_address_and_pass(&site.tree().await, "gw-1").await;
    let mut client = Http1Client::connect(door).await.expect("listens");
    let is_refused = |answer: &ClientResponse| {
        let told = answer.field("fencing-outcome").unwrap_or_default().to_owned();
        answer.status == 421 && told.starts_with("not-dispatched; reason=not-holder")
    };
    let answer = client.send(&forwarded_request(&pass, "account/7")).await.expect("answered");
    assert!(is_refused(&answer), "nobody keeps it yet: {answer:?}");
    let unfenced = TestRequest::get("/read")
        .field("Fencing-Forwarded", &format!("pass={pass}; key=account/7; wait=1000; from=gw-x"));
    let answer = client.send(&unfenced).await.expect("answered");
    assert!(is_refused(&answer), "without a fence there is nobody to keep it: {answer:?}");
    let kept = gateway.send(&TestRequest::post("/pay/7")).await.token().expect("a token");
    let answer = client.send(&forwarded_request(&pass, "account/8")).await.expect("answered");
    assert!(is_refused(&answer), "the key is another one here: {answer:?}");
    let ask = forwarded_request(&pass, "account/7").field("X-Forwarded-For", "198.51.100.7");
    let answer = client.send(&ask).await.expect("answered");
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
    let token = answer.token().expect("a token");
    assert!(token.same_grant(kept) && token > kept, "of the same tenure: {token} after {kept}");
    assert_eq!((site.origin.count("/pay/7"), site.origin.count("/read")), (2, 0));
    let request = site.origin.wait_for_request("/pay/7", 2).await.request;
    assert_eq!(request.field("fencing-forwarded"), None, "{request:?}");
    assert_eq!(request.field("x-forwarded-for"), Some("198.51.100.7, 127.0.0.1"), "{request:?}");
}

fn nonce_query(line: &str) -> String {
    format!("OPTIONS * HTTP/1.1\r\nHost: gw-1:9910\r\nFencing-Forwarded: {line}\r\n\r\n")
}

/// The peer listener answers a nonce with a proof of the pass, without the pass; the public listener does not.
#[tokio::test]
async fn peer_listener_proves_pass_by_nonce() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy_with_peer(&site, "gw-1")).await;
    let door = peer_address(&gateway).await;
    let (_, pass) = member_address_and_pass(&site.tree().await, "gw-1").await;
    let asks = async |address, line: &str| {
        let mut raw = RawClient::connect(address).await.expect("listens");
        raw.send(nonce_query(line)).await.expect("sent");
        let answer = wait_until(line, raw.read_head(), || gateway.log()).await.expect("an answer");
        answer.field("fencing-forwarded").map(str::to_owned)
    };
    let [one, two] = ["1", "2"].map(|digit| format!("nonce={}", digit.repeat(64)));
    let proof = asks(door, &one).await.expect("a proof");
    assert!(proof.starts_with("proof=") && proof.len() == 70 && !proof.contains(&pass), "{proof}");
    assert_eq!(asks(door, &one).await.as_ref(), Some(&proof));
    assert_ne!(asks(door, &two).await.as_ref(), Some(&proof));
    for wrong in ["", "nonce=", &one[..69], &format!("pass={pass}")] {
        assert_eq!(asks(door, wrong).await, None, "{wrong}");
    }
    assert_eq!(asks(gateway.public, &one).await, None, "it could be a gateway of another installation");
}

/// A connection beyond the limit is closed before anything is sent on, and the earlier one stays.
#[tokio::test]
async fn connection_without_capacity_is_closed() {
    let site = TestSite::fresh().await;
    let policy = policy_with_peer(&site, "gw-1").with("/listeners/public/limits", json!({"connections": 1}));
    let gateway = GatewayLaunch::new(&policy).with_workers(1).start().await;
    let door = peer_address(&gateway).await;
    let one = format!("nonce={}", "1".repeat(64));
    let mut first = RawClient::connect(door).await.expect("listens");
    first.send(nonce_query(&one)).await.expect("sent");
    first.read_head().await.expect("a place");
    let mut second = tokio::net::TcpStream::connect(door).await.expect("listens");
    let mut said = Vec::new();
    let ended = wait_until("the end", second.read_to_end(&mut said), || gateway.log()).await;
    assert!(ended.is_err() || said.is_empty(), "{said:?}");
    first.send(nonce_query(&one)).await.expect("sent");
    first.read_head().await.expect("whoever has a place keeps it");
}
