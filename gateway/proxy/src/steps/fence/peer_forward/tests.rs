use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use fencegate_config::{active_config::ActiveConfig, process_context::ProcessContext};
use fencegate_guard_client::guard_identity::UpstreamGuardRegistry;
use fencegate_http::connection_info::ConnectionInfo;
use fencegate_http::network::sockets::OsNetwork;
use fencegate_http_client::upstream::endpoint_set::UpstreamSet;
use fencegate_metrics::{AllMetricFamilies, WorkerMetrics};
use fencegate_policies::{file::load, plan::UpstreamId};
use fencegate_process::{
    clock::MachineClock,
    randomness::{Guid, SystemRandomness},
};
use fencegate_protocol::trace::{TraceContext, TraceSamplingRate};
use fencegate_zookeeper::{
    peer_endpoint::PeerEndpoint,
    peer_secret::{ChallengeNonce, PeerSecret},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::LocalSet,
    time::timeout,
};

use super::*;
use crate::{
    request_context::{RequestArrival, RequestContext, RequestSource, RequestTraceIds},
    steps::client_liveness::{ClientPresenceGuard, client_disconnect_channel},
    via::ViaName,
};

const POLICY: &str = r#"version: 1
listeners: {public: {address: 127.0.0.1:8080}}
zookeeper: {servers: [zk1:2181]}
upstreams: {a: {endpoints: ["http://a:80"], fencing: upstream}}
routes:
  - {name: pay, upstream: a, match: {methods: [POST], path: "/pay/{id}"}, fence: {key: "pay/{path.id}"}}
"#;

const DONE: &str = "HTTP/1.1 200 OK\r\nFencing-Outcome: done; waited=3\r\nContent-Length: 4\r\n\r\npaid";

fn peer_forwarder() -> PeerForwarder<OsNetwork> {
    let gateway = load(POLICY).plan.expect("sound");
    let plan = Arc::new(gateway.serving.clone());
    let all = AllMetricFamilies::for_gateway(&gateway);
    let metrics = Rc::new(WorkerMetrics::new(all.clone(), &plan));
    let reach = PeerEndpoint { address: "gw-1:9910".into(), pass: PeerSecret::new(&SystemRandomness) };
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let local_peer =
        LocalPeerIdentity { name: "gw-1".into(), address, reach, certificates: None, secured: None };
    let plan = Rc::new(WorkerPlanContext {
        process: ProcessContext::new(Arc::new(MachineClock), all.clone()),
        config: ActiveConfig::initial(plan.clone(), UpstreamSet::for_display(&plan, all.endpoints()), None),
        metrics,
        guards: Arc::new(UpstreamGuardRegistry::new(Arc::default())),
        clients: Default::default(),
        running: Default::default(),
    });
    PeerForwarder { network: OsNetwork, local_peer, plan, idle: Rc::default() }
}

fn holder_route(address: SocketAddr) -> HolderRoute {
    let address = address.to_string().into();
    let pass = PeerSecret::parse(&"5a".repeat(32)).expect("hex");
    HolderRoute { gateway: "gw-2".into(), member: "gw-2-02".into(), address, secret: pass }
}

fn keyed_request(forwarder: &PeerForwarder<OsNetwork>) -> KeyedRequest {
    let body = Body::from_bytes(Bytes::from_static(b"amount=7"));
    let http = Request::post("/pay/7").header("host", "a").body(body).expect("a request");
    let context = Rc::new(RequestContext::default());
    let http = Box::new(http);
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let source = RequestSource {
        arrival: RequestArrival::from_peer(ConnectionInfo::new(local, local)),
        client: local.ip(),
        via: Rc::new(ViaName::new(Guid::new(&SystemRandomness))),
        hops: 0,
        forwarded: None,
        callback: None,
        lease: None,
    };
    let trace = RequestTraceIds {
        context: TraceContext::from_headers(&mut HeaderMap::new(), TraceSamplingRate::Off),
        request_id: HeaderValue::from_static("1"),
    };
    KeyedRequest {
        http,
        context,
        plan: Rc::new(forwarder.plan.config.plan.clone()),
        upstream: UpstreamId(0),
        route: None,
        source: Rc::new(source),
        identity: None,
        trace: Rc::new(trace),
        has_override: false,
        unlocked: None,
        fenced: None,
    }
}

