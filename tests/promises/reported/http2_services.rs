//! A service that says by HTTP/2 that it has processed nothing of a request is believed, and asked once more.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use fencegate_tests::{
    client::{
        FencingOutcome, TestRequest,
        frames::{END_HEADERS, END_STREAM, frame},
    },
    gateway::Gateway,
    site::TestSite,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
/// `:status: 200`, from the static table (RFC 7541, A).
const STATUS_200: &[u8] = &[0x88];
/// `:status: 103`, as a literal with the name of the static table.
const STATUS_103: &[u8] = &[0x08, 3, b'1', b'0', b'3'];

/// The reaction of the service to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Answer,
    /// Resets the stream with this error code.
    Reset(u32),
    /// An interim answer, and then the reset.
    ResetAfterInterim(u32),
    /// Ends the connection with the stream before this one as the last one.
    GoAwayBelow,
    /// Ends the connection with this stream as the last one, and does not answer.
    GoAwayAt,
}

const REFUSED_STREAM: u32 = 7;

/// A service that speaks HTTP/2 frame by frame. Each request gets the next act, and later requests get the last act.
struct FrameService {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    listening: JoinHandle<()>,
}

impl FrameService {
    async fn start(acts: &'static [Act]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let requests = Arc::<AtomicUsize>::default();
        let counted = requests.clone();
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, acts, counted.clone()));
            }
        });
        Self { address, requests, listening }
    }
}

impl Drop for FrameService {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Serves a connection until the gateway ends it.
async fn serve(mut stream: TcpStream, acts: &[Act], requests: Arc<AtomicUsize>) -> Option<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.ok()?;
    stream.write_all(&frame(SETTINGS, 0, 0, b"")).await.ok()?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.ok()?;
        let [high, middle, low, kind, flags, id @ ..] = head;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.ok()?;
        let number = u32::from_be_bytes(id);
        let written = match kind {
            SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, b""),
            HEADERS => {
                let request = requests.fetch_add(1, Ordering::SeqCst);
                let act = acts.get(request).or(acts.last()).copied().unwrap_or(Act::Answer);
                let reset = |code: u32| frame(RST_STREAM, 0, number, &code.to_be_bytes());
                let go_away =
                    |last: u32| frame(GOAWAY, 0, 0, &[last.to_be_bytes(), 0_u32.to_be_bytes()].concat());
                match act {
                    Act::Answer => frame(HEADERS, END_HEADERS | END_STREAM, number, STATUS_200),
                    Act::Reset(code) => reset(code),
                    Act::ResetAfterInterim(code) => {
                        [frame(HEADERS, END_HEADERS, number, STATUS_103), reset(code)].concat()
                    }
                    Act::GoAwayBelow => go_away(number - 1),
                    Act::GoAwayAt => {
                        stream.write_all(&go_away(number)).await.ok()?;
                        return None;
                    }
                }
            }
            _ => continue,
        };
        stream.write_all(&written).await.ok()?;
    }
}

/// Reported as envoyproxy/envoy#68, golang/go#20985, nginx/nginx#1724, nodejs/undici#5598 and JuliaWeb/HTTP.jl#1294: a
/// request on a stream that was refused, or that lies above the last one of a GOAWAY, was given up or reported as
/// failed. RFC 9113, 8.7, guarantees that such a request was not processed. This test covers signals of the server
/// about exactly this request; after any weaker signal the outcome stays unknown.
#[tokio::test]
async fn unprocessed_request_is_sent_once_more() {
    use Act::{Answer, GoAwayAt, GoAwayBelow, Reset, ResetAfterInterim};
    use FencingOutcome::{Done, NotDispatched, Unknown};
    let site = TestSite::fresh().await;
    let cases: [(&'static [Act], u16, &str, FencingOutcome, usize); 8] = [
        (&[Reset(REFUSED_STREAM), Answer], 200, "", Done, 2),
        (&[GoAwayBelow, Answer], 200, "", Done, 2),
        (&[Reset(REFUSED_STREAM)], 502, "upstream-refused", NotDispatched, 2),
        (&[GoAwayBelow], 502, "upstream-refused", NotDispatched, 2),
        // CANCEL and INTERNAL_ERROR do not say whether the request was processed.
        (&[Reset(8), Answer], 502, "outcome-unknown", Unknown, 1),
        (&[Reset(2), Answer], 502, "outcome-unknown", Unknown, 1),
        (&[ResetAfterInterim(REFUSED_STREAM), Answer], 502, "outcome-unknown", Unknown, 1),
        (&[GoAwayAt, Answer], 502, "outcome-unknown", Unknown, 1),
    ];
    for (acts, status, reason, outcome, sent) in cases {
        let service = FrameService::start(acts).await;
        let policy = site
            .policy("gw-1")
            .with("/upstreams/ledger/endpoints", json!([format!("http://{}", service.address)]))
            .with("/upstreams/ledger/protocol", "http2");
        let gateway = Gateway::start(&policy).await;
        let answer = gateway.send(&TestRequest::post("/pay/7").body("ten")).await;
        assert_eq!((answer.status, answer.outcome()), (status, Some(outcome)), "{acts:?}: {answer:?}");
        if status != 200 {
            assert_eq!(answer.reason(), reason, "{acts:?}");
        }
        assert_eq!(service.requests.load(Ordering::SeqCst), sent, "{acts:?}");
        if sent == 2 && status == 200 {
            // The repeated request is a dispatch of its own, with a newer token.
            let token = answer.token().expect("a fenced route").to_string();
            assert!(token.ends_with("-00000002"), "{acts:?}: {token}");
        }
        gateway.stop().await;
    }
}
