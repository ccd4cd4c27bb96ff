//! The write gate: no byte of a fenced request leaves after its permission to send has expired.
//!
//! A check before sending is not enough. HTTP libraries queue: between "send this" and the write to the socket lies an
//! unbounded time, for instance a pause of the whole process. So the check sits in `poll_write` itself, directly on the
//! socket. Two gaps stay open: a pause between the check and the system call, and bytes that are already in the
//! kernel's buffers. Only a comparison of tokens on the other side closes those.
//!
//! The second gap is kept short. A kernel goes on sending for a process that is killed, for a minute and more, and
//! for one that stands still. So every socket resets when it is closed abruptly, from its first byte on, and the
//! kernel gives up bytes of a fenced request that stay unacknowledged for too long. An orderly end takes the reset
//! back.

use std::{
    cell::{Cell, OnceCell, RefCell},
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fencegate_http::{body::BodyObserver, network::ResetOnClose};
use fencegate_process::{
    clock::{BootInstant, SendPermission, SharedClock},
    failpoint,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::h2_observer::H2WriteState;

/// A connection to an upstream, with its gate.
pub struct GatedIo<S: ResetOnClose> {
    io: S,
    gate: Rc<WriteGate>,
    /// The delivery limit that the socket has at present.
    undelivered: Option<Duration>,
}

/// The gate of one connection, shared with the code that dispatches on it.
#[derive(Debug)]
pub struct WriteGate {
    clock: SharedClock,
    state: RefCell<WriteGateState>,
    written: Cell<u64>,
    /// Whether bytes were written since the last complete flush. The HTTP library flushes when its own buffer is empty;
    /// before that more may follow.
    unflushed: Cell<bool>,
    last_write: Cell<Instant>,
    /// For HTTP/2: the frames, which show whether a request was sent in full.
    frames: OnceCell<Rc<H2WriteState>>,
    /// Whether the response to a request that was sent in full is awaited even after the permission has expired.
    awaited: Cell<bool>,
    /// How long the kernel may try to deliver a byte of this exchange. `None`: the kernel's default.
    undelivered: Cell<Option<Duration>>,
}

#[derive(Debug)]
enum WriteGateState {
    /// Unfenced requests and health checks pass.
    Open,
    /// Bytes pass only while this permission holds.
    Armed(Arc<dyn SendPermission>),
    /// The request was sent in full, and its response is awaited. All bytes pass, because none belongs to a request.
    ListenOnly,
    /// The exchange is being ended in order, under a permission that held. Bytes pass, and so does the end. A
    /// connection that is dropped before the peer has all of it is reset all the same.
    Closing,
    /// No byte passes any more.
    Shut(GateShutReason),
}

/// Why a gate is shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateShutReason {
    /// The permission expired before a write.
    ProofLost,
    /// The response did not come within the time limit, measured from the first byte. Measured from the last byte it
    /// may still come.
    Late,
    /// The process stops, and does not wait any longer.
    Stopped,
    /// This side ended the exchange before its response was complete, because the rest of the request's body does not
    /// come, or the response cannot be passed on.
    Cut,
    /// The exchange ended before its response was complete, for a reason that is not known.
    Abandoned,
}

/// The error of a write at a shut gate.
#[derive(Debug, thiserror::Error)]
#[error("the session deadline passed before the write")]
pub(crate) struct WriteGateShutError;

impl WriteGate {
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            state: RefCell::new(WriteGateState::Open),
            written: Cell::new(0),
            unflushed: Cell::new(false),
            last_write: Cell::new(Instant::now()),
            frames: OnceCell::new(),
            awaited: Cell::new(false),
            undelivered: Cell::new(None),
        }
    }

    /// Records that the connection speaks HTTP/2, which also sends bytes that belong to no request.
    pub(crate) fn observe_http2(&self, frames: &Rc<H2WriteState>) {
        self.frames.get_or_init(|| frames.clone());
    }

    /// Records that the response is awaited once the request is sent in full. On HTTP/2 window updates and pings
    /// still have to be sent then.
    pub fn set_awaiting_response(&self) {
        self.awaited.set(true);
    }

    /// Whether no byte written from now on can belong to a request, because the kernel has all of it.
    fn is_request_flushed(&self) -> bool {
        let waits = self.awaited.get() && matches!(*self.state.borrow(), WriteGateState::Armed(_));
        waits && self.is_flushed() && self.frames.get().is_some_and(|frames| frames.is_request_sent())
    }

    /// Call this before a request is queued on the connection. It resets the count, and lets bytes pass only under
    /// `permission`. The kernel tries to deliver them for its default time, unless [`Self::set_ack_timeout`] is called
    /// after this.
    pub fn arm(&self, permission: Option<Arc<dyn SendPermission>>) {
        self.written.set(0);
        self.awaited.set(false);
        self.undelivered.set(None);
        let mut state = self.state.borrow_mut();
        if !matches!(*state, WriteGateState::Shut(_)) {
            *state = permission.map_or(WriteGateState::Open, WriteGateState::Armed);
        }
    }

    /// Call this when the exchange is complete in both directions.
    pub fn disarm(&self) {
        self.arm(None);
    }

    /// Bounds the time of delivery: the kernel gives the connection up if the peer does not acknowledge a byte within
    /// `longest`, also while this process stands still. The socket gets the limit before the next byte.
    pub fn set_ack_timeout(&self, longest: Duration) {
        self.undelivered.set(Some(longest));
    }

    /// Lets further bytes pass if the permission still holds, so that the connection can be closed in order. If it is
    /// dropped while it [is closing](Self::is_closing), it is reset.
    pub fn begin_close_if_held(&self) {
        let held = match &*self.state.borrow() {
            WriteGateState::Armed(permission) => permission.may_send_at(self.clock.now()),
            WriteGateState::Open
            | WriteGateState::ListenOnly
            | WriteGateState::Closing
            | WriteGateState::Shut(_) => false,
        };
        if held {
            // The count of written bytes stays until the next exchange is armed, because the upstream may still work on
            // them.
            self.state.replace(WriteGateState::Closing);
        }
    }

    /// Whether the connection is being closed in order, and bytes of it may not have arrived. Each shutdown of the
    /// stream checks again.
    pub fn is_closing(&self) -> bool {
        matches!(*self.state.borrow(), WriteGateState::Closing)
    }

    /// Records that the connection ends. An exchange under way then ends with a reset.
    pub(crate) fn shut_unless_open(&self) {
        if !self.is_open() {
            self.shut(GateShutReason::Abandoned);
        }
    }

    /// Shuts the gate for ever. Only the first reason counts.
    pub fn shut(&self, reason: GateShutReason) {
        let mut state = self.state.borrow_mut();
        if !matches!(*state, WriteGateState::Shut(_)) {
            *state = WriteGateState::Shut(reason);
        }
    }

    /// Shuts the gate if it was armed with this permission, which does not hold any more. Another exchange may use the
    /// connection by now; then nothing happens.
    pub fn shut_if_armed_with(&self, permission: &dyn SendPermission) {
        let is_ours = |armed: &Arc<dyn SendPermission>| std::ptr::addr_eq(Arc::as_ptr(armed), permission);
        let ours = matches!(&*self.state.borrow(), WriteGateState::Armed(armed) if is_ours(armed));
        if ours {
            self.shut(GateShutReason::ProofLost);
        }
    }

    /// Bytes given to the kernel since the gate was armed.
    pub fn written_bytes(&self) -> u64 {
        self.written.get()
    }

    /// Whether the kernel has all bytes of the HTTP library.
    pub fn is_flushed(&self) -> bool {
        !self.unflushed.get()
    }

    /// When the last byte was given to the kernel.
    pub fn last_write(&self) -> Instant {
        self.last_write.get()
    }

    /// The instant of the last write on the clock of deadlines, or a later one.
    pub fn last_write_bound(&self) -> BootInstant {
        // The runtime's clock stands still while the machine sleeps, which makes the result later. That is the safe
        // side.
        self.clock.now() - self.last_write.get().elapsed()
    }

    pub fn is_permission_lost(&self) -> bool {
        matches!(*self.state.borrow(), WriteGateState::Shut(GateShutReason::ProofLost))
    }

    /// Whether this side gave the exchange up, so that the other side may still be at work.
    pub fn is_locally_aborted(&self) -> bool {
        matches!(
            *self.state.borrow(),
            WriteGateState::Shut(
                GateShutReason::ProofLost
                    | GateShutReason::Late
                    | GateShutReason::Stopped
                    | GateShutReason::Cut
            )
        )
    }

    fn is_open(&self) -> bool {
        matches!(*self.state.borrow(), WriteGateState::Open)
    }

    /// One comparison per write. The failpoints are the two places where a pause matters: before and after it.
    fn check_may_write(&self) -> io::Result<()> {
        if self.is_request_flushed() {
            self.state.replace(WriteGateState::ListenOnly);
        }
        match &*self.state.borrow() {
            WriteGateState::Open | WriteGateState::ListenOnly | WriteGateState::Closing => return Ok(()),
            WriteGateState::Shut(_) => return Err(io::Error::other(WriteGateShutError)),
            WriteGateState::Armed(permission) => {
                failpoint::pass("before_upstream_write");
                if permission.may_send_at(self.clock.now()) {
                    failpoint::pass("after_proof_check");
                    return Ok(());
                }
            }
        }
        self.shut(GateShutReason::ProofLost);
        Err(io::Error::other(WriteGateShutError))
    }

    fn count_written(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = polled {
            self.written.set(self.written.get() + *bytes as u64);
            self.last_write.set(Instant::now());
        }
    }
}