async fn forward_request(
    forwarder: &PeerForwarder<OsNetwork>,
    to: SocketAddr,
    left: u64,
) -> (PeerForwardOutcome, KeyedRequest) {
    let (here, client) = client_disconnect_channel();
    let request = keyed_request(forwarder);
    let outcome = forward_for_client(forwarder, to, left, &request, client).await;
    drop(here);
    (outcome, request)
}

async fn forward_for_client(
    forwarder: &PeerForwarder<OsNetwork>,
    to: SocketAddr,
    left: u64,
    request: &KeyedRequest,
    mut client: ClientDisconnectWatch,
) -> PeerForwardOutcome {
    let key = ResourceKey::parse("pay/7").expect("a key");
    let route = holder_route(to);
    let left = Duration::from_millis(left);
    let ended_sessions = &EndedPeerSessions::default();
    let outbound =
        PeerForwardRequest { route: &route, key: &key, request, certificate: None, left, ended_sessions };
    let forwarding = forwarder.forward(outbound, &mut client);
    timeout(Duration::from_secs(20), forwarding).await.expect("an end")
}

/// The action of a fake gateway on one connection.
enum FakePeerAction {
    Answer(&'static str),
    /// Sends this answer, and closes the connection as soon as it is idle.
    AnswerAndClose(&'static str),
    Close,
    /// Reads until the gateway under test closes the connection.
    Wait,
}

struct FakePeer {
    address: SocketAddr,
    seen: mpsc::UnboundedReceiver<String>,
}

async fn start_fake_peer(acts: Vec<FakePeerAction>) -> FakePeer {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (saw, seen) = mpsc::unbounded_channel();
    let acts = Rc::new(Mutex::new(acts));
    tokio::task::spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::task::spawn_local(run_peer_actions(stream, acts.clone(), saw.clone()));
        }
    });
    FakePeer { address, seen }
}

async fn run_peer_actions(
    mut stream: TcpStream,
    acts: Rc<Mutex<Vec<FakePeerAction>>>,
    saw: mpsc::UnboundedSender<String>,
) {
    if !answer_challenge(&mut stream).await {
        return;
    }
    while let Some(head) = read_request(&mut stream).await {
        saw.send(head).ok();
        let act = acts.lock().expect("one thread").remove(0);
        match act {
            FakePeerAction::Answer(text) => stream.write_all(text.as_bytes()).await.expect("written"),
            FakePeerAction::AnswerAndClose(text) => {
                stream.write_all(text.as_bytes()).await.expect("written");
                break;
            }
            FakePeerAction::Close => break,
            FakePeerAction::Wait => {
                let mut rest = Vec::new();
                let ended = stream.read_to_end(&mut rest).await;
                saw.send(format!("ended: {}", ended.map_or(true, |read| read == 0))).ok();
                break;
            }
        }
    }
}

/// Answers the challenge of each connection, as a gateway with the peer secret of [`holder_route`] does.
async fn answer_challenge<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> bool {
    let Some(head) = read_until(stream, b"\r\n\r\n").await else { return false };
    assert!(head.starts_with("OPTIONS * HTTP/1.1\r\n") && !head.contains(&"5a".repeat(8)), "{head}");
    let (_, rest) = head.split_once("fencing-forwarded: nonce=").expect("a question");
    let nonce = ChallengeNonce::parse(&rest[..64]).expect("a nonce");
    let proof = PeerSecret::parse(&"5a".repeat(32)).expect("hex").respond(&nonce);
    let answer = format!("HTTP/1.1 204 No Content\r\nFencing-Forwarded: proof={}\r\n\r\n", proof.as_str());
    stream.write_all(answer.as_bytes()).await.is_ok()
}

/// Reads one request, whose body is `amount=7`. `None` at the end of the connection.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    read_until(stream, b"amount=7").await
}

async fn read_until<S: AsyncRead + Unpin>(stream: &mut S, end: &[u8]) -> Option<String> {
    let mut text = Vec::new();
    while !text.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.ok()?;
        text.push(byte[0]);
    }
    Some(String::from_utf8(text).expect("ASCII"))
}

fn expect_refusal(outcome: PeerForwardOutcome) -> Refusal {
    match outcome {
        PeerForwardOutcome::Refused(refusal) => refusal,
        PeerForwardOutcome::Answered(_) => panic!("answered"),
        PeerForwardOutcome::Requeue(reason) | PeerForwardOutcome::Unreachable(reason) => {
            panic!("back: {reason}")
        }
    }
}

