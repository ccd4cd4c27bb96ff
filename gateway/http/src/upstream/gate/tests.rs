use std::time::Duration;

use fencegate_process::clock::{Clock, ManualClock};
use futures_util::FutureExt;
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::{network::socket_stream::SocketStream, upstream::h2_observer::H2ObservedIo};

fn gated(clock: Arc<ManualClock>) -> (Gated<DuplexStream>, Rc<Gate>, DuplexStream) {
    let gate = Rc::new(Gate::new(clock));
    let (near, far) = duplex(1024);
    (Gated::new(near, gate.clone()), gate, far)
}

/// A permission that holds until an instant.
#[derive(Debug)]
struct FixedPermission(BootInstant);

impl SendPermission for FixedPermission {
    fn holds(&self, now: BootInstant) -> bool {
        now < self.0
    }

    fn deadline(&self) -> BootInstant {
        self.0
    }
}

fn proof(seconds: u64) -> Arc<FixedPermission> {
    Arc::new(FixedPermission(BootInstant::from_nanos(0) + Duration::from_secs(seconds)))
}

#[tokio::test(flavor = "current_thread")]
async fn no_byte_passes_after_the_deadline_not_even_the_rest_of_a_request() {
    let clock = Arc::new(ManualClock::default());
    let (mut io, gate, mut far) = gated(clock.clone());
    gate.arm(Some(proof(5)));
    io.write_all(b"first half").await.expect("within the proof");
    clock.advance(Duration::from_secs(5));
    io.write_all(b"second half").await.expect_err("the proof is over");
    assert_eq!((gate.written_bytes(), gate.is_permission_lost()), (10, true));
    drop(io);
    let mut seen = Vec::new();
    far.read_to_end(&mut seen).await.expect("read");
    assert_eq!(seen, b"first half");
}

#[tokio::test(flavor = "current_thread")]
async fn a_gate_that_shut_is_not_armed_again() {
    let (mut io, gate, _far) = gated(Arc::default());
    gate.arm(Some(proof(5)));
    gate.shut(ShutReason::Abandoned);
    gate.arm(Some(proof(50)));
    gate.disarm();
    io.write_all(b"x").await.expect_err("shut for ever");
    assert_eq!(gate.written_bytes(), 0);
}

