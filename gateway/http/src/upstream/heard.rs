//! Notes whether the other side has said anything since it was last asked, and hears it out when it takes no more.

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

/// Whether a byte of an answer has come. Shared with whoever asks on the connection.
pub(super) type Word = Rc<Cell<bool>>;

/// A connection as HTTP/1.1 sees it: what TLS says to end it is no word of an answer.
///
/// A server may answer and close before it has taken all of a request (RFC 9112, 9.6). Its answer then lies in our
/// kernel, with the end behind it, and a write fails. The HTTP library gives up an exchange that it cannot write, and
/// would never read that answer. So the write stays open, and the library reads on: to the answer, or to the end, which
/// ends the exchange as the failed write would have done. Behind a whole answer the library may not read to the end: what
/// follows such an answer stops it (hyper 1.12.0, `mid_message_detect_eof`). So the write stays open for a limited time.
pub(super) struct Heard<S> {
    io: S,
    word: Word,
    /// Nothing more is to be read, or nothing was read for so long that it is not waited for any more.
    heard_out: bool,
    /// The first write that nobody is there to take. Another one is not tried.
    failed: Option<Failed>,
    /// Waits with such a write.
    writer: Option<Waker>,
}

/// A write that failed, and has not been answered.
struct Failed {
    how: io::ErrorKind,
    /// When it failed, or when something was read after that.
    last: Instant,
    /// Polled by who writes, and set again only when it is due too early.
    timer: Pin<Box<Sleep>>,
}

/// How long a write that failed stays open while nothing is read. What came before it failed lies in our kernel.
const SILENCE: Duration = Duration::from_secs(1);

impl Failed {
    fn now(how: io::ErrorKind) -> Self {
        let last = Instant::now();
        Self { how, last, timer: Box::pin(sleep_until(last + SILENCE)) }
    }

    /// Ready when nothing was read for too long.
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

impl<S> Heard<S> {
    pub(super) fn new(io: S) -> (Self, Word) {
        let word = Word::default();
        (Self { io, word: word.clone(), heard_out: false, failed: None, writer: None }, word)
    }

    /// The connection itself, where HTTP has ended: a write that fails is told at once.
    pub(super) fn unwrap(self) -> S {
        self.io
    }
}

impl<S: Unpin> Heard<S> {
    fn write<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let failed = match &mut self.failed {
            Some(failed) => failed,
            None => match write(Pin::new(&mut self.io), cx) {
                Poll::Ready(Err(error)) if has_ended(&error) => self.failed.insert(Failed::now(error.kind())),
                polled => return polled,
            },
        };
        if self.heard_out || failed.poll_silence(cx).is_ready() {
            self.heard_out = true;
            return Poll::Ready(Err(failed.how.into()));
        }
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_heard_out(&mut self) {
        self.heard_out = true;
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

/// The other side has ended the connection: what it said before can be read, and then the end.
fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted)
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (buffer.filled().len(), buffer.remaining() > 0);
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        let heard = buffer.filled().len() > before;
        if heard {
            self.word.set(true);
            if let Some(failed) = &mut self.failed {
                failed.last = Instant::now();
            }
        } else if room && polled.is_ready() {
            self.is_heard_out();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write(cx, |io, cx| io.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |io, cx| io.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(cx, |io, cx| io.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