fn is_requeued(outcome: &PeerForwardOutcome) -> bool {
    matches!(outcome, PeerForwardOutcome::Requeue(_) | PeerForwardOutcome::Unreachable(_))
}

/// The answer of a peer is passed on unchanged, and its connection carries the next request.
#[tokio::test(flavor = "current_thread")]
async fn answer_passes_and_connection_is_reused() {
    LocalSet::new()
        .run_until(async {
            let mut there =
                start_fake_peer(vec![FakePeerAction::Answer(DONE), FakePeerAction::Answer(DONE)]).await;
            let forwarder = peer_forwarder();
            for _ in 0..2 {
                let (answer, request) = forward_request(&forwarder, there.address, 1500).await;
                let PeerForwardOutcome::Answered(reply) = answer else { panic!("not answered") };
                assert_eq!(reply.headers()["fencing-outcome"], "done; waited=3");
                assert_eq!(
                    request.context.peer_answer().map(|(_, report)| report.outcome),
                    Some(DispatchOutcome::Done)
                );
                assert!(reply.into_body().buffer_if_short().await.is_some());
                let sent = there.seen.recv().await.expect("sent").to_lowercase();
                let pass = "5a".repeat(32);
                assert!(
                    sent.contains(&format!("fencing-forwarded: pass={pass}; key=pay/7; wait=1")),
                    "{sent}"
                );
                assert!(sent.contains("; from=gw-1\r\n") && sent.starts_with("post /pay/7 http/1.1\r\n"));
                // Wait until the connection is idle.
                while forwarder.idle.idle_count() == 0 {
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
}

/// A request that the peer may have dispatched has an unknown outcome and is not sent again.
#[tokio::test(flavor = "current_thread")]
async fn possibly_dispatched_request_never_requeues() {
    LocalSet::new()
        .run_until(async {
            for act in [
                FakePeerAction::Close,
                // A 421 without `Fencing-Outcome` comes from a server that is no gateway.
                FakePeerAction::Answer("HTTP/1.1 421 M\r\nContent-Length: 0\r\n\r\n"),
                FakePeerAction::AnswerAndClose("HTTP/1.1 421 M\r\nFencing-Outcome: not-disp"),
            ] {
                let mut there = start_fake_peer(vec![act]).await;
                let (answer, _) = forward_request(&peer_forwarder(), there.address, 100).await;
                assert_eq!(expect_refusal(answer).reason, RefusalReason::OutcomeUnknown);
                assert!(there.seen.recv().await.is_some() && there.seen.try_recv().is_err(), "sent twice");
            }
        })
        .await;
}

/// A request that the peer certainly did not dispatch goes back to the queue.
#[tokio::test(flavor = "current_thread")]
async fn undispatched_request_requeues() {
    LocalSet::new()
        .run_until(async {
            let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = nobody.local_addr().expect("bound");
            drop(nobody);
            assert!(is_requeued(&forward_request(&peer_forwarder(), address, 100).await.0), "nobody listens");
            let refusal = "HTTP/1.1 421 M\r\nFencing-Outcome: not-dispatched; reason=not-holder\r\nContent-Length: 2\r\n\r\n{}";
            let there = start_fake_peer(vec![FakePeerAction::Answer(refusal)]).await;
            let (answer, request) = forward_request(&peer_forwarder(), there.address, 100).await;
            assert!(matches!(answer, PeerForwardOutcome::Requeue("not-holder")));
            assert!(request.context.peer.take().is_none());
        })
        .await;
}

/// A connection that was closed while it was idle is replaced, and no request is sent twice.
#[tokio::test(flavor = "current_thread")]
async fn closed_idle_connection_is_replaced() {
    LocalSet::new()
        .run_until(async {
            let mut there =
                start_fake_peer(vec![FakePeerAction::AnswerAndClose(DONE), FakePeerAction::Answer(DONE)])
                    .await;
            let forwarder = peer_forwarder();
            for _ in 0..2 {
                let (answer, _) = forward_request(&forwarder, there.address, 100).await;
                let PeerForwardOutcome::Answered(reply) = answer else { panic!("not answered") };
                reply.into_body().buffer_if_short().await.expect("complete");
                assert!(there.seen.recv().await.is_some());
            }
            assert!(there.seen.try_recv().is_err());
        })
        .await;
}

/// When a client disconnects, the peer sees the end of the forwarded request.
#[tokio::test(flavor = "current_thread")]
async fn client_disconnect_reaches_peer() {
    LocalSet::new()
        .run_until(async {
            let mut there = start_fake_peer(vec![FakePeerAction::Wait]).await;
            let forwarder = peer_forwarder();
            let (here, client): (ClientPresenceGuard, ClientDisconnectWatch) = client_disconnect_channel();
            let request = keyed_request(&forwarder);
            let address = there.address;
            let forwarding = forward_for_client(&forwarder, address, 10_000, &request, client);
            let gone = async {
                assert!(there.seen.recv().await.expect("sent").starts_with("POST"));
                drop(here);
                assert_eq!(there.seen.recv().await.as_deref(), Some("ended: true"));
            };
            let (answer, ()) = tokio::join!(forwarding, gone);
            assert_eq!(expect_refusal(answer).reason, RefusalReason::OutcomeUnknown);
        })
        .await;
}

/// The answer of a peer may have more header fields than that of an upstream.
#[tokio::test(flavor = "current_thread")]
async fn peer_answer_may_have_more_fields() {
    LocalSet::new()
        .run_until(async {
            let many: String = (0..150).map(|n| format!("X-{n}: {}\r\n", "x".repeat(500))).collect();
            let answer =
                format!("HTTP/1.1 200 OK\r\nFencing-Outcome: done\r\n{many}Content-Length: 0\r\n\r\n");
            let there = start_fake_peer(vec![FakePeerAction::Answer(answer.leak())]).await;
            assert!(matches!(
                forward_request(&peer_forwarder(), there.address, 1000).await.0,
                PeerForwardOutcome::Answered(_)
            ));
        })
        .await;
}

/// If the holder cannot reach its upstream, the request queues here again, and the holder's answer is passed
/// on only when no time is left.
#[tokio::test(flavor = "current_thread")]
async fn unreachable_upstream_requeues_within_wait() {
    const AWAY: &str = "HTTP/1.1 502 B\r\nFencing-Outcome: not-dispatched; reason=upstream-connect\r\nContent-Length: 0\r\n\r\n";
    LocalSet::new()
        .run_until(async {
            let there =
                start_fake_peer(vec![FakePeerAction::Answer(AWAY), FakePeerAction::Answer(AWAY)]).await;
            let forwarder = peer_forwarder();
            let (answer, _) = forward_request(&forwarder, there.address, 5000).await;
            assert!(matches!(answer, PeerForwardOutcome::Requeue("upstream-connect")));
            let (answer, _) = forward_request(&forwarder, there.address, 0).await;
            assert!(matches!(answer, PeerForwardOutcome::Answered(_)));
        })
        .await;
}

/// A connection to a peer that forbids the request, or is about to close, is not used again.
#[tokio::test(flavor = "current_thread")]
async fn misdirected_or_closing_connection_is_dropped() {
    const FORBIDDEN: &str = "HTTP/1.1 403 F\r\nFencing-Outcome: not-dispatched; reason=peer-forbidden\r\nContent-Length: 0\r\n\r\n";
    const LAST: &str =
        "HTTP/1.1 200 OK\r\nFencing-Outcome: done\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    LocalSet::new()
        .run_until(async {
            for last in [FORBIDDEN, LAST] {
                // Two requests at once open two connections. After the last answer both are closed.
                let there = start_fake_peer(vec![
                    FakePeerAction::Answer(DONE),
                    FakePeerAction::Answer(DONE),
                    FakePeerAction::Answer(last),
                ])
                .await;
                let forwarder = peer_forwarder();
                let send = async || forward_request(&forwarder, there.address, 1000).await.0;
                for answer in <[PeerForwardOutcome; 2]>::from(tokio::join!(send(), send())) {
                    let PeerForwardOutcome::Answered(reply) = answer else { panic!("not answered") };
                    reply.into_body().buffer_if_short().await.expect("complete");
                }
                while forwarder.idle.idle_count() < 2 {
                    tokio::task::yield_now().await;
                }
                let answer = send().await;
                assert_eq!((is_requeued(&answer), forwarder.idle.idle_count()), (last == FORBIDDEN, 0));
            }
        })
        .await;
}

mod first;
mod secured;
