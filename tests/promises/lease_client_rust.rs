//! Two lease clients of the Rust crate never report at the same time that they hold a key. Each is notified of the
//! loss of its lease before another client can hold the key.
//!
//! A lease outlives its TTL. It is given back when it is dropped, or when its client gives up waiting for it. When
//! the gateway of a lease is killed, frozen or stopped, the client is notified before the promised time is over, and
//! another client holds the key after that time. A client is also notified of a revocation and of a break. Three
//! clients hold a key with three permits. Over TLS the certificate names the client, and a foreign gateway gets no
//! token. A request that overtakes an earlier one of the same name is sent again, and gets the lease of the earlier
//! one.

use std::{
    io,
    time::{Duration, Instant},
};

use fencegate_client::{AcquireError, Client, FENCING_LEASE, Lease, LeaseLostError};
use fencegate_testkit::{child::Signal, scratch, terminator::TestCa, wait::wait_until};
use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest, TestTlsClient},
    gateway::Gateway,
    leases::{CLIENT, LeaseTokens, OPERATOR, OTHER},
    site::TestSite,
    wire::{HttpWireMessage, MessageReader, MissingLengthMeaning},
};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpListener, sync::mpsc, time::sleep};

const KEY: &str = "account/7";
const WAIT: Duration = Duration::from_secs(15);
/// The client reports a lease as lost this long before another client can hold the key.
const NOTICE: Duration = Duration::from_millis(200);

fn client_of(gateway: &Gateway) -> Client {
    Client::new(&format!("http://{}", gateway.public), CLIENT).expect("a URL")
}

/// Acquires an exclusive lease of the key.
async fn acquire_lease(gateway: &Gateway) -> Lease {
    let lease = client_of(gateway).lease(KEY).notice(NOTICE).wait(WAIT).await;
    lease.unwrap_or_else(|refused| panic!("{refused}; the gateway said:\n{}", gateway.log()))
}

fn with_lease(lease: &Lease, ask: TestRequest) -> TestRequest {
    ask.field(FENCING_LEASE.as_str(), lease.header_value().to_str().expect("printable"))
}

fn number(lease: &Lease) -> u64 {
    lease.token().expect("held").number()
}