/// Writes a settings frame, a frame that ends a request, and a window update for its answer.
#[tokio::test(flavor = "current_thread")]
async fn over_http2_what_an_awaited_answer_needs_passes_once_its_request_has_left_and_nothing_before() {
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
        let (io, gate, _far) = gated(clock.clone());
        let (mut io, frames) = H2ObservedIo::new(io);
        gate.observe_http2(&frames);
        io.write_all(BEGIN).await.expect("open");
        gate.arm(Some(proof(5)));
        if awaited {
            gate.set_awaiting_response();
        }
        frames.begin();
        io.write_all(HEADERS).await.expect("within the proof");
        if whole {
            io.write_all(LAST).await.expect("within the proof");
        }
        if flushed {
            io.flush().await.expect("within the proof");
        }
        clock.advance(Duration::from_secs(5));
        let told = io.write_all(ROOM).await;
        assert_eq!(told.is_ok(), passes, "{awaited} {flushed} {whole}");
        assert_eq!(gate.is_permission_lost(), !passes);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn an_open_gate_asks_nothing() {
    let (mut io, gate, _far) = gated(Arc::default());
    io.write_all(b"health").await.expect("open");
    assert_eq!(gate.written_bytes(), 6);
}

#[test]
fn what_is_given_up_shuts_its_own_exchange_and_no_other_one() {
    let (io, gate, _far) = gated(Arc::default());
    let (ours, next) = (proof(5), proof(50));
    gate.arm(Some(next));
    gate.lapse(&*ours);
    assert!(!gate.is_permission_lost(), "the connection carries another exchange");
    gate.arm(Some(ours.clone()));
    gate.lapse(&*ours);
    assert!(gate.is_permission_lost());
    drop(io);
}

#[tokio::test(flavor = "current_thread")]
async fn several_pieces_at_once_pass_as_one_does_and_no_longer() {
    let clock = Arc::new(ManualClock::default());
    let (mut io, gate, mut far) = gated(clock.clone());
    gate.arm(Some(proof(5)));
    let pieces = [IoSlice::new(b"first "), IoSlice::new(b"half")];
    assert!(gate.is_flushed());
    assert_eq!(io.write_vectored(&pieces).await.expect("within the proof"), 10);
    assert!(!gate.is_flushed(), "more may come");
    io.flush().await.expect("within the proof");
    assert_eq!((gate.is_flushed(), gate.written_bytes()), (true, 10));
    clock.advance(Duration::from_secs(5));
    io.write_vectored(&pieces).await.expect_err("the proof is over");
    assert_eq!((gate.written_bytes(), gate.is_permission_lost()), (10, true));
    drop(io);
    let mut seen = Vec::new();
    far.read_to_end(&mut seen).await.expect("read");
    assert_eq!(seen, b"first half");
}

#[tokio::test(flavor = "current_thread")]
async fn answers_are_read_whatever_becomes_of_the_proof() {
    let clock = Arc::new(ManualClock::default());
    let (mut io, gate, mut far) = gated(clock.clone());
    gate.arm(Some(proof(5)));
    far.write_all(b"200").await.expect("room");
    clock.advance(Duration::from_secs(5));
    let mut answer = [0; 3];
    io.read_exact(&mut answer).await.expect("it is there");
    assert_eq!(&answer, b"200");
}

#[tokio::test(flavor = "current_thread")]
async fn each_exchange_counts_its_own_bytes_and_the_last_one_is_at_work_until_the_next_begins() {
    let clock = Arc::new(ManualClock::default());
    let (mut io, gate, _far) = gated(clock.clone());
    for request in [&b"one"[..], b"other"] {
        gate.arm(Some(proof(5)));
        assert_eq!(gate.written_bytes(), 0);
        io.write_all(request).await.expect("within the proof");
        gate.disarm_if_held();
        assert_eq!(gate.written_bytes(), request.len() as u64, "the upstream may be at work on it");
    }
    clock.advance(Duration::from_secs(5));
    io.write_all(b"farewell").await.expect("an open gate asks nothing");
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_armed_is_not_disarmed_when_its_proof_is_over() {
    let clock = Arc::new(ManualClock::default());
    let (mut io, gate, _far) = gated(clock.clone());
    gate.disarm_if_held();
    io.write_all(b"health").await.expect("open");
    gate.arm(Some(proof(5)));
    clock.advance(Duration::from_secs(5));
    gate.disarm_if_held();
    io.write_all(b"x").await.expect_err("the proof is over");
    gate.disarm_if_held();
    io.write_all(b"x").await.expect_err("shut for ever");
}

#[tokio::test(flavor = "current_thread")]
async fn who_ended_an_exchange_is_known_afterwards() {
    for (why, by_us) in [
        (ShutReason::ProofLost, true),
        (ShutReason::Late, true),
        (ShutReason::Stopped, true),
        (ShutReason::Cut, true),
        (ShutReason::Abandoned, false),
    ] {
        let (_io, gate, _far) = gated(Arc::default());
        gate.arm(Some(proof(5)));
        assert!(!gate.is_abandoned() && !gate.is_permission_lost());
        gate.shut(why);
        gate.shut(ShutReason::ProofLost);
        let told = (gate.is_abandoned(), gate.is_permission_lost());
        assert_eq!(told, (by_us, why == ShutReason::ProofLost), "{why:?}: the first reason stays");
    }
    let (_io, gate, _far) = gated(Arc::default());
    gate.arm(Some(proof(5)));
    CutOnBodyError(gate.clone()).on_error();
    assert!(gate.is_abandoned() && !gate.is_permission_lost(), "its body broke");
}

/// Later than it was is safe: somebody waits a moment longer for the upstream.
#[tokio::test(flavor = "current_thread")]
async fn the_last_byte_is_never_told_to_be_younger_than_now_nor_older_than_it_is() {
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(1000));
    let (mut io, gate, _far) = gated(clock.clone());
    let before = Instant::now();
    io.write_all(b"x").await.expect("open");
    let told = gate.last_write_by();
    assert!(gate.last_write() >= before && gate.last_write() <= Instant::now());
    assert!(told <= clock.now() && clock.now().since(told) <= before.elapsed());
}

/// A connection by the network, and its far end.
async fn by_the_network() -> (Gated<SocketStream>, Rc<Gate>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("listening");
    let (far, _) = listener.accept().await.expect("it has come");
    let gate = Rc::new(Gate::new(Arc::<ManualClock>::default()));
    (Gated::new(SocketStream::Tcp(near), gate.clone()), gate, far)
}

/// A service that sees an orderly end takes half of a request for all of it where nobody told it the length.
#[tokio::test(flavor = "current_thread")]
async fn an_exchange_that_did_not_end_well_ends_with_a_reset_and_no_other_one_does() {
    let (mut io, gate, mut far) = by_the_network().await;
    gate.arm(Some(proof(5)));
    io.write_all(b"half").await.expect("within the proof");
    io.shutdown().await.expect("nothing is said");
    assert!(far.read_buf(&mut Vec::with_capacity(8)).await.is_ok_and(|read| read == 4));
    let mut end = Vec::new();
    assert!(far.read_to_end(&mut end).now_or_never().is_none(), "no end may be seen yet");
    gate.end();
    drop(io);
    let told = far.read_to_end(&mut end).await.expect_err("it was cut");
    assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
    assert!(!gate.is_abandoned());

    let (mut io, gate, mut far) = by_the_network().await;
    gate.arm(Some(proof(5)));
    io.write_all(b"whole").await.expect("within the proof");
    gate.disarm();
    gate.end();
    io.shutdown().await.expect("an end in order");
    far.read_to_end(&mut end).await.expect("no reset");
    assert_eq!(end, b"whole");
    drop(io);
    assert_eq!(far.read(&mut [0; 1]).await.expect("no reset afterwards"), 0);
}

fn options(io: &Gated<SocketStream>) -> (Option<Duration>, Option<Duration>) {
    let SocketStream::Tcp(stream) = &io.io else { panic!("it goes by the network") };
    let socket = SockRef::from(stream);
    (socket.linger().expect("open"), socket.tcp_user_timeout().expect("open"))
}

/// A killed process drops nothing, and a frozen one does nothing: what their kernel does was said before.
#[tokio::test(flavor = "current_thread")]
async fn a_socket_resets_without_an_order_from_the_beginning_and_its_kernel_gives_up_what_is_fenced() {
    const RESETS: Option<Duration> = Some(Duration::ZERO);
    let longest = Duration::from_millis(1500);
    let (mut io, gate, _far) = by_the_network().await;
    assert_eq!(options(&io), (RESETS, None));
    for limit in [longest, longest * 2] {
        gate.arm(Some(proof(5)));
        gate.bound_delivery(limit);
        io.write_all(b"fenced").await.expect("within the proof");
        assert_eq!(options(&io), (RESETS, Some(limit)));
        gate.disarm();
        io.write_all(b"unfenced").await.expect("open");
        assert_eq!(options(&io), (RESETS, None), "a slow service may be slow");
    }
}

/// Far more than the far end takes before it reads.
#[tokio::test(flavor = "current_thread")]
async fn an_idle_connection_is_closed_without_losing_a_byte() {
    const MUCH: usize = 200_000;
    let (mut io, gate, mut far) = by_the_network().await;
    gate.arm(Some(proof(5)));
    io.write_all(&[b'x'; MUCH]).await.expect("within the proof");
    gate.disarm();
    drop(io);
    let mut seen = Vec::new();
    far.read_to_end(&mut seen).await.expect("no reset");
    assert_eq!(seen.len(), MUCH);
}

/// The end of a tunnel.
#[tokio::test(flavor = "current_thread")]
async fn what_is_closed_in_order_resets_until_the_other_side_has_all_of_it_and_the_end() {
    let (mut io, gate, mut far) = by_the_network().await;
    gate.arm(Some(proof(5)));
    io.write_all(b"first ").await.expect("within the proof");
    gate.disarm_if_held();
    io.write_all(b"last").await.expect("within the proof");
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
    assert!(!gate.is_closing() && !gate.is_abandoned(), "both sides have closed");

    let (mut io, gate, mut far) = by_the_network().await;
    gate.arm(Some(proof(5)));
    io.write_all(b"half").await.expect("within the proof");
    gate.disarm_if_held();
    drop(io);
    let told = far.read_to_end(&mut Vec::new()).await.expect_err("it was dropped in the middle");
    assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
}

/// The connection of an exchange that is under way ends: nothing more of the exchange leaves, although its proof holds.
#[tokio::test(flavor = "current_thread")]
async fn the_end_of_a_connection_shuts_the_gate_of_an_exchange_that_is_under_way() {
    let (mut io, gate, _far) = gated(Arc::default());
    gate.end();
    io.write_all(b"farewell").await.expect("no exchange is under way");
    gate.arm(Some(proof(5)));
    io.write_all(b"first half").await.expect("within the proof");
    gate.end();
    io.write_all(b"second half").await.expect_err("it has ended");
    assert_eq!((gate.written_bytes(), gate.is_permission_lost(), gate.is_abandoned()), (10, false, false));
}

#[test]
fn several_pieces_are_given_to_the_kernel_at_once_where_it_takes_them() {
    let (io, _, far) = gated(Arc::default());
    assert!(far.is_write_vectored() && io.is_write_vectored());
}
