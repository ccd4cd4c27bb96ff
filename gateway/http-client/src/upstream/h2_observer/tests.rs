use std::{future::pending, pin::pin, sync::Arc};

use fencegate_http::body::{Body, BodyObserver};
use fencegate_process::clock::ManualClock;
use http_body_util::BodyExt;
use hyper::{
    Request, Response, body::Incoming, header::HOST, http::uri::Scheme, rt::Executor, server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::{
    io::{DuplexStream, duplex},
    sync::oneshot,
    task::LocalSet,
};

use super::*;
use crate::upstream::{
    client_connection::{self, RequestSender},
    gate::{GatedIo, WriteGate},
};

fn frame(kind: u8, flags: u8, stream: u32, payload: usize) -> Vec<u8> {
    let length = u32::try_from(payload).expect("short").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(vec![1; payload]);
    bytes
}

fn observe_writes(bytes: &[u8], pieces: usize) -> H2WriteState {
    let seen = H2WriteState::new();
    let mut out = H2WritePosition { skip: PREFACE, head: [0; HEAD], have: 0, frame: H2FrameKind::Other };
    for piece in [&[0; PREFACE], bytes].concat().chunks(pieces) {
        out.advance(piece, &seen);
    }
    seen
}

/// A request counts as sent with the last byte of the frame that ends its stream, and not a byte earlier.
#[test]
fn request_is_sent_with_last_byte() {
    let open = END_HEADERS;
    let end = END_HEADERS | FIRST_FLAG;
    let cases: [(&str, Vec<Vec<u8>>, bool); 9] = [
        ("fields only", vec![frame(HEADERS, end, 1, 20)], true),
        ("body to come", vec![frame(HEADERS, open, 1, 20)], false),
        ("half of the body", vec![frame(HEADERS, open, 1, 20), frame(DATA, 0, 1, 9)], false),
        ("all of it", vec![frame(HEADERS, open, 1, 20), frame(DATA, 1, 1, 9)], true),
        ("an empty end", vec![frame(HEADERS, open, 1, 20), frame(DATA, 1, 1, 0)], true),
        (
            "trailers",
            vec![frame(HEADERS, open, 1, 20), frame(DATA, 0, 1, 9), frame(HEADERS, end, 1, 3)],
            true,
        ),
        ("fields go on", vec![frame(HEADERS, FIRST_FLAG, 1, 20)], false),
        ("and end", vec![frame(HEADERS, FIRST_FLAG, 1, 20), frame(CONTINUATION, END_HEADERS, 1, 5)], true),
        ("others between", vec![frame(HEADERS, open, 1, 20), frame(6, 1, 0, 8), frame(3, 0, 1, 4)], false),
    ];
    for (case, frames, left) in cases {
        let bytes = [frame(SETTINGS, 0, 0, 12), frames.concat()].concat();
        assert_eq!(observe_writes(&bytes, 1).is_request_sent(), left, "{case}");
        if left {
            assert!(
                !observe_writes(&bytes[..bytes.len() - 1], 4).is_request_sent(),
                "{case}: but for a byte"
            );
        }
    }
}

/// Writes a request on stream 5, and then receives these frames in pieces of `pieces` bytes.
fn observe_reads(frames: &[u8], pieces: usize) -> H2WriteState {
    let seen = observe_writes(&frame(HEADERS, END_HEADERS | FIRST_FLAG, 3, 20), 7);
    seen.begin_exchange();
    seen.record_frame(H2FrameKind::Request { stream: 5, last: true, fields_go_on: false });
    let mut incoming = H2ReadPosition::default();
    for piece in frames.chunks(pieces) {
        incoming.parse_received_frames(piece, &seen);
    }
    seen
}

/// A frame whose payload is this number and `more` bytes after it.
fn numbered_frame(kind: u8, stream: u32, number: u32, more: usize) -> Vec<u8> {
    let mut bytes = frame(kind, 0, stream, 4 + more);
    bytes[HEAD..HEAD + 4].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// A request counts as unprocessed only if the other side has said so about its stream.
#[test]
fn unprocessed_request_is_told_by_peer() {
    let reset = |stream: u32, code: u32| numbered_frame(RST_STREAM, stream, code, 0);
    let goaway = |last: u32, more: usize| numbered_frame(GOAWAY, 0, last, 4 + more);
    let cases: [(&str, Vec<Vec<u8>>, bool); 16] = [
        ("nothing", vec![], false),
        ("settings and a ping", vec![frame(SETTINGS, 0, 0, 18), frame(6, 0, 0, 8)], false),
        ("refused", vec![frame(SETTINGS, 0, 0, 0), reset(5, REFUSED_STREAM)], true),
        ("the stream before was refused", vec![reset(3, REFUSED_STREAM)], false),
        ("cancelled", vec![reset(5, 8)], false),
        ("an internal error", vec![reset(5, 2)], false),
        ("told to use HTTP/1.1", vec![reset(5, 13)], false),
        ("a goaway below", vec![goaway(3, 0)], true),
        ("a goaway below, with words", vec![goaway(0, 30)], true),
        ("a goaway that has it", vec![goaway(5, 3)], false),
        ("a goaway of later streams", vec![goaway(0x7fff_ffff, 0)], false),
        ("a goaway that goes down", vec![goaway(0x7fff_ffff, 0), goaway(3, 0)], true),
        ("refused after an interim answer", vec![frame(HEADERS, 4, 5, 3), reset(5, REFUSED_STREAM)], false),
        ("a goaway after a piece of a body", vec![frame(DATA, 0, 5, 3), goaway(3, 0)], false),
        ("an answer to the stream before", vec![frame(HEADERS, 4, 3, 3), goaway(3, 0)], true),
        ("a frame that looks like one within", vec![frame(DATA, 0, 3, 40)], false),
    ];
    for (case, frames, unprocessed) in cases {
        for pieces in [1, 3, 9, 100] {
            assert_eq!(
                observe_reads(&frames.concat(), pieces).is_request_unprocessed(),
                unprocessed,
                "{case}"
            );
        }
    }
    let next = observe_reads(&reset(5, REFUSED_STREAM), 9);
    next.begin_exchange();
    assert!(!next.is_request_unprocessed(), "the next request was not sent yet");
    next.record_frame(H2FrameKind::Request { stream: 7, last: true, fields_go_on: false });
    assert!(!next.is_request_unprocessed());
}

/// After a request was sent in full, the request of the next exchange does not count as sent.
#[test]
fn next_exchange_starts_unsent() {
    let seen = observe_writes(&frame(HEADERS, END_HEADERS | FIRST_FLAG, 1, 20), 7);
    assert!(seen.is_request_sent());
    seen.begin_exchange();
    assert!(!seen.is_request_sent());
}

proptest! {
    /// The state does not depend on the pieces in which the bytes are written.
    #[test]
    fn chunking_does_not_change_state(
        kinds in proptest::collection::vec((0_u8..10, 0_u8..8, 0_u32..4, 0_usize..40), 0..12),
        pieces in 1_usize..60,
    ) {
        let bytes: Vec<u8> =
            kinds.iter().flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, *payload)).collect();
        let one = observe_writes(&bytes, 1);
        let other = observe_writes(&bytes, pieces);
        prop_assert_eq!(one.is_request_sent(), other.is_request_sent());
        prop_assert_eq!(one.acknowledged.get(), other.acknowledged.get());
    }
}

