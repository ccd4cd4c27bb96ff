//! The write gate: no byte of a fenced request is written after its permission to send has expired.
//!
//! A check before sending is not enough. HTTP libraries queue: between the call that sends a request and the write to
//! the socket an unbounded time may pass, for instance in a pause of the whole process. So the check is in `poll_write`
//! itself, directly on the socket. Two gaps stay open: a pause between the check and the system call, and bytes that
//! are already in the kernel's buffers. Only a comparison of tokens on the other side closes those.
//!
//! The second gap is kept short. A kernel goes on sending for a process that is killed or frozen, for a minute and
//! more. So every socket is set to be reset when it is closed abruptly, from its first byte on, and the kernel gives up
//! bytes of a fenced request that stay unacknowledged for too long. When the exchange ends in order, the reset is taken
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
    /// The delivery limit that is set on the socket at present.
    undelivered: Option<Duration>,
}

/// The gate of one connection, shared with the code that dispatches on it.
#[derive(Debug)]
pub struct WriteGate {
    clock: SharedClock,
    state: RefCell<WriteGateState>,
    written: Cell<u64>,
    /// True if bytes were written since the last complete flush. The HTTP library flushes when its own buffer is empty,
    /// so before the flush more bytes may follow.
    unflushed: Cell<bool>,
    last_write: Cell<Instant>,
    /// For HTTP/2: the state of the frames, which shows whether a request was sent in full.
    frames: OnceCell<Rc<H2WriteState>>,
    /// True if the response to a request that was sent in full is awaited even after the permission has expired.
    awaited: Cell<bool>,
    /// How long the kernel may try to deliver a byte of this exchange. `None` is the kernel's default.
    undelivered: Cell<Option<Duration>>,
}

#[derive(Debug)]
enum WriteGateState {
    /// All bytes pass: an unfenced request, a health check, or no exchange.
    Open,
    /// Bytes pass only while this permission holds.
    Armed(Arc<dyn SendPermission>),
    /// The request was sent in full, and its response is awaited. All bytes pass, because none of them belongs to a
    /// request.
    ListenOnly,
    /// The exchange is being ended in order, under a permission that held. Bytes pass, and so does the end of the
    /// stream. If the connection is dropped before the peer has received all of it, it is reset all the same.
    Closing,
    /// No byte passes any more.
    Shut(GateShutReason),
}

