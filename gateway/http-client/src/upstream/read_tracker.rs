//! Records whether a byte was received since the last request, and lets the response to a request be read after a
//! failed write.

use std::{
    cell::Cell,
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// True if a byte of a response was received. Shared with the code that sends requests on the connection.
pub(super) type ResponseStartedFlag = Rc<Cell<bool>>;

/// The stream below the HTTP/1.1 library. It is above TLS: the end of a TLS session does not count as a byte of a
/// response.
///
/// A server may answer and close before it has read all of a request (RFC 9112, 9.6). Then a write fails while the
/// response, and the end after it, are in the kernel of this machine. The HTTP library gives an exchange up when a
/// write fails, and would never read that response. So a failed write stays pending here, and the library reads on,
/// to the response or to the end, which ends the exchange as well. After a whole response the library may stop
/// reading before the end (hyper 1.12.0, `mid_message_detect_eof`). So the write stays pending for a limited time
/// only.
pub(super) struct ReadTrackingIo<S> {
    io: S,
    flag: ResponseStartedFlag,
    /// True if the stream was read to its end, or nothing was read for too long.
    drained: bool,
    /// The first failed write. After it nothing more is written.
    failed: Option<DeferredWriteError>,
    /// The task whose write stays pending.
    writer: Option<Waker>,
}

/// A failed write that stays pending.
struct DeferredWriteError {
    how: io::ErrorKind,
    /// The moment when the write failed, or when bytes were last read after that.
    last: Instant,
    /// Polled by the writing task, and reset only when it fires too early.
    timer: Pin<Box<Sleep>>,
}

/// How long a failed write stays pending while nothing is read. It may be short: bytes that came before the failure
/// are already in the kernel of this machine.
const SILENCE: Duration = Duration::from_secs(1);

impl DeferredWriteError {
    fn new(how: io::ErrorKind) -> Self {
        let last = Instant::now();
        Self { how, last, timer: Box::pin(sleep_until(last + SILENCE)) }
    }

    /// Ready when nothing was read for [`SILENCE`].
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let due = self.last + SILENCE;
            if self.timer.deadline() >= due {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
    }
}

impl<S> ReadTrackingIo<S> {
    pub(super) fn new(io: S) -> (Self, ResponseStartedFlag) {
        let read_flag = ResponseStartedFlag::default();
        (Self { io, flag: read_flag.clone(), drained: false, failed: None, writer: None }, read_flag)
    }

    /// Returns the bare stream after a switch of protocols. Its writes fail at once.
    pub(super) fn into_inner(self) -> S {
        self.io
    }
}

impl<S: Unpin> ReadTrackingIo<S> {
    fn poll_write_withholding_error<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let failed = match &mut self.failed {
            Some(failed) => failed,
            None => match write(Pin::new(&mut self.io), cx) {
                Poll::Ready(Err(error)) if is_peer_closed(&error) => {
                    self.failed.insert(DeferredWriteError::new(error.kind()))
                }
                polled => return polled,
            },
        };
        if self.drained || failed.poll_silence(cx).is_ready() {
            self.drained = true;
            return Poll::Ready(Err(failed.how.into()));
        }
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn mark_reads_drained(&mut self) {
        self.drained = true;
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

/// True if this error means that the other side has closed. Bytes that it sent before can then still be read.
fn is_peer_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted)
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadTrackingIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let room = buffer.remaining() > 0;
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        let heard = buffer.filled().len() > before;
        if heard {
            self.flag.set(true);
            if let Some(failed) = &mut self.failed {
                failed.last = Instant::now();
            }
        } else if room && polled.is_ready() {
            self.mark_reads_drained();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadTrackingIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_withholding_error(cx, |io, cx| io.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_withholding_error(cx, |io, cx| io.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_withholding_error(cx, |io, cx| io.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
