//! The write gate: no byte of a fenced request leaves after the proof of its tenure has ended.
//!
//! A check before sending is not enough. HTTP libraries queue: between "send this" and the write to the socket lies
//! an unbounded time, for instance a pause of the whole process. So the check sits in `poll_write` itself, directly on
//! the socket. What stays open is a pause between the check and the system call, and bytes already in the kernel's
//! buffers: only who compares tokens on the other side closes that.

use std::{
    cell::{Cell, OnceCell, RefCell},
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use fencegate_process::{
    clock::{Boot, Permission, SharedClock},
    failpoint,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::frames::SeenFrames;
use crate::{body::observer::Observer, network::Reset};

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
    /// What tells, over HTTP/2, that a request has left in full.
    frames: OnceCell<Rc<SeenFrames>>,
    /// What was written in full is waited for, whatever becomes of the proof.
    awaited: Cell<bool>,
}

#[derive(Debug)]
enum State {
    /// Unfenced requests and health checks pass.
    Open,
    /// Only while this holds.
    Armed(Arc<dyn Permission>),
    /// The request has left in full, and its answer is waited for: nothing that passes is of a request.
    Listens,
    /// Never again.
    Shut(Why),
}

/// Why a gate is shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The proof ended before a write.
    ProofLost,
    /// The answer did not come in time, as counted from the first byte; from the last byte it still may.
    Late,
    /// The process stops, and waits no longer.
    Stopped,
    /// It was we who ended the exchange before its answer was complete: the rest of its body does not come, or what the other
    /// side says cannot be passed on.
    Cut,
    /// The exchange ended before its answer was complete, and nothing else is known.
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
            frames: OnceCell::new(),
            awaited: Cell::new(false),
        }
    }

    /// The connection speaks HTTP/2, in which bytes go out also when nothing of a request is left.
    pub fn follows(&self, frames: &Rc<SeenFrames>) {
        self.frames.get_or_init(|| frames.clone());
    }

    /// The answer to what is armed now is waited for once it was written in full. Over HTTP/2 it may need words of ours:
    /// that there is room for more of it, and that we are still there.
    pub fn awaits_answer(&self) {
        self.awaited.set(true);
    }

    /// What is written now can be nothing of a request: that has left, and the kernel has it.
    fn only_listens(&self) -> bool {
        let waits = self.awaited.get() && matches!(*self.state.borrow(), State::Armed(_));
        waits && self.is_flushed() && self.frames.get().is_some_and(|frames| frames.request_has_left())
    }

    /// Before a request is queued on the connection: counts from zero, and lets bytes pass only under `permission`.
    pub fn arm(&self, permission: Option<Arc<dyn Permission>>) {
        self.written.set(0);
        self.awaited.set(false);
        let mut state = self.state.borrow_mut();
        if !matches!(*state, State::Shut(_)) {
            *state = permission.map_or(State::Open, State::Armed);
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
            State::Armed(permission) => permission.holds(self.clock.now()),
            State::Listens | State::Shut(_) => false,
        };
        if held {
            // What was written counts until the next exchange is armed: the upstream may be at work on it.
            self.state.replace(State::Open);
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

    /// What was armed with this is given up, because it holds no more. Another exchange may have the connection by now.
    pub fn lapse(&self, permission: &dyn Permission) {
        let is_ours = |armed: &Arc<dyn Permission>| std::ptr::addr_eq(Arc::as_ptr(armed), permission);
        let ours = matches!(&*self.state.borrow(), State::Armed(armed) if is_ours(armed));
        if ours {
            self.shut(Why::ProofLost);
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

    /// We stopped waiting, and not the other side: for all that is known it is at work.
    pub fn was_given_up(&self) -> bool {
        matches!(*self.state.borrow(), State::Shut(Why::ProofLost | Why::Late | Why::Stopped | Why::Cut))
    }

    fn is_open(&self) -> bool {
        matches!(*self.state.borrow(), State::Open)
    }

    /// One comparison per write; the failpoints are the two pauses that matter, before it and after it.
    fn check(&self) -> io::Result<()> {
        if self.only_listens() {
            self.state.replace(State::Listens);
        }
        match &*self.state.borrow() {
            State::Open | State::Listens => return Ok(()),
            State::Shut(_) => return Err(io::Error::other(GateShut)),
            State::Armed(permission) => {
                failpoint::pass("before_upstream_write");
                if permission.holds(self.clock.now()) {
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

/// Beside the body of a request: one that breaks on its way up cuts the exchange off, whatever the HTTP library makes of it
/// then.
pub struct Cuts(pub Rc<Gate>);

impl Observer for Cuts {
    fn failed(&mut self) {
        self.0.shut(Why::Cut);
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
mod tests;
