use std::time::Duration;

use fencegate_process::clock::ManualClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::upstream::frames::Followed;

fn gated(clock: Arc<ManualClock>) -> (Gated<DuplexStream>, Rc<Gate>, DuplexStream) {
    let gate = Rc::new(Gate::new(clock));
    let (near, far) = duplex(1024);
    (Gated::new(near, gate.clone()), gate, far)
}

/// A permission that holds until an instant.
#[derive(Debug)]
struct Until(Boot);

impl Permission for Until {
    fn holds(&self, now: Boot) -> bool {
        now < self.0
    }

    fn deadline(&self) -> Boot {
        self.0
    }
}

fn proof(seconds: u64) -> Arc<Until> {
    Arc::new(Until(Boot::from_nanos(0) + Duration::from_secs(seconds)))
}

#[tokio::test(flavor = "current_thread")]
async fn no_byte_passes_after_the_deadline_not_even_the_rest_of_a_request() {
    let clock = Arc::new(ManualClock::default());
    let (mut io, gate, mut far) = gated(clock.clone());
    gate.arm(Some(proof(5)));
    io.write_all(b"first half").await.expect("within the proof");
    clock.go(Duration::from_secs(5));
    io.write_all(b"second half").await.expect_err("the proof is over");
    assert_eq!((gate.written(), gate.lost_its_proof()), (10, true));
    drop(io);
    let mut seen = Vec::new();
    far.read_to_end(&mut seen).await.expect("read");
    assert_eq!(seen, b"first half");
}

#[tokio::test(flavor = "current_thread")]
async fn a_gate_that_shut_is_not_armed_again() {
    let (mut io, gate, _far) = gated(Arc::default());
    gate.arm(Some(proof(5)));
    gate.shut(Why::Abandoned);
    gate.arm(Some(proof(50)));
    gate.disarm();
    io.write_all(b"x").await.expect_err("shut for ever");
    assert_eq!(gate.written(), 0);
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
        let (mut io, frames) = Followed::new(io);
        gate.follows(&frames);
        io.write_all(BEGIN).await.expect("open");
        gate.arm(Some(proof(5)));
        if awaited {
            gate.awaits_answer();
        }
        frames.begin();
        io.write_all(HEADERS).await.expect("within the proof");
        if whole {
            io.write_all(LAST).await.expect("within the proof");
        }
        if flushed {
            io.flush().await.expect("within the proof");
        }
        clock.go(Duration::from_secs(5));
        let told = io.write_all(ROOM).await;
        assert_eq!(told.is_ok(), passes, "{awaited} {flushed} {whole}");
        assert_eq!(gate.lost_its_proof(), !passes);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn an_open_gate_asks_nothing() {
    let (mut io, gate, _far) = gated(Arc::default());
    io.write_all(b"health").await.expect("open");
    assert_eq!(gate.written(), 6);
}
#[test]
fn what_is_given_up_shuts_its_own_exchange_and_no_other_one() {
    let (io, gate, _far) = gated(Arc::default());
    let (ours, next) = (proof(5), proof(50));
    gate.arm(Some(next));
    gate.lapse(&*ours);
    assert!(!gate.lost_its_proof(), "the connection carries another exchange");
    gate.arm(Some(ours.clone()));
    gate.lapse(&*ours);
    assert!(gate.lost_its_proof());
    drop(io);
}