/// The time until which no other client can hold the key, as the lease reports it. The lease is queried until it is
/// lost or `enough` is true.
async fn wait_claim_end(lease: &Lease, enough: impl Fn(Instant) -> bool) -> Instant {
    let mut until = Instant::now();
    loop {
        let asked = Instant::now();
        match lease.remaining() {
            Ok(rest) if !enough(asked) => until = until.max(asked + rest + NOTICE),
            _ => return until,
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn start_two() -> (TestSite, LeaseTokens, Gateway, Gateway) {
    let site = TestSite::fresh().await.with_comparison();
    let tokens = LeaseTokens::default();
    let policies = ["gw-1", "gw-2"].map(|name| tokens.policy(&site, name));
    let (one, other) = Gateway::start_both(&policies[0], &policies[1]).await;
    (site, tokens, one, other)
}

/// A lease is renewed beyond its TTL, serves requests under its grant, and frees its keys when it is released or
/// dropped.
#[tokio::test]
async fn lease_renews_serves_requests_and_releases() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = tokens.policy(&site, "gw-1");
    let gateway = Gateway::start(&policy).await;
    let client = client_of(&gateway);
    let ttl = Duration::from_millis(800);
    let lease = client.lease(KEY).and("job/1").ttl(ttl).await.expect("free");
    // The lease is kept for three times its ttl, so it has to be renewed.
    let held = lease.during(sleep(3 * ttl)).await;
    assert_eq!(held, Ok(()), "{}", gateway.log());
    let first = number(&lease);
    let answer = gateway.send(&with_lease(&lease, TestRequest::post("/pay/7"))).await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    assert_eq!(answer.token().expect("a token").number(), first);
    for key in [KEY, "job/1"] {
        let refused = client.lease(key).await.expect_err("held");
        assert!(matches!(refused, AcquireError::Locked { .. }), "{refused}");
    }
    lease.release().await.expect("given back");
    let readers = [client.lease(KEY).shared().await, client.lease(KEY).shared().await];
    let readers = readers.map(|reader| reader.expect("both read"));
    assert!(number(&readers[0]) > first);
    // Both leases are dropped, and the client gives them back in the background.
    drop(readers);
    let last = client.lease(KEY).wait(WAIT).await.expect("free again");
    assert!(number(&last) > first);
    last.release().await.expect("given back");
    site.tree().await.wait_locks("nothing is left", |locks| locks.is_empty()).await;
}

/// An acquisition that is dropped while it waits hangs up, and its lock node is removed.
#[tokio::test]
async fn dropped_waiter_leaves_queue() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1")).await;
    let holder = acquire_lease(&gateway).await;
    let tree = site.tree().await;
    let waiting = tokio::spawn({
        let client = client_of(&gateway);
        async move { client.lease(KEY).wait(WAIT).await.is_ok() }
    });
    tree.wait_locks("one waits", |locks| locks.len() == 2).await;
    waiting.abort();
    tree.wait_locks("it has gone", |locks| locks.len() == 1).await;
    assert!(holder.is_held());
}

/// Sends the signal to the gateway of a holder while the next client asks the other gateway, and asserts that their
/// leases do not overlap.
async fn run_accident(signal: Signal) {
    let (site, _tokens, one, other) = start_two().await;
    let first = acquire_lease(&one).await;
    let number_of_first = number(&first);
    let lost = tokio::spawn(first.lost());
    // The lease is renewed before the accident.
    let begun = Instant::now();
    wait_claim_end(&first, |now| now > begun + Duration::from_millis(700)).await;
    assert!(first.is_held(), "{}", one.log());
    one.signal(signal);
    let second = tokio::spawn({
        let client = client_of(&other);
        async move {
            let lease = client.lease(KEY).notice(NOTICE).wait(WAIT).await.expect("granted");
            (Instant::now(), lease)
        }
    });
    let claimed = wait_claim_end(&first, |_| false).await;
    let why = lost.await.expect("no panic");
    let told = Instant::now();
    assert!(told < claimed, "told {:?} after the time was over", told - claimed);
    assert!(matches!(why, LeaseLostError::NotRenewed | LeaseLostError::Ended), "{why:?}");
    let (granted, second) = second.await.expect("no panic");
    assert!(
        granted > claimed,
        "another one holds {:?} before the first one's time is over",
        claimed - granted
    );
    assert!(number(&second) > number_of_first);
    if signal == Signal::STOP {
        one.signal(Signal::CONT);
        one.wait_ready().await;
    }
    assert_eq!((first.is_held(), first.token().is_err()), (false, true), "it never holds again");
    let answer = other.send(&with_lease(&second, TestRequest::post("/pay/7"))).await;
    assert_eq!(answer.status, 200);
    let late = other.send(&with_lease(&first, TestRequest::post("/pay/7"))).await;
    assert_eq!((late.status, late.outcome()), (412, Some(FencingOutcome::NotDispatched)));
    assert_eq!(site.origin.count("/pay/7"), 1);
    second.release().await.expect("given back");
}

#[tokio::test]
async fn holders_never_overlap_when_gateway_killed() {
    run_accident(Signal::KILL).await;
}

#[tokio::test]
async fn holders_never_overlap_when_gateway_frozen() {
    run_accident(Signal::STOP).await;
}

/// Two clients never hold at once when the gateway of the first one is stopped with SIGTERM.
#[tokio::test]
async fn holders_never_overlap_when_gateway_drains() {
    run_accident(Signal::TERM).await;
}

/// A client that receives an operator's revocation still holds its lease; a break ends it.
#[tokio::test]
async fn client_sees_operator_revoke_and_break() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1")).await;
    let lease = acquire_lease(&gateway).await;
    let does = async |verb: &str, body: String| {
        let ask = TestRequest::post(&format!("/.fencegate/v1/leases/{}/{verb}", lease.reference()));
        let ask = ask.field("authorization", &format!("Bearer {OPERATOR}")).body(body);
        assert_eq!(gateway.send(&ask).await.status, 200);
    };
    does("revoke", json!({"why": "the database is being moved"}).to_string()).await;
    let heard = wait_until("that it is asked back", lease.revoked(), || gateway.log()).await;
    assert_eq!(heard.as_deref(), Some("the database is being moved"));
    assert!(lease.is_held());
    does("break", String::new()).await;
    assert_eq!(wait_until("the loss", lease.lost(), || gateway.log()).await, LeaseLostError::Ended);
    lease.release().await.expect("it is over");
}

/// Three clients hold a key with three permits; a fourth waits for the permit that becomes free, and its token is
/// larger.
#[tokio::test]
async fn fourth_holder_waits_for_three_permits() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1")).await;
    let request = || client_of(&gateway).lease("job/pool").permits(3);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(request().await.expect("a permit is free"));
    }
    let mut permits: Vec<_> = held.iter().map(Lease::permit).collect();
    permits.sort_unstable();
    assert_eq!(permits, [Some(0), Some(1), Some(2)]);
    let refused = request().await.expect_err("all are taken");
    assert!(matches!(refused, AcquireError::Locked { .. }), "{refused}");
    let other = client_of(&gateway).lease("job/pool").permits(4).await.expect_err("another number");
    assert!(other.to_string().contains("permits-differ"), "{other}");
    let given = held.remove(1);
    let place = given.permit();
    let before = number(&given);
    given.release().await.expect("given back");
    let next = request().wait(WAIT).await.expect("one is free");
    assert_eq!(next.permit(), place);
    assert!(number(&next) > before, "newer than who had this permit before");
}