/// An observer of a request's body, which cuts the exchange off if the body breaks, whatever the HTTP library does
/// then.
pub struct CutOnBrokenBody(pub Rc<WriteGate>);

impl BodyObserver for CutOnBrokenBody {
    fn on_error(&mut self) {
        self.0.shut(GateShutReason::Cut);
    }
}

impl<S: ResetOnClose> GatedIo<S> {
    /// `io`: a socket on which nothing was written yet.
    pub fn new(io: S, gate: Rc<WriteGate>) -> Self {
        // Bytes in the kernel's buffer must not arrive if the exchange does not end well. Nothing is dropped in a
        // process that is killed, so this cannot wait for the end.
        io.reset_on_close();
        Self { io, gate, undelivered: None }
    }

    /// Everything that comes before a write. The check comes last, so that a pause before the write is least likely.
    fn prepare_write(&mut self) -> io::Result<()> {
        let undelivered = self.gate.undelivered.get();
        if self.undelivered != undelivered {
            self.io.give_up_after(undelivered);
            self.undelivered = undelivered;
        }
        self.gate.check_may_write()?;
        self.gate.unflushed.set(true);
        Ok(())
    }
}

impl<S: ResetOnClose> Drop for GatedIo<S> {
    fn drop(&mut self) {
        // An open gate has no exchange with a permission, or one that was answered in full.
        if self.gate.is_open() {
            self.io.flush_on_close();
        }
    }
}

impl<S: AsyncRead + ResetOnClose + Unpin> AsyncRead for GatedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + ResetOnClose + Unpin> AsyncWrite for GatedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.prepare_write()?;
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.gate.count_written(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.prepare_write()?;
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.gate.count_written(&polled);
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
        if !self.gate.is_open() && !self.gate.is_closing() {
            // A FIN in the middle of an exchange would look like an orderly end, so the drop resets the connection
            // instead.
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        if self.gate.is_closing() && self.io.is_fully_closed() {
            self.gate.state.replace(WriteGateState::Open);
        }
        polled
    }
}

#[cfg(test)]
mod tests;
