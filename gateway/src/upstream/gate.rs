//! The write gate: no byte of a fenced request leaves after the proof of its tenure has ended.
//!
//! A check before sending is not enough. HTTP libraries queue: between "send this" and the write to the socket lies
//! an unbounded time, for instance a pause of the whole process. So the check sits in `poll_write` itself, directly on
//! the socket. What stays open is a pause between the check and the system call, and bytes already in the kernel's
//! buffers: only who compares tokens on the other side closes that.

use std::{
    cell::{Cell, RefCell},
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use crate::{
    failpoint,
    network::Reset,
    session::{
        clock::{Boot, SharedClock},
        evidence::Evidence,
    },
};

/// A connection to an upstream, with its gate.
pub struct Gated<S: Reset> {
    io: S,
    gate: Rc<Gate>,
}

/// The gate of one connection; shared with whoever dispatches on it.
#[derive(Debug)]
pub struct Gate {
    clock: SharedClock,
    state: RefCell<State>,
    written: Cell<u64>,
    /// Written since the last complete flush. The HTTP library flushes when its own buffer is empty, so what is not
    /// flushed may have more behind it.
    unflushed: Cell<bool>,
    last_write: Cell<Instant>,
}

#[derive(Debug)]
enum State {
    /// Unfenced requests and health checks pass.
    Open,
    /// Only while this holds.
    Armed(Arc<Evidence>),
    /// Never again.
    Shut(Why),
}

/// Why a gate is shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The proof ended before a write.
    ProofLost,
    /// The exchange ended before its answer was complete.
    Abandoned,
}

/// The error that a write meets at a shut gate.
#[derive(Debug, thiserror::Error)]
#[error("the proof of the session ended before the write")]
pub struct GateShut;

impl Gate {
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            state: RefCell::new(State::Open),
            written: Cell::new(0),
            unflushed: Cell::new(false),
            last_write: Cell::new(Instant::now()),
        }
    }

    /// Before a request is queued on the connection: counts from zero, and lets bytes pass only under `evidence`.
    pub fn arm(&self, evidence: Option<Arc<Evidence>>) {
        self.written.set(0);
        let mut state = self.state.borrow_mut();
        if !matches!(*state, State::Shut(_)) {
            *state = evidence.map_or(State::Open, State::Armed);
        }
    }

    /// When the exchange is complete in both directions.
    pub fn disarm(&self) {
        self.arm(None);
    }

    /// Under a proof that still holds, what comes is let through: an end is said in order.
    pub fn disarm_if_held(&self) {
        let held = match &*self.state.borrow() {
            State::Open => true,
            State::Armed(evidence) => evidence.holds(self.clock.now()),
            State::Shut(_) => false,
        };
        if held {
            self.disarm();
        }
    }

    /// The connection ends. An exchange that was under way ends with a reset.
    pub fn end(&self) {
        if !self.is_open() {
            self.shut(Why::Abandoned);
        }
    }

    /// For ever. The first reason stays.
    pub fn shut(&self, why: Why) {
        let mut state = self.state.borrow_mut();
        if !matches!(*state, State::Shut(_)) {
            *state = State::Shut(why);
        }
    }

    /// Bytes given to the kernel since the gate was armed.
    pub fn written(&self) -> u64 {
        self.written.get()
    }

    /// Everything that the HTTP library had to write has been given to the kernel.
    pub fn is_flushed(&self) -> bool {
        !self.unflushed.get()
    }

    /// When the last byte was given to the kernel.
    pub fn last_write(&self) -> Instant {
        self.last_write.get()
    }

    /// At or after the instant at which the last byte was given to the kernel, on the clock of deadlines.
    pub fn last_write_by(&self) -> Boot {
        // The other clock stands still while the machine sleeps: that makes it later, which is the safe side.
        self.clock.now() - self.last_write.get().elapsed()
    }

    pub fn lost_its_proof(&self) -> bool {
        matches!(*self.state.borrow(), State::Shut(Why::ProofLost))
    }

    fn is_open(&self) -> bool {
        matches!(*self.state.borrow(), State::Open)
    }

    /// One comparison per write; the failpoints are the two pauses that matter, before it and after it.
    fn check(&self) -> io::Result<()> {
        match &*self.state.borrow() {
            State::Open => return Ok(()),
            State::Shut(_) => return Err(io::Error::other(GateShut)),
            State::Armed(evidence) => {
                failpoint::pass("before_upstream_write");
                if evidence.holds(self.clock.now()) {
                    failpoint::pass("after_proof_check");
                    return Ok(());
                }
            }
        }
        self.shut(Why::ProofLost);
        Err(io::Error::other(GateShut))
    }

    fn count(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = polled {
            self.written.set(self.written.get() + *bytes as u64);
            self.last_write.set(Instant::now());
        }
    }
}

impl<S: Reset> Gated<S> {
    pub fn new(io: S, gate: Rc<Gate>) -> Self {
        Self { io, gate }
    }
}

impl<S: Reset> Drop for Gated<S> {
    fn drop(&mut self) {
        if !self.gate.is_open() {
            // What lies in the kernel's buffer of an exchange that did not end well shall not arrive either.
            self.io.reset_on_close();
        }
    }
}

impl<S: AsyncRead + Reset + Unpin> AsyncRead for Gated<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Reset + Unpin> AsyncWrite for Gated<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.gate.check()?;
        self.gate.unflushed.set(true);
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.gate.count(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.gate.check()?;
        self.gate.unflushed.set(true);
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.gate.count(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.gate.unflushed.set(false);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.gate.is_open() {
            // A FIN in the middle of an exchange would look like an orderly end; the drop resets instead.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::session::{clock::fake::FakeClock, proof::Proof};

    impl Reset for DuplexStream {
        fn reset_on_close(&self) {}
    }

    fn gated(clock: Arc<FakeClock>) -> (Gated<DuplexStream>, Rc<Gate>, DuplexStream) {
        let gate = Rc::new(Gate::new(clock));
        let (near, far) = duplex(1024);
        (Gated::new(near, gate.clone()), gate, far)
    }

    fn proof(seconds: u64) -> Arc<Evidence> {
        Arc::new(Evidence::of(Arc::new(Proof::until(1, Boot::from_nanos(0) + Duration::from_secs(seconds)))))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn no_byte_passes_after_the_deadline_not_even_the_rest_of_a_request() {
        let clock = Arc::new(FakeClock::default());
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

    #[tokio::test(flavor = "current_thread")]
    async fn an_open_gate_asks_nothing() {
        let (mut io, gate, _far) = gated(Arc::default());
        io.write_all(b"health").await.expect("open");
        assert_eq!(gate.written(), 6);
    }
}