/// The reason for which a gate is shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateShutReason {
    /// The permission expired before a write.
    ProofLost,
    /// The response did not come within the time limit, which counts from the first byte. The upstream, for which it
    /// counts from the last byte, may still answer.
    Late,
    /// The process stops, and does not wait any longer.
    Stopped,
    /// This process ended the exchange before its response was complete, because the rest of the request's body does
    /// not come, or the response cannot be passed on.
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

    /// Records that the response is awaited even after the permission has expired, once the request is sent in full. On
    /// HTTP/2 window updates and pings still have to be sent then.
    pub fn set_awaiting_response(&self) {
        self.awaited.set(true);
    }

    /// True if no byte that is written from now on can belong to a request, because the kernel has the whole request.
    fn is_request_flushed(&self) -> bool {
        let waits = self.awaited.get() && matches!(*self.state.borrow(), WriteGateState::Armed(_));
        waits && self.is_flushed() && self.frames.get().is_some_and(|frames| frames.is_request_sent())
    }

    /// Must be called before a request is queued on the connection. It resets the count, and lets bytes pass only under
    /// `permission`. The kernel tries to deliver them for its default time, unless [`Self::set_ack_timeout`] is called
    /// afterwards.
    pub fn arm(&self, permission: Option<Arc<dyn SendPermission>>) {
        self.written.set(0);
        self.awaited.set(false);
        self.undelivered.set(None);
        let mut state = self.state.borrow_mut();
        if !matches!(*state, WriteGateState::Shut(_)) {
            *state = permission.map_or(WriteGateState::Open, WriteGateState::Armed);
        }
    }

    /// Must be called when the exchange is complete in both directions.
    pub fn disarm(&self) {
        self.arm(None);
    }

    /// Bounds the time of delivery: the kernel closes the connection if the peer does not acknowledge a byte within
    /// `longest`, also while this process is frozen. The socket gets the limit before the next byte.
    pub fn set_ack_timeout(&self, longest: Duration) {
        self.undelivered.set(Some(longest));
    }

    /// Lets further bytes pass if the permission still holds, so that the connection can be closed in order. If the
    /// connection is dropped while it [is closing](Self::is_closing), it is reset.
    pub fn begin_close_if_permitted(&self) {
        let held = match &*self.state.borrow() {
            WriteGateState::Armed(permission) => permission.may_send_at(self.clock.now()),
            WriteGateState::Open
            | WriteGateState::ListenOnly
            | WriteGateState::Closing
            | WriteGateState::Shut(_) => false,
        };
        if held {
            // The count of written bytes stays until the next exchange is armed: the upstream may still work on these
            // bytes, which decides whether the outcome is known.
            self.state.replace(WriteGateState::Closing);
        }
    }

    /// True if the connection is being closed in order, and some of its bytes may not have arrived. Each shutdown of
    /// the stream checks this again.
    pub fn is_closing(&self) -> bool {
        matches!(*self.state.borrow(), WriteGateState::Closing)
    }

    /// Records that the connection ends. An exchange that is not over then ends with a reset.
    pub(crate) fn shut_unless_open(&self) {
        if !self.is_open() {
            self.shut(GateShutReason::Abandoned);
        }
    }

    /// Shuts the gate for good. Later reasons do not replace the first one.
    pub fn shut(&self, reason: GateShutReason) {
        let mut state = self.state.borrow_mut();
        if !matches!(*state, WriteGateState::Shut(_)) {
            *state = WriteGateState::Shut(reason);
        }
    }

    /// Shuts the gate if it was armed with this permission, which does not hold any more. If another exchange uses the
    /// connection by now, nothing happens.
    pub fn shut_if_armed_with(&self, permission: &dyn SendPermission) {
        let is_ours = |armed: &Arc<dyn SendPermission>| std::ptr::addr_eq(Arc::as_ptr(armed), permission);
        let ours = matches!(&*self.state.borrow(), WriteGateState::Armed(armed) if is_ours(armed));
        if ours {
            self.shut(GateShutReason::ProofLost);
        }
    }

    /// The number of bytes that were given to the kernel since the gate was armed.
    pub fn written_bytes(&self) -> u64 {
        self.written.get()
    }

    /// True if the kernel has all bytes of the HTTP library.
    pub fn is_flushed(&self) -> bool {
        !self.unflushed.get()
    }

    /// The moment when the last byte was given to the kernel.
    pub fn last_write(&self) -> Instant {
        self.last_write.get()
    }

    /// The moment of the last write on the clock of deadlines, or a later one.
    pub fn last_write_bound(&self) -> BootInstant {
        // While the machine sleeps, the runtime's clock does not advance, so `elapsed` is too short and the result too
        // late. That is safe: the caller only waits longer.
        self.clock.now() - self.last_write.get().elapsed()
    }

    pub fn is_permission_lost(&self) -> bool {
        matches!(*self.state.borrow(), WriteGateState::Shut(GateShutReason::ProofLost))
    }

    /// True if this process ended the exchange, so that the other side may still be at work.
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

    /// Returns an error if no byte may be written. The failpoints are the two places where a pause matters: before and
    /// after the check.
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

/// An observer of a request's body. If the body breaks, it shuts the gate, whatever the HTTP library does with the
/// broken body.
pub struct CutOnBrokenBody(pub Rc<WriteGate>);

impl BodyObserver for CutOnBrokenBody {
    fn on_error(&mut self) {
        self.0.shut(GateShutReason::Cut);
    }
}

impl<S: ResetOnClose> GatedIo<S> {
    /// `io` is a socket on which nothing was written yet.
    pub fn new(io: S, gate: Rc<WriteGate>) -> Self {
        // Bytes in the kernel's buffer must not arrive if the exchange does not end well. A process that is killed runs
        // no drop, so the reset is set at the beginning.
        io.reset_on_close();
        Self { io, gate, undelivered: None }
    }

    /// Prepares and checks a write. The check is last, so that a pause between it and the write is as unlikely as
    /// possible.
    fn prepare_write(&mut self) -> io::Result<()> {
        let undelivered = self.gate.undelivered.get();
        if self.undelivered != undelivered {
            self.io.set_unacknowledged_timeout(undelivered);
            self.undelivered = undelivered;
        }
        self.gate.check_may_write()?;
        self.gate.unflushed.set(true);
        Ok(())
    }
}

impl<S: ResetOnClose> Drop for GatedIo<S> {
    fn drop(&mut self) {
        // If the gate is open, the exchange had no permission or was answered in full, so the stream may end in order.
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
            // A FIN in the middle of an exchange would look like its orderly end. So nothing is closed here, and the
            // drop resets the connection.
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
