use std::time::Duration;

use fencegate_http::network::socket_stream::SocketStream;
use fencegate_process::clock::{Clock, ManualClock};
use futures_util::FutureExt;
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::upstream::h2_observer::H2ObservedIo;

fn gated_stream(clock: Arc<ManualClock>) -> (GatedIo<DuplexStream>, Rc<WriteGate>, DuplexStream) {
    let gate = Rc::new(WriteGate::new(clock));
    let (near, far) = duplex(1024);
    (GatedIo::new(near, gate.clone()), gate, far)
}

/// A permission that holds until a fixed moment.
#[derive(Debug)]
struct FixedSendPermission(BootInstant);

impl SendPermission for FixedSendPermission {
    fn may_send_at(&self, now: BootInstant) -> bool {
        now < self.0
    }

    fn valid_until(&self) -> BootInstant {
        self.0
    }
}

fn permission_until(seconds: u64) -> Arc<FixedSendPermission> {
    Arc::new(FixedSendPermission(BootInstant::from_nanos(0) + Duration::from_secs(seconds)))
}

/// No byte passes after the deadline, not even the rest of a request.
#[tokio::test(flavor = "current_thread")]
async fn no_byte_passes_after_deadline() {
    let clock = Arc::new(ManualClock::default());
    let (mut io, gate, mut far) = gated_stream(clock.clone());
    gate.arm(Some(permission_until(5)));
    io.write_all(b"first half").await.expect("within the session deadline");
    clock.advance(Duration::from_secs(5));
    io.write_all(b"second half").await.expect_err("the session deadline has passed");
    assert_eq!((gate.written_bytes(), gate.is_permission_lost()), (10, true));
    drop(io);
    let mut seen = Vec::new();
    far.read_to_end(&mut seen).await.expect("read");
    assert_eq!(seen, b"first half");
}

/// A gate that is shut cannot be armed or disarmed any more.
#[tokio::test(flavor = "current_thread")]
async fn shut_gate_stays_shut() {
    let (mut io, gate, _far) = gated_stream(Arc::default());
    gate.arm(Some(permission_until(5)));
    gate.shut(GateShutReason::Abandoned);
    gate.arm(Some(permission_until(50)));
    gate.disarm();
    io.write_all(b"x").await.expect_err("shut for ever");
    assert_eq!(gate.written_bytes(), 0);
}

