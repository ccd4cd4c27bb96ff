//! Tests that a body that breaks off never counts as complete.

use http_body_util::BodyExt as _;
use hyper::{Request, client};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    task::{LocalSet, spawn_local},
};

use super::*;

/// Frames of HTTP/2 (RFC 9113, 4.1).
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const HEAD_OF_200: &[u8] = &[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88];
const TWO_BYTES: &[u8] = &[0, 0, 2, 0, 0, 0, 0, 0, 1, b'a', b'b'];
const LAST_TWO_BYTES: &[u8] = &[0, 0, 2, 0, 1, 0, 0, 0, 1, b'a', b'b'];
const RESET_WITHOUT_ERROR: &[u8] = &[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 0];

/// An upstream that answers one request with these frames.
async fn answer_with_frames(mut stream: DuplexStream, frames: Vec<u8>) {
    stream.write_all(SETTINGS).await.expect("taken");
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.expect("a preface");
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.expect("a frame");
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length]).await.expect("all of it");
        if head[3] == 1 {
            break;
        }
    }
    stream.write_all(&frames).await.expect("taken");
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
}

/// Returns how a response ends, how it ends when it is read once more, and whether it counts as complete.
async fn observe_response_ends(frames: &[&[u8]]) -> (Option<bool>, Option<bool>, bool) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    spawn_local(answer_with_frames(theirs, frames.concat()));
    let (mut sender, connection) = client::conn::http2::handshake(CurrentThreadExecutor, TokioIo::new(ours))
        .await
        .expect("it speaks HTTP/2");
    spawn_local(connection);
    let request = Request::get("http://a/").body(http_body_util::Empty::<Bytes>::new()).expect("a request");
    let answer = sender.send_request(request).await.expect("a head").into_body();
    let permit = Rc::new(());
    let in_flight = Rc::downgrade(&permit);
    let live = IncomingBody::new(answer, BodyEndDetection::Http2, Duration::from_secs(5));
    let mut body =
        Body::new(BodyInner::from_live_body(live), TrailerPolicy::Drop).keep_until_complete(permit);
    let end = loop {
        match body.frame().await {
            Some(Ok(_)) => {}
            other => break other.map(|frame| frame.is_err()),
        }
    };
    let again = body.frame().await.map(|frame| frame.is_err());
    (end, again, in_flight.upgrade().is_none())
}

/// A response that breaks off is not complete, however often its body is polled.
#[tokio::test]
async fn broken_response_never_counts_as_complete() {
    LocalSet::new()
        .run_until(async {
            let whole = observe_response_ends(&[HEAD_OF_200, LAST_TWO_BYTES]).await;
            assert_eq!(whole, (None, None, true));
            let broken = observe_response_ends(&[HEAD_OF_200, TWO_BYTES, RESET_WITHOUT_ERROR]).await;
            assert_eq!(broken, (Some(true), Some(true), false));
        })
        .await;
}

#[derive(Clone, Copy)]
struct CurrentThreadExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for CurrentThreadExecutor {
    fn execute(&self, task: F) {
        spawn_local(task);
    }
}
