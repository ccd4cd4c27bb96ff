//! Notes whether the other side has said anything since it was last asked, and hears it out when it takes no more.

use std::{
    cell::Cell,
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Whether a byte of an answer has come. Shared with whoever asks on the connection.
pub(super) type Word = Rc<Cell<bool>>;

/// A connection as HTTP/1.1 sees it: what TLS says to end it is no word of an answer.
///
/// A server may answer and close before it has taken all of a request (RFC 9112, 9.6). Its answer then lies in our
/// kernel, with the end behind it, and a write fails. The HTTP library gives up an exchange that it cannot write, and
/// would never read that answer. So the write stays open, and the library reads on: to the answer, or to the end, which
/// ends the exchange as the failed write would have done.
pub(super) struct Heard<S> {
    io: S,
    word: Word,
    /// Nothing more is to be read.
    heard_out: bool,
    /// How the first write failed that nobody is there to take. Another one is not tried.
    failed: Option<io::ErrorKind>,
    /// Waits with such a write.
    writer: Option<Waker>,
}

impl<S> Heard<S> {
    pub(super) fn new(io: S) -> (Self, Word) {
        let word = Word::default();
        (Self { io, word: word.clone(), heard_out: false, failed: None, writer: None }, word)
    }
}

impl<S: Unpin> Heard<S> {
    fn write<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let failed = match self.failed {
            Some(failed) => failed,
            None => match write(Pin::new(&mut self.io), cx) {
                Poll::Ready(Err(error)) if has_ended(&error) => *self.failed.insert(error.kind()),
                polled => return polled,
            },
        };
        if self.heard_out {
            return Poll::Ready(Err(failed.into()));
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