/// Over TLS a certificate names the client, and no token is sent to a gateway whose certificate is not trusted.
#[tokio::test]
async fn tls_authenticates_client_and_gateway() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let authority = TestCa::new();
    let folder = scratch::temp_dir();
    let (certificate, key) = authority.sign(&["127.0.0.1"]).write(folder.path(), "gateway");
    authority.write(&folder.path().join("clients.pem"));
    let tls = json!({
        "certificates": [{"certificate_file": certificate, "key_file": key}],
        "client_auth": "optional", "client_ca_file": folder.path().join("clients.pem"),
    });
    let known = json!({"name": "worker", "certificate": {"name": "worker-7"}, "keys": ["job/*"]});
    let policy = tokens.policy(&site, "gw-1").with("/listeners/public/tls", tls);
    let gateway = Gateway::start(&policy.with("/leases/principals/0", known)).await;
    let url = format!("https://{}", gateway.public);
    let over_tls = |secure: &TestTlsClient, token| {
        Client::over_tls(&url, token, secure.config().expect("sound").into()).expect("a URL")
    };

    let trusting = TestTlsClient::new(authority.roots());
    let showing = |name| {
        let signed = authority.identify(name);
        trusting.clone().with_certificate(signed.certificate(), signed.key())
    };
    let worker = over_tls(&showing("worker-7"), None);
    let lease = worker.lease("job/1").await.expect("its certificate names it");
    lease.release().await.expect("given back");
    let stranger = over_tls(&showing("worker-8"), None);
    let refused = stranger.lease("job/1").await.expect_err("nobody knows it");
    assert!(matches!(refused, AcquireError::Refused { status: 401, .. }), "{refused:?}");
    let other = over_tls(&trusting, Some(OTHER)).lease("other/1").await.expect("its token names it");
    other.release().await.expect("given back");
    let fooled = over_tls(&TestTlsClient::new(TestCa::new().roots()), Some(OTHER));
    let refused = fooled.lease("other/1").await.expect_err("a stranger's gateway");
    assert!(matches!(refused, AcquireError::Unanswered(_)), "{refused:?}");
}

/// A request on its way to the gateway, and its answer.
struct PassedRequest {
    name: Option<String>,
    status: String,
    document: Value,
}

/// Passes the requests of one client on to a gateway. Before the first one it sends a request with the same name that
/// waits in the queue, so that the gateway takes the client's request for a repeat of that one.
struct OvertakingProxy {
    gateway: RawClient,
    passed: mpsc::UnboundedSender<PassedRequest>,
}

impl OvertakingProxy {
    async fn serve(mut self, listener: TcpListener) -> io::Result<()> {
        let (client, _) = listener.accept().await?;
        let (input, mut output) = client.into_split();
        let mut requests = MessageReader::new(input, |_| {});
        let mut is_first = true;
        while requests.wait_first_byte().await? {
            let mut request = requests.read_head().await?;
            requests.read_body(&mut request, MissingLengthMeaning::Empty).await?;
            if std::mem::take(&mut is_first) {
                let mut queued = request.clone();
                queued.fields.push(("Prefer".to_owned(), "respond-async".to_owned()));
                self.pass(&queued).await?;
            }
            let answer = self.pass(&request).await?;
            output.write_all(&answer.to_bytes()).await?;
        }
        Ok(())
    }

    async fn pass(&mut self, request: &HttpWireMessage) -> io::Result<HttpWireMessage> {
        self.gateway.send(request.to_bytes()).await?;
        let answer = self.gateway.read_response().await?;
        let document = serde_json::from_slice(&answer.body).unwrap_or_default();
        let name = request.field("idempotency-key").map(str::to_owned);
        // The send fails when the test has ended. That is no error.
        self.passed.send(PassedRequest { name, status: answer.word(1).to_owned(), document }).ok();
        Ok(answer)
    }
}

/// While an earlier request of the same name waits, the gateway answers 409 `in-progress`. The client repeats its request
/// under that name, and gets the lease of the earlier one.
#[tokio::test]
async fn client_repeats_request_in_progress() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1")).await;
    let holder = acquire_lease(&gateway).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (tell, mut passed) = mpsc::unbounded_channel();
    let behind = RawClient::connect(gateway.public).await.expect("it listens");
    drop(tokio::spawn(OvertakingProxy { gateway: behind, passed: tell }.serve(listener)));
    let client = Client::new(&url, CLIENT).expect("a URL");
    let asked = tokio::spawn(async move { client.lease(KEY).await });
    let mut next = async || {
        let passed = wait_until("a request", passed.recv(), || gateway.log()).await;
        passed.expect("the client has given up")
    };
    let queued = next().await;
    assert_eq!((queued.status.as_str(), &queued.document["state"]), ("202", &json!("waiting")));
    let overtaking = next().await;
    assert_eq!(
        (overtaking.status.as_str(), &overtaking.document["reason"], &overtaking.document["outcome"]),
        ("409", &json!("in-progress"), &json!("not-dispatched"))
    );
    holder.release().await.expect("given back");
    let repeat = next().await;
    assert_eq!((repeat.status.as_str(), &repeat.document["state"]), ("201", &json!("held")));
    assert_eq!([&overtaking.name, &repeat.name], [&queued.name; 2]);
    let lease = asked.await.expect("no panic").unwrap_or_else(|refused| panic!("{refused}"));
    assert_eq!(lease.reference(), queued.document["reference"]);
    assert!(queued.name.is_some() && lease.is_held());
}