/// Set when the library has taken all of a body.
struct BodyTakenFlag(Rc<Cell<bool>>);

impl BodyObserver for BodyTakenFlag {
    fn on_end(&mut self) {
        self.0.set(true);
    }
}

#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}

/// The flow-control window of the other side.
const ROOM: u32 = 65_535;
const LARGE: usize = 1 << 20;

/// A service that reads a body once it is triggered, and never answers.
async fn serve_without_answer(far: DuplexStream, reads: oneshot::Receiver<()>) {
    let reads = Rc::new(Cell::new(Some(reads)));
    let never = service_fn(move |request: Request<Incoming>| {
        let reads = reads.take().expect("one request");
        async move {
            reads.await.expect("told");
            request.into_body().collect().await?;
            pending::<Result<Response<Body>, hyper::Error>>().await
        }
    });
    let mut http = http2::Builder::new(LocalExecutor);
    http.initial_stream_window_size(ROOM).initial_connection_window_size(ROOM);
    drop(http.serve_connection(TokioIo::new(far), never).await);
}

/// A request does not count as sent when the library has taken its whole body and has flushed: because of the
/// other side's window it may still hold a part. Only the frames show it.
#[tokio::test(flavor = "current_thread")]
async fn taken_and_flushed_body_is_unsent() {
    LocalSet::new().run_until(check_taken_body_is_unsent()).await;
}

async fn check_taken_body_is_unsent() {
    let (near, far) = duplex(2 * LARGE);
    let (read, reads) = oneshot::channel();
    tokio::task::spawn_local(serve_without_answer(far, reads));
    let gate = Rc::new(WriteGate::new(Arc::<ManualClock>::default()));
    let spoken = client_connection::handshake_http2(GatedIo::new(near, gate.clone()), Scheme::HTTP).await;
    let (mut sender, _running) = spoken.expect("both speak HTTP/2");
    let RequestSender::Http2(_, seen, _) = &sender else { panic!("another protocol") };
    let seen = seen.clone();
    let taken = Rc::<Cell<bool>>::default();
    let body = Body::from_bytes(vec![7; LARGE].into()).with_observer(Box::new(BodyTakenFlag(taken.clone())));
    gate.arm(None);
    let request = Request::post("/pay/7").header(HOST, "a.example").body(body);
    let mut answer = pin!(sender.send(request.expect("a request")));
    let looks_over =
        |_: &H2WriteState| taken.get() && gate.is_flushed() && gate.written_bytes() > u64::from(ROOM);
    tokio::select! {
        _ = &mut answer => panic!("nobody answers"),
        () = seen.wait_until(looks_over) => {}
    }
    assert!(gate.written_bytes() < 2 * u64::from(ROOM), "no more than there is room for");
    assert!(!seen.is_request_sent());
    read.send(()).expect("the service waits");
    tokio::select! {
        _ = answer => panic!("nobody answers"),
        () = seen.wait_until(H2WriteState::is_request_sent) => assert!(gate.written_bytes() > LARGE as u64),
    }
}
