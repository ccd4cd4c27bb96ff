//! Tests leases against a gateway that the test plays, by a clock that the test moves.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

use super::*;
use crate::{Client, GatewayUrl, lease_clock::tests::ManualClock};

const SECOND: Duration = Duration::from_secs(1);

/// A gateway whose answers the test chooses.
struct FakeGateway {
    client: Client,
    url: GatewayUrl,
    clock: Arc<ManualClock>,
    heard: mpsc::UnboundedReceiver<ReceivedRequest>,
}

/// One request, and the sender for its answer. If the sender is dropped, the connection ends.
struct ReceivedRequest {
    line: String,
    /// The value of its `Idempotency-Key`.
    name: Option<String>,
    answer: oneshot::Sender<(u16, Value)>,
}

impl FakeGateway {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (tell, heard) = mpsc::unbounded_channel();
        drop(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(tokio::spawn(converse(stream, tell.clone())));
            }
        }));
        let clock = Arc::new(ManualClock::default());
        let client = Client::new(&url, "secret").expect("a URL").timed(clock.clone());
        let url = GatewayUrl::parse(&url).expect("a URL");
        Self { client, url, clock, heard }
    }

    /// Makes the client ask the gateways `first` before this gateway, by the clock of this gateway.
    fn ask_after(&mut self, first: &[GatewayUrl]) {
        let gateways = [first, std::slice::from_ref(&self.url)].concat();
        let client = Client::with_gateways(&gateways, Some(b"secret"), None).expect("URLs");
        self.client = client.timed(self.clock.clone());
    }

    /// Waits for a request with this request line, and returns the sender for its answer.
    async fn hears(&mut self, line: &str) -> oneshot::Sender<(u16, Value)> {
        let heard = self.heard.recv().await.expect("somebody asks");
        assert_eq!(heard.line, line);
        heard.answer
    }

    /// Like [`Self::hears`], but moves the clock forward until the request arrives.
    async fn hears_later(&mut self, line: &str) -> oneshot::Sender<(u16, Value)> {
        loop {
            match timeout(Duration::from_millis(20), self.heard.recv()).await {
                Ok(heard) => {
                    let heard = heard.expect("somebody asks");
                    assert_eq!(heard.line, line);
                    return heard.answer;
                }
                Err(_) => self.clock.goes(SECOND),
            }
        }
    }

    async fn answers(&mut self, line: &str, status: u16, body: Value) {
        self.hears(line).await.send((status, body)).expect("it waits");
    }

    /// Grants the client a lease of ten seconds. Without the notice, nine seconds of it are usable.
    async fn leases(&mut self) -> Lease {
        let asked = tokio::spawn(self.client.lease("job/1").into_future());
        self.answers(ASK, 201, document(10_000)).await;
        asked.await.expect("no panic").expect("granted")
    }
}

const ASK: &str = "POST /.fencegate/v1/leases HTTP/1.1";
const RENEW: &str = "POST /.fencegate/v1/leases/00000000000000aa/renew HTTP/1.1";
const RELEASE: &str = "DELETE /.fencegate/v1/leases/00000000000000aa HTTP/1.1";

fn document(held_for_ms: u64) -> Value {
    json!({"lease": "v1.a.b.c", "reference": "00000000000000aa", "state": "held", "held_for_ms": held_for_ms,
        "token": "v1-0000000000000017-00000000-00000001", "number": 23, "ticket": null, "revocation": null})
}