/// Once an HTTP/2 request is sent in full and flushed and its response is awaited, control frames pass after the
/// deadline, and not before. The test writes settings, a frame that ends a request, and a window update for its
/// response.
#[tokio::test(flavor = "current_thread")]
async fn http2_control_frames_pass_after_request() {
    const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const HEADERS: &[u8] = b"\0\0\x01\x01\x04\0\0\0\x01\x82";
    const LAST: &[u8] = b"\0\0\x01\0\x01\0\0\0\x01x";
    const ROOM: &[u8] = b"\0\0\x04\x08\0\0\0\0\0\0\0\x10\0";
    for (awaited, flushed, whole, passes) in [
        (true, true, true, true),
        (false, true, true, false),
        (true, false, true, false),
        (true, true, false, false),
    ] {
        let clock = Arc::new(ManualClock::default());
        let (io, gate, _far) = gated_stream(clock.clone());
        let (mut io, frames) = H2ObservedIo::new(io);
        gate.observe_http2(&frames);
        io.write_all(BEGIN).await.expect("open");
        gate.arm(Some(permission_until(5)));
        if awaited {
            gate.set_awaiting_response();
        }
        frames.begin_exchange();
        io.write_all(HEADERS).await.expect("within the session deadline");
        if whole {
            io.write_all(LAST).await.expect("within the session deadline");
        }
        if flushed {
            io.flush().await.expect("within the session deadline");
        }
        clock.advance(Duration::from_secs(5));
        let told = io.write_all(ROOM).await;
        assert_eq!(told.is_ok(), passes, "{awaited} {flushed} {whole}");
        assert_eq!(gate.is_permission_lost(), !passes);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn open_gate_needs_no_permission() {
    let (mut io, gate, _far) = gated_stream(Arc::default());
    io.write_all(b"health").await.expect("open");
    assert_eq!(gate.written_bytes(), 6);
}

/// The end of a permission shuts the gate of the exchange that was armed with it, and of no other.
#[test]
fn lapse_shuts_only_own_exchange() {
    let (io, gate, _far) = gated_stream(Arc::default());
    let ours = permission_until(5);
    let next = permission_until(50);
    gate.arm(Some(next));
    gate.shut_if_armed_with(&*ours);
    assert!(!gate.is_permission_lost(), "the connection carries another exchange");
    gate.arm(Some(ours.clone()));
    gate.shut_if_armed_with(&*ours);
    assert!(gate.is_permission_lost());
    drop(io);
}

/// A vectored write passes as a plain write does, and not after the deadline.
#[tokio::test(flavor = "current_thread")]
async fn vectored_write_obeys_deadline() {
    let clock = Arc::new(ManualClock::default());
    let (mut io, gate, mut far) = gated_stream(clock.clone());
    gate.arm(Some(permission_until(5)));
    let pieces = [IoSlice::new(b"first "), IoSlice::new(b"half")];
    assert!(gate.is_flushed());
    assert_eq!(io.write_vectored(&pieces).await.expect("within the session deadline"), 10);
    assert!(!gate.is_flushed(), "more may come");
    io.flush().await.expect("within the session deadline");
    assert_eq!((gate.is_flushed(), gate.written_bytes()), (true, 10));
    clock.advance(Duration::from_secs(5));
    io.write_vectored(&pieces).await.expect_err("the session deadline has passed");
    assert_eq!((gate.written_bytes(), gate.is_permission_lost()), (10, true));
    drop(io);
    let mut seen = Vec::new();
    far.read_to_end(&mut seen).await.expect("read");
    assert_eq!(seen, b"first half");
}

#[tokio::test(flavor = "current_thread")]
async fn responses_are_read_after_deadline() {
    let clock = Arc::new(ManualClock::default());
    let (mut io, gate, mut far) = gated_stream(clock.clone());
    gate.arm(Some(permission_until(5)));
    far.write_all(b"200").await.expect("room");
    clock.advance(Duration::from_secs(5));
    let mut answer = [0; 3];
    io.read_exact(&mut answer).await.expect("it is there");
    assert_eq!(&answer, b"200");
}

/// Each exchange counts its own bytes, and its count stays until the next exchange begins.
#[tokio::test(flavor = "current_thread")]
async fn written_bytes_are_counted_per_exchange() {
    let clock = Arc::new(ManualClock::default());
    let (mut io, gate, _far) = gated_stream(clock.clone());
    for request in [&b"one"[..], b"other"] {
        gate.arm(Some(permission_until(5)));
        assert_eq!(gate.written_bytes(), 0);
        io.write_all(request).await.expect("within the session deadline");
        gate.begin_close_if_permitted();
        assert_eq!(gate.written_bytes(), request.len() as u64, "the upstream may be at work on it");
    }
    clock.advance(Duration::from_secs(5));
    io.write_all(b"farewell").await.expect("an open gate asks nothing");
}

/// An armed gate is not disarmed once its permission has expired.
#[tokio::test(flavor = "current_thread")]
async fn expired_permission_is_not_disarmed() {
    let clock = Arc::new(ManualClock::default());
    let (mut io, gate, _far) = gated_stream(clock.clone());
    gate.begin_close_if_permitted();
    io.write_all(b"health").await.expect("open");
    gate.arm(Some(permission_until(5)));
    clock.advance(Duration::from_secs(5));
    gate.begin_close_if_permitted();
    io.write_all(b"x").await.expect_err("the session deadline has passed");
    gate.begin_close_if_permitted();
    io.write_all(b"x").await.expect_err("shut for ever");
}

/// The first reason for which a gate was shut is kept, so that it is known whether this side ended the exchange.
#[tokio::test(flavor = "current_thread")]
async fn first_shut_reason_is_kept() {
    for (why, by_us) in [
        (GateShutReason::ProofLost, true),
        (GateShutReason::Late, true),
        (GateShutReason::Stopped, true),
        (GateShutReason::Cut, true),
        (GateShutReason::Abandoned, false),
    ] {
        let (_io, gate, _far) = gated_stream(Arc::default());
        gate.arm(Some(permission_until(5)));
        assert!(!gate.is_locally_aborted() && !gate.is_permission_lost());
        gate.shut(why);
        gate.shut(GateShutReason::ProofLost);
        let told = (gate.is_locally_aborted(), gate.is_permission_lost());
        assert_eq!(told, (by_us, why == GateShutReason::ProofLost), "{why:?}: the first reason stays");
    }
    let (_io, gate, _far) = gated_stream(Arc::default());
    gate.arm(Some(permission_until(5)));
    CutOnBrokenBody(gate.clone()).on_error();
    assert!(gate.is_locally_aborted() && !gate.is_permission_lost(), "its body broke");
}

/// The time of the last write is never earlier than the write, and never in the future. A later time is safe: the
/// caller only waits longer for the upstream.
#[tokio::test(flavor = "current_thread")]
async fn last_write_time_is_never_early() {
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(1000));
    let (mut io, gate, _far) = gated_stream(clock.clone());
    let before = Instant::now();
    io.write_all(b"x").await.expect("open");
    let told = gate.last_write_bound();
    assert!(gate.last_write() >= before && gate.last_write() <= Instant::now());
    assert!(told <= clock.now() && clock.now().since(told) <= before.elapsed());
}

/// A connection over the network, and its far end.
async fn gated_socket() -> (GatedIo<SocketStream>, Rc<WriteGate>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("listening");
    let (far, _) = listener.accept().await.expect("it has come");
    let gate = Rc::new(WriteGate::new(Arc::<ManualClock>::default()));
    (GatedIo::new(SocketStream::Tcp(near), gate.clone()), gate, far)
}

/// An exchange that did not end well ends with a reset, and no other one does. If a request without a length ended
/// in order, a service would take half of it for all of it.
#[tokio::test(flavor = "current_thread")]
async fn incomplete_exchange_ends_with_reset() {
    let (mut io, gate, mut far) = gated_socket().await;
    gate.arm(Some(permission_until(5)));
    io.write_all(b"half").await.expect("within the session deadline");
    io.shutdown().await.expect("nothing is said");
    assert!(far.read_buf(&mut Vec::with_capacity(8)).await.is_ok_and(|read| read == 4));
    let mut end = Vec::new();
    assert!(far.read_to_end(&mut end).now_or_never().is_none(), "no end may be seen yet");
    gate.shut_unless_open();
    drop(io);
    let told = far.read_to_end(&mut end).await.expect_err("it was cut");
    assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
    assert!(!gate.is_locally_aborted());

    let (mut io, gate, mut far) = gated_socket().await;
    gate.arm(Some(permission_until(5)));
    io.write_all(b"whole").await.expect("within the session deadline");
    gate.disarm();
    gate.shut_unless_open();
    io.shutdown().await.expect("an end in order");
    far.read_to_end(&mut end).await.expect("no reset");
    assert_eq!(end, b"whole");
    drop(io);
    assert_eq!(far.read(&mut [0; 1]).await.expect("no reset afterwards"), 0);
}

fn options(io: &GatedIo<SocketStream>) -> (Option<Duration>, Option<Duration>) {
    let SocketStream::Tcp(stream) = &io.io else { panic!("it goes by the network") };
    let socket = SockRef::from(stream);
    (socket.linger().expect("open"), socket.tcp_user_timeout().expect("open"))
}

/// A socket is set to be reset on close from the beginning, and its kernel gives up fenced bytes after a limit.
/// Both are set in advance, because a killed or frozen process cannot set them.
#[tokio::test(flavor = "current_thread")]
async fn fenced_socket_has_reset_and_timeout() {
    const RESETS: Option<Duration> = Some(Duration::ZERO);
    let longest = Duration::from_millis(1500);
    let (mut io, gate, _far) = gated_socket().await;
    assert_eq!(options(&io), (RESETS, None));
    for limit in [longest, longest * 2] {
        gate.arm(Some(permission_until(5)));
        gate.set_ack_timeout(limit);
        io.write_all(b"fenced").await.expect("within the session deadline");
        assert_eq!(options(&io), (RESETS, Some(limit)));
        gate.disarm();
        io.write_all(b"unfenced").await.expect("open");
        assert_eq!(options(&io), (RESETS, None), "a slow service may be slow");
    }
}

/// When an idle connection is closed, no byte is lost, although the far end reads more slowly than was written.
#[tokio::test(flavor = "current_thread")]
async fn idle_close_loses_no_byte() {
    const MUCH: usize = 200_000;
    let (mut io, gate, mut far) = gated_socket().await;
    gate.arm(Some(permission_until(5)));
    io.write_all(&[b'x'; MUCH]).await.expect("within the session deadline");
    gate.disarm();
    drop(io);
    let mut seen = Vec::new();
    far.read_to_end(&mut seen).await.expect("no reset");
    assert_eq!(seen.len(), MUCH);
}

/// After the orderly shutdown of a tunnel the drop still resets, until the other side has received all bytes and
/// has closed.
#[tokio::test(flavor = "current_thread")]
async fn shutdown_resets_until_remote_closes() {
    let (mut io, gate, mut far) = gated_socket().await;
    gate.arm(Some(permission_until(5)));
    io.write_all(b"first ").await.expect("within the session deadline");
    gate.begin_close_if_permitted();
    io.write_all(b"last").await.expect("within the session deadline");
    io.shutdown().await.expect("an end in order");
    assert!(gate.is_closing(), "the other side has not closed");
    assert_eq!(options(&io).0, Some(Duration::ZERO));
    let mut seen = Vec::new();
    far.read_to_end(&mut seen).await.expect("no reset");
    assert_eq!(seen, b"first last");
    drop(far);
    let mut pauses = 0;
    while gate.is_closing() && pauses < 1000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        io.shutdown().await.expect("an end in order");
        pauses += 1;
    }
    assert!(!gate.is_closing() && !gate.is_locally_aborted(), "both sides have closed");

    let (mut io, gate, mut far) = gated_socket().await;
    gate.arm(Some(permission_until(5)));
    io.write_all(b"half").await.expect("within the session deadline");
    gate.begin_close_if_permitted();
    drop(io);
    let told = far.read_to_end(&mut Vec::new()).await.expect_err("it was dropped in the middle");
    assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
}

/// When the connection of a running exchange ends, no further byte of the exchange is written, although its
/// permission holds.
#[tokio::test(flavor = "current_thread")]
async fn connection_end_shuts_running_exchange() {
    let (mut io, gate, _far) = gated_stream(Arc::default());
    gate.shut_unless_open();
    io.write_all(b"farewell").await.expect("no exchange is under way");
    gate.arm(Some(permission_until(5)));
    io.write_all(b"first half").await.expect("within the session deadline");
    gate.shut_unless_open();
    io.write_all(b"second half").await.expect_err("it has ended");
    assert_eq!(
        (gate.written_bytes(), gate.is_permission_lost(), gate.is_locally_aborted()),
        (10, false, false)
    );
}

#[test]
fn gated_stream_supports_vectored_writes() {
    let (io, _, far) = gated_stream(Arc::default());
    assert!(far.is_write_vectored() && io.is_write_vectored());
}