async fn converse(stream: TcpStream, tell: mpsc::UnboundedSender<ReceivedRequest>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut first = String::new();
        let mut length = 0;
        let mut name = None;
        if stream.read_line(&mut first).await.unwrap_or_default() == 0 {
            return;
        }
        loop {
            let mut field = String::new();
            stream.read_line(&mut field).await.expect("the rest of a head");
            let field = field.trim().to_ascii_lowercase();
            if field.is_empty() {
                break;
            }
            if let Some(bytes) = field.strip_prefix("content-length: ") {
                length = bytes.parse().expect("a number");
            }
            if let Some(key) = field.strip_prefix("idempotency-key: ") {
                name = Some(key.to_owned());
            }
        }
        stream.read_exact(&mut vec![0; length]).await.expect("the body");
        let (answer, answered) = oneshot::channel();
        tell.send(ReceivedRequest { line: first.trim().to_owned(), name, answer }).ok();
        let (status, body) = tokio::select! {
            answered = answered => match answered {
                Ok(answer) => answer,
                Err(_) => return,
            },
            // The client has closed the connection.
            _ = stream.fill_buf() => return,
        };
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(head.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A request for a lease whose answer was lost is asked once more at the same gateway, under the same name. Another request
/// has another name.
#[tokio::test]
async fn lost_grant_is_asked_for_again() {
    let mut gateway = FakeGateway::start().await;
    let asked = tokio::spawn(gateway.client.lease("job/1").into_future());
    let ReceivedRequest { line, name, answer } = gateway.heard.recv().await.expect("somebody asks");
    assert_eq!(line, ASK);
    // Ends the connection without an answer.
    drop(answer);
    let again = gateway.heard.recv().await.expect("it is asked again");
    assert_eq!((again.line.as_str(), &again.name), (ASK, &name));
    assert!(name.is_some());
    again.answer.send((423, json!({}))).expect("it waits");
    assert!(asked.await.expect("no panic").is_err());
    let other = tokio::spawn(gateway.client.lease("job/1").into_future());
    let ReceivedRequest { name: other_name, answer, .. } = gateway.heard.recv().await.expect("somebody asks");
    assert_ne!(other_name, name);
    drop(answer);
    // The second answer is lost as well, so the caller gets an error.
    drop(gateway.heard.recv().await.expect("it is asked again"));
    assert!(matches!(other.await.expect("no panic"), Err(AcquireError::Unanswered(_))));
}

/// Where an earlier request of the same name is in progress, the request is sent again under its name to the same gateway,
/// until there is a result. Another conflict is final.
#[tokio::test]
async fn request_in_progress_is_repeated_under_its_name() {
    let mut first = FakeGateway::start().await;
    let mut second = FakeGateway::start().await;
    second.ask_after(std::slice::from_ref(&first.url));
    let asked = tokio::spawn(second.client.lease("job/1").into_future());
    let problem = |reason: &str| json!({"reason": reason, "title": "a conflict", "status": 409});
    let mut names = Vec::new();
    for (status, body) in
        [(409, problem("in-progress")), (409, problem("in-progress")), (201, document(10_000))]
    {
        let ReceivedRequest { line, name, answer } = first.heard.recv().await.expect("somebody asks");
        assert_eq!(line, ASK);
        names.push(name.expect("a name"));
        answer.send((status, body)).expect("it waits");
    }
    let lease = asked.await.expect("no panic").expect("granted");
    names.dedup();
    assert_eq!(names.len(), 1, "one name, and one lease");
    assert!(lease.is_held() && second.heard.try_recv().is_err(), "only the first gateway knows the name");

    let asked = tokio::spawn(first.client.lease("job/2").permits(3).into_future());
    first.answers(ASK, 409, problem("permits-differ")).await;
    let refused = asked.await.expect("no panic").expect_err("a conflict");
    assert!(matches!(&refused, AcquireError::Refused { status: 409, .. }), "{refused}");
}

/// A held lease is renewed in the background, and is released when it is dropped.
#[tokio::test]
async fn renews_lease_and_releases_on_drop() {
    let mut gateway = FakeGateway::start().await;
    let lease = gateway.leases().await;
    assert_eq!(lease.remaining(), Ok(9 * SECOND));
    assert_eq!(lease.token().expect("held").number(), 23);
    gateway.clock.goes(4 * SECOND);
    gateway.answers(RENEW, 200, document(10_000)).await;
    // Wait until the client has recorded the answer.
    while lease.remaining() != Ok(9 * SECOND) {
        tokio::task::yield_now().await;
    }
    drop(lease);
    gateway.answers(RELEASE, 204, Value::Null).await;
}

/// A grant that arrives after a long sleep is renewed before the lease is returned as held.
#[tokio::test]
async fn late_grant_is_renewed_first() {
    let mut gateway = FakeGateway::start().await;
    let asked = tokio::spawn(gateway.client.lease("job/1").wait(SECOND).into_future());
    let answer = gateway.hears(ASK).await;
    gateway.clock.goes(60 * SECOND);
    answer.send((201, document(10_000))).expect("it waits");
    gateway.answers(RENEW, 200, document(5_000)).await;
    let lease = asked.await.expect("no panic").expect("granted");
    assert_eq!(lease.remaining(), Ok(4_500 * SECOND / 1000));
}

/// A grant that is over when it is first renewed is an error, and no lease.
#[tokio::test]
async fn lease_over_at_renewal_is_refused() {
    let mut gateway = FakeGateway::start().await;
    let asked = tokio::spawn(gateway.client.lease("job/1").into_future());
    let answer = gateway.hears(ASK).await;
    gateway.clock.goes(60 * SECOND);
    answer.send((201, document(10_000))).expect("it waits");
    gateway.answers(RENEW, 412, Value::Null).await;
    let refused = asked.await.expect("no panic").expect_err("over");
    assert!(matches!(refused, AcquireError::TooLate(LeaseLostError::Ended)), "{refused}");
}

/// An answer after the deadline does not renew the lease. It stays lost, and can still be released.
#[tokio::test]
async fn late_renewal_answer_does_not_count() {
    let mut gateway = FakeGateway::start().await;
    let lease = gateway.leases().await;
    let lost = tokio::spawn(lease.lost());
    gateway.clock.goes(4 * SECOND);
    let late = gateway.hears(RENEW).await;
    gateway.clock.goes(6 * SECOND);
    assert_eq!(lost.await.expect("no panic"), LeaseLostError::NotRenewed);
    // The client may have given the request up already, so a failure to send is ignored.
    late.send((200, document(10_000))).ok();
    assert_eq!((lease.is_held(), lease.token().err()), (false, Some(LeaseLostError::NotRenewed)));
    assert_eq!(lease.during(async { 7 }).await, Err(LeaseLostError::NotRenewed));
    let released = tokio::spawn(lease.release());
    gateway.answers(RELEASE, 204, Value::Null).await;
    released.await.expect("no panic").expect("given back");
}

#[tokio::test]
async fn renewal_reconnects_after_broken_connection() {
    let mut gateway = FakeGateway::start().await;
    let lease = gateway.leases().await;
    gateway.clock.goes(4 * SECOND);
    drop(gateway.hears(RENEW).await);
    gateway.answers(RENEW, 200, document(10_000)).await;
    while lease.remaining() != Ok(9 * SECOND) {
        tokio::task::yield_now().await;
    }
}

/// A revocation is reported with a renewal. A lease that is over at the gateway is lost at the next renewal.
#[tokio::test]
async fn lease_over_at_gateway_is_lost() {
    let mut gateway = FakeGateway::start().await;
    let lease = gateway.leases().await;
    let revoked = tokio::spawn(lease.revoked());
    gateway.clock.goes(4 * SECOND);
    let mut asked_back = document(10_000);
    asked_back["revocation"] = "the database is being moved".into();
    gateway.answers(RENEW, 200, asked_back).await;
    assert_eq!(revoked.await.expect("no panic").as_deref(), Some("the database is being moved"));
    gateway.clock.goes(4 * SECOND);
    gateway.answers(RENEW, 412, Value::Null).await;
    assert_eq!(lease.lost().await, LeaseLostError::Ended);
}

/// A request that the caller drops closes its connection. If the lease was granted by then, it is released.
#[tokio::test]
async fn abandoned_request_disconnects_or_releases() {
    let mut gateway = FakeGateway::start().await;
    let asked = tokio::spawn(gateway.client.lease("job/1").wait(60 * SECOND).into_future());
    let mut answer = gateway.hears(ASK).await;
    asked.abort();
    answer.closed().await;

    let asked = tokio::spawn(gateway.client.lease("job/1").into_future());
    answer = gateway.hears(ASK).await;
    gateway.clock.goes(60 * SECOND);
    answer.send((201, document(10_000))).expect("it waits");
    let renewed = gateway.hears(RENEW).await;
    asked.abort();
    drop(asked.await);
    renewed.send((200, document(10_000))).expect("it waits");
    gateway.answers(RELEASE, 204, Value::Null).await;
}

/// The error for a locked key names the key, and ends with `nothing was dispatched`.
#[tokio::test]
async fn locked_key_error_names_key() {
    let mut gateway = FakeGateway::start().await;
    let asked = tokio::spawn(gateway.client.lease("job/1").into_future());
    gateway.answers(ASK, 423, json!({"reason": "locked"})).await;
    let refused = asked.await.expect("no panic").expect_err("locked");
    assert!(matches!(&refused, AcquireError::Locked { keys } if keys == &["job/1"]), "{refused}");
    assert!(refused.to_string().ends_with("nothing was dispatched"), "{refused}");
}

#[tokio::test]
async fn refusal_error_includes_reason() {
    let mut gateway = FakeGateway::start().await;
    let asked = tokio::spawn(gateway.client.lease("job/1").into_future());
    let problem = json!({"reason": "lease-forbidden", "title": "not yours", "status": 403});
    gateway.answers(ASK, 403, problem).await;
    let refused = asked.await.expect("no panic").expect_err("forbidden").to_string();
    assert!(refused.contains("403 `lease-forbidden`: not yours"), "{refused}");
}

/// The names before the renames still work: types, variants in patterns, and methods.
#[tokio::test]
#[expect(deprecated, reason = "the former names are what is tested")]
async fn former_names_still_work() {
    use crate::{BadGateway, Lost, NotLeased, NotReleased, Wanted};

    assert!(matches!(Client::new("https://a", "secret"), Err(BadGateway::Scheme)));
    let mut gateway = FakeGateway::start().await;
    let wanted: Wanted = gateway.client.lease("job/1");
    let asked = tokio::spawn(wanted.into_future());
    gateway.answers(ASK, 423, json!({"reason": "locked"})).await;
    let refused: NotLeased = asked.await.expect("no panic").expect_err("locked");
    assert!(matches!(refused, NotLeased::Locked { .. }), "{refused}");

    let lease = gateway.leases().await;
    assert!(lease.holds());
    assert_eq!(lease.shown(), lease.header_value());
    gateway.clock.goes(10 * SECOND);
    let reason: Lost = lease.lost().await;
    assert!(matches!(reason, Lost::Unproven), "{reason}");
    assert_eq!((lease.holds(), Lost::Over), (false, LeaseLostError::Ended));
    let released = tokio::spawn(lease.release());
    gateway.answers(RELEASE, 503, json!({"reason": "starting"})).await;
    let refused: NotReleased = released.await.expect("no panic").expect_err("refused");
    assert!(matches!(refused, NotReleased::Refused { status: 503, .. }), "{refused}");
}

/// A lease is released through another gateway if some gateways do not answer.
#[tokio::test]
async fn release_passes_silent_gateways() {
    // The first gateway accepts connections and is silent; nothing listens at the second address.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = |listener: &TcpListener| {
        GatewayUrl::parse(&format!("http://{}", listener.local_addr().expect("bound"))).expect("a URL")
    };
    let urls = [url(&silent), url(&gone)];
    drop(gone);
    let mut last = FakeGateway::start().await;
    let lease = last.leases().await;
    let gateways = GatewaySet::new(&[&urls[..], std::slice::from_ref(&last.url)].concat(), None, None);
    let gateways = Arc::new(gateways.expect("three gateways"));
    let handle = lease.told.handle.clone();
    let released = tokio::spawn(async move {
        let many = gateways.len();
        release(&mut GatewayConnection::new(gateways), many, &handle).await
    });
    last.answers(RELEASE, 204, Value::Null).await;
    released.await.expect("no panic").expect("given back");
}

/// If the first gateway answers 503, because it cannot reach the gateway of the lease, the release goes to another
/// gateway before the first one is asked again.
#[tokio::test]
async fn release_moves_on_after_503() {
    let mut away = FakeGateway::start().await;
    let mut last = FakeGateway::start().await;
    last.ask_after(std::slice::from_ref(&away.url));
    let asked = tokio::spawn(last.client.lease("job/1").into_future());
    away.answers(ASK, 201, document(10_000)).await;
    let released = tokio::spawn(asked.await.expect("no panic").expect("granted").release());
    away.answers(RELEASE, 503, json!({"reason": "lease-away"})).await;
    last.answers(RELEASE, 204, Value::Null).await;
    released.await.expect("no panic").expect("given back");
}

/// A lease that is kept until it is released is renewed after its loss, is never held again, and is no longer renewed
/// when the gateway reports its end.
#[tokio::test]
async fn renewals_end_when_lease_is_gone() {
    let mut gateway = FakeGateway::start().await;
    let asked = tokio::spawn(gateway.client.lease("job/1").kept_until_released().into_future());
    gateway.answers(ASK, 201, document(10_000)).await;
    let lease = asked.await.expect("no panic").expect("granted");
    gateway.clock.goes(60 * SECOND);
    assert_eq!(lease.lost().await, LeaseLostError::NotRenewed);
    gateway.hears_later(RENEW).await.send((200, document(10_000))).expect("it waits");
    // The client renews again, so it has read the first answer. That answer must not have made the lease held again.
    let renewed = gateway.hears_later(RENEW).await;
    assert_eq!(lease.held_until(), Err(LeaseLostError::NotRenewed));
    renewed.send((412, Value::Null)).expect("it waits");
    gateway.clock.goes(60 * SECOND);
    let released = tokio::spawn(lease.release());
    gateway.answers(RELEASE, 204, Value::Null).await;
    released.await.expect("no panic").expect("given back");
}

/// A refused renewal ends the lease at once. An answer that does not decide about the lease does not end it.
#[tokio::test]
async fn refused_renewal_ends_lease() {
    let mut gateway = FakeGateway::start().await;
    let lease = gateway.leases().await;
    gateway.clock.goes(2 * SECOND);
    gateway.answers(RENEW, 503, json!({"reason": "lease-away"})).await;
    let renewed = gateway.hears_later(RENEW).await;
    assert!(lease.is_held());
    renewed.send((403, json!({"reason": "lease-forbidden"}))).expect("it waits");
    assert_eq!(lease.lost().await, LeaseLostError::Ended);
}

/// While the lease is held, the pause between renewals is a sixth of the time that is left. After that it doubles with
/// each failure, up to five seconds.
#[test]
fn renewal_pause_grows_while_unanswered() {
    let pauses = [0, 1, 2, 3, 10, 40].map(|unanswered| renewal_pause(Duration::ZERO, unanswered));
    assert_eq!(pauses.map(|pause| pause.as_millis()), [50, 100, 200, 400, 5000, 5000]);
    assert_eq!([renewal_pause(6 * SECOND, 0), renewal_pause(6 * SECOND, 9)], [SECOND; 2], "it is held yet");
}

const WATCH_FIRST: &str = "GET /.fencegate/v1/leases/00000000000000aa?watch=20&seen=0 HTTP/1.1";

/// A watched lease learns of its revocation and of its end without a renewal.
#[tokio::test]
async fn watched_lease_ends_at_once() {
    let mut gateway = FakeGateway::start().await;
    let asked = tokio::spawn(gateway.client.lease("job/1").watched().into_future());
    gateway.answers(ASK, 201, document(10_000)).await;
    let mut revoked = document(10_000);
    revoked["revocation"] = "the database is being moved".into();
    revoked["revision"] = 1.into();
    gateway.answers(WATCH_FIRST, 200, revoked).await;
    let lease = asked.await.expect("no panic").expect("granted");
    assert_eq!(lease.revoked().await.as_deref(), Some("the database is being moved"));
    assert!(lease.is_revoked() && lease.is_held());
    gateway.answers(&WATCH_FIRST.replace("seen=0", "seen=1"), 412, Value::Null).await;
    assert_eq!(lease.lost().await, LeaseLostError::Ended);
}

/// A lease in the queue is watched and renewed, and its time counts from the request before the grant. A request that
/// the caller drops leaves the queue.
#[tokio::test]
async fn queued_lease_is_renewed_and_leaves() {
    let mut gateway = FakeGateway::start().await;
    let mut waiting = document(0);
    waiting["state"] = "waiting".into();
    waiting["ttl_ms"] = 4_000.into();
    let watch = WATCH_FIRST.replace("watch=20", "watch=1");
    let asked = tokio::spawn(gateway.client.lease("job/1").queued(None).into_future());
    gateway.answers(ASK, 202, waiting.clone()).await;
    gateway.clock.goes(60 * SECOND);
    gateway.answers(&watch, 200, waiting.clone()).await;
    gateway.answers(RENEW, 200, document(10_000)).await;
    let lease = asked.await.expect("no panic").expect("granted");
    assert_eq!(lease.remaining(), Ok(9 * SECOND));
    let released = tokio::spawn(lease.release());
    gateway.answers(RELEASE, 204, Value::Null).await;
    released.await.expect("no panic").expect("given back");

    let asked = tokio::spawn(gateway.client.lease("job/1").queued(None).into_future());
    gateway.answers(ASK, 202, waiting).await;
    drop(gateway.hears(&watch).await);
    asked.abort();
    drop(asked.await);
    // The watch may arrive once more before the release.
    loop {
        let heard = gateway.heard.recv().await.expect("somebody asks");
        if heard.line == RELEASE {
            heard.answer.send((204, Value::Null)).expect("it waits");
            break;
        }
    }
    gateway.client.wait_released().await;
}
