//! The stream of a client's connection, below the HTTP library. It bounds every wait for the client, and replaces
//! the refusals of the library by those of this proxy.

use std::{
    future::Future,
    io::{self, IoSlice},
    mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use fencegate_policies::plan::ListenerTimeouts;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep, sleep_until},
};

use super::{
    handler::{HttpHandler, ListenerTimeLimit, RequestRejection},
    heads::IncomingHeadMemory,
    linger::{encode_http1_response, linger, write_and_linger},
    metrics::ClientConnectionMetrics,
};
use crate::buffered::MemoryBudgetExceededError;
use crate::connection_state::{ConnectionReadPhase, NextWriteKind, ServerConnectionState};
use crate::network::ResetOnClose;

/// The stream of a connection that is being served.
pub(super) struct TimedIo<I: ResetOnClose> {
    stream: IoState<I>,
    connection: Rc<ServerConnectionState>,
    timeouts: ListenerTimeouts,
    handler: Rc<dyn HttpHandler>,
    metrics: Rc<ClientConnectionMetrics>,
    /// Created at the first wait for the client, and reset only if it would fire too late.
    timer: Option<Pin<Box<Sleep>>>,
    /// The moment since which the client has taken no byte.
    stuck: Option<Instant>,
    /// The timer of the next check whether a client whose body is held back is still connected.
    look: Option<Pin<Box<Sleep>>>,
    /// True until the first line end is read: until then only the target can be too large. It stays false for later
    /// heads, whose beginnings this layer does not see.
    first_line: bool,
    heads: IncomingHeadMemory,
}

enum IoState<I> {
    Live(I),
    /// The connection is being closed; no byte of the HTTP library is written any more.
    Leaving(Pin<Box<dyn Future<Output = ()>>>),
    Gone,
}

impl<I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static> TimedIo<I> {
    pub(super) fn new(
        stream: I,
        state: Rc<ServerConnectionState>,
        timeouts: ListenerTimeouts,
        handler: Rc<dyn HttpHandler>,
        metrics: Rc<ClientConnectionMetrics>,
        heads: IncomingHeadMemory,
    ) -> Self {
        state.unsent.set_write_timeout(timeouts.response_write);
        Self {
            stream: IoState::Live(stream),
            connection: state,
            timeouts,
            handler,
            metrics,
            timer: None,
            stuck: None,
            look: None,
            first_line: true,
            heads,
        }
    }

    /// Returns the stream without its time limits; `None` if it is being closed.
    pub(super) fn into_inner(mut self) -> Option<I> {
        match mem::replace(&mut self.stream, IoState::Gone) {
            IoState::Live(stream) => Some(stream),
            IoState::Leaving(_) | IoState::Gone => None,
        }
    }

    /// Called when there is nothing to read. Ready when the time limit for the client's next bytes has passed.
    fn poll_read_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (since, limit) = match self.connection.reading() {
            ConnectionReadPhase::Busy => {
                self.connection.set_idle_waker(cx.waker());
                return Poll::Pending;
            }
            ConnectionReadPhase::Head(since) => (since, ListenerTimeLimit::RequestHeaders),
            ConnectionReadPhase::Idle(known) => {
                (self.connection.get_or_start_idle(known), ListenerTimeLimit::Idle)
            }
        };
        ready!(self.poll_timer(cx, since + limit.duration(&self.timeouts)));
        self.metrics.record_timeout(limit);
        match limit {
            ListenerTimeLimit::RequestHeaders => self.reject(RequestRejection::TimedOut),
            _ => self.start_leaving(boxed_linger),
        }
        self.poll_lingering_close(cx)
    }

    /// Ready when an HTTP/2 head is not complete within its time limit.
    fn poll_unfinished_head_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(since) = self.heads.open_h2_head_since() else { return Poll::Pending };
        ready!(self.poll_timer(cx, since + self.timeouts.request_headers));
        self.metrics.record_timeout(ListenerTimeLimit::RequestHeaders);
        self.connection.request_connection_reset();
        Poll::Ready(())
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
    }

    /// Ready when the client of a held-back body has gone. The socket is not read while a body is held back, so no
    /// read reports the end, and the check is periodic.
    fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let IoState::Live(stream) = &self.stream else { return Poll::Pending };
        loop {
            if stream.has_hung_up() {
                return Poll::Ready(());
            }
            ready!(self.look.get_or_insert_with(|| Box::pin(sleep(LOOK))).as_mut().poll(cx));
            self.look = None;
        }
    }

    /// Replaces the bare status that the HTTP library writes when it cannot read a request by a refusal of this
    /// proxy.
    fn reject_with_detail(&mut self, said: &[u8]) {
        self.reject(match said.get(9..12) {
            Some(b"431") if self.first_line => RequestRejection::TargetTooLarge,
            Some(b"414") => RequestRejection::TargetTooLarge,
            Some(b"431") => RequestRejection::HeaderTooLarge,
            _ => RequestRejection::Malformed("the head of a request cannot be read"),
        });
    }

    /// Records received bytes, and reserves memory if they are part of a head.
    fn record_read(&mut self, bytes: &[u8]) -> Result<(), MemoryBudgetExceededError> {
        if let ConnectionReadPhase::Idle(_) = self.connection.reading() {
            self.heads.begin_http1_head();
        }
        self.connection.mark_head_started();
        self.first_line = self.first_line && !bytes.contains(&b'\n');
        self.heads
            .account_head_bytes(bytes, matches!(self.connection.reading(), ConnectionReadPhase::Head(_)))
    }

    fn reject(&mut self, refused: RequestRejection) {
        let took = match self.connection.reading() {
            ConnectionReadPhase::Head(since) => since.elapsed(),
            ConnectionReadPhase::Busy | ConnectionReadPhase::Idle(_) => Duration::ZERO,
        };
        let words = encode_http1_response(&self.handler.reject(refused, took));
        if let NextWriteKind::Owed(0) = self.connection.writing() {
            self.start_leaving(|stream| Box::pin(write_and_linger(stream, words)));
        } else {
            // The client has not read its earlier responses either, so no refusal is written.
            self.start_leaving(boxed_linger);
        }
    }

    fn start_leaving(&mut self, how: impl FnOnce(I) -> Pin<Box<dyn Future<Output = ()>>>) {
        self.stream = match mem::replace(&mut self.stream, IoState::Gone) {
            IoState::Live(stream) => IoState::Leaving(how(stream)),
            other => other,
        };
    }

    fn poll_lingering_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let IoState::Leaving(farewell) = &mut self.stream {
            ready!(farewell.as_mut().poll(cx));
            self.stream = IoState::Gone;
        }
        Poll::Ready(())
    }

    /// Records the result of a write. If no byte can be written for too long, the write fails.
    fn record_write<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stuck = None;
            return polled;
        }
        let since = *self.stuck.get_or_insert_with(Instant::now);
        ready!(self.poll_timer(cx, since + self.timeouts.response_write));
        self.metrics.record_timeout(ListenerTimeLimit::ResponseWrite);
        self.connection.request_connection_reset();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Writes informational responses. It is called when the library flushes, because the library has then written
    /// complete messages only.
    fn poll_write_informational(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream: IoState::Live(stream), connection: state, .. } = self else {
            return Poll::Ready(Ok(()));
        };
        match &state.informational {
            Some(interims) => interims.poll_write(|bytes| Pin::new(&mut *stream).poll_write(cx, bytes)),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Writes the rest of an informational response that is partly written, before anything else.
    fn poll_write_partial_informational(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self
            .connection
            .informational
            .as_ref()
            .is_some_and(|interims| interims.has_partial_informational())
        {
            return Poll::Ready(Ok(()));
        }
        let polled = self.poll_write_informational(cx);
        self.record_write(cx, polled)
    }

    /// Writes outside of any exchange: first the rest of complete responses; further bytes are messages of the
    /// library itself.
    fn write_outside_exchange(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total = slices.iter().map(|piece| piece.len()).sum();
        let owed = match self.connection.writing() {
            NextWriteKind::Owed(owed) => owed,
            NextWriteKind::LastChunk | NextWriteKind::Answers => total,
        };
        self.connection.set_unwritten_response_bytes(owed);
        let Some(first) = slices.iter().find(|piece| !piece.is_empty()) else { return Poll::Ready(Ok(0)) };
        if owed == 0 {
            self.reject_with_detail(first);
            // The library's bytes are discarded and reported as written, so that it closes the connection; this
            // proxy's refusal is written instead.
            return Poll::Ready(Ok(total));
        }
        let IoState::Live(stream) = &mut self.stream else { return Poll::Ready(Ok(total)) };
        let polled = match total <= owed {
            true => Pin::new(stream).poll_write_vectored(cx, slices),
            false => Pin::new(stream).poll_write(cx, &first[..owed.min(first.len())]),
        };
        if let Poll::Ready(Ok(count)) = polled {
            self.connection.set_unwritten_response_bytes(owed - count);
        }
        self.record_write(cx, polled)
    }
}

/// The interval in which a client whose body is held back is checked.
const LOOK: Duration = Duration::from_millis(250);

fn boxed_linger<I: AsyncRead + AsyncWrite + Unpin + 'static>(stream: I) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(linger(stream))
}

impl<I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static> AsyncRead for TimedIo<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let IoState::Live(stream) = &mut this.stream else {
            // The end of the stream is reported once the refusal is written.
            return this.poll_lingering_close(cx).map(Ok);
        };
        let before = buffer.filled().len();
        match Pin::new(stream).poll_read(cx, buffer) {
            Poll::Ready(read) => {
                let heard = &buffer.filled()[before..];
                if heard.is_empty() || this.record_read(heard).is_ok() {
                    return Poll::Ready(read);
                }
                buffer.set_filled(before);
                this.reject(RequestRejection::HeadMemoryExhausted);
                if this.heads.open_h2_head_since().is_some() {
                    // In the middle of an HTTP/2 head no refusal can be written, so the connection is reset.
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                this.poll_lingering_close(cx).map(Ok)
            }
            Poll::Pending if this.poll_unfinished_head_timeout(cx).is_ready() => {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            Poll::Pending => this.poll_read_timeout(cx).map(Ok),
        }
    }
}

impl<I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static> AsyncWrite for TimedIo<I> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.connection.writing() != NextWriteKind::Answers {
            return this.write_outside_exchange(cx, &[IoSlice::new(bytes)]);
        }
        ready!(this.poll_write_partial_informational(cx))?;
        let IoState::Live(stream) = &mut this.stream else { return Poll::Ready(Ok(bytes.len())) };
        let polled = Pin::new(stream).poll_write(cx, bytes);
        this.connection.record_write(&polled, &[IoSlice::new(bytes)]);
        this.record_write(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.connection.writing() != NextWriteKind::Answers {
            return this.write_outside_exchange(cx, slices);
        }
        ready!(this.poll_write_partial_informational(cx))?;
        let IoState::Live(stream) = &mut this.stream else {
            return Poll::Ready(Ok(slices.iter().map(|piece| piece.len()).sum()));
        };
        let polled = Pin::new(stream).poll_write_vectored(cx, slices);
        this.connection.record_write(&polled, slices);
        this.record_write(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            IoState::Live(stream) => stream.is_write_vectored(),
            IoState::Leaving(_) | IoState::Gone => true,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let said = this.poll_write_informational(cx);
        if !matches!(said, Poll::Ready(Ok(()))) {
            return this.record_write(cx, said);
        }
        let IoState::Live(stream) = &mut this.stream else { return this.poll_lingering_close(cx).map(Ok) };
        if this.connection.writing() == NextWriteKind::LastChunk {
            // The last chunk was already written in full, so no byte of the response is left.
            this.connection.set_unwritten_response_bytes(0);
        }
        let polled = Pin::new(stream).poll_flush(cx);
        if let Poll::Ready(Ok(())) = polled {
            this.connection.mark_all_written();
        }
        if this.connection.is_read_paused() && this.poll_client_gone(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if let ConnectionReadPhase::Idle(_) = this.connection.reading() {
            // The library reads again only when bytes come, so the time limit for them starts here.
            let _too_late = this.poll_read_timeout(cx);
        }
        this.record_write(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let (true, IoState::Live(_)) = (this.connection.is_upgrading(), &this.stream) {
            // The stream was handed over after a switch of protocols, so it must not be closed. All bytes before the
            // switch were already flushed.
            return Poll::Ready(Ok(()));
        }
        this.start_leaving(boxed_linger);
        this.poll_lingering_close(cx).map(Ok)
    }
}

impl<I: ResetOnClose> Drop for TimedIo<I> {
    fn drop(&mut self) {
        if let (IoState::Live(stream), true) = (&self.stream, self.connection.is_reset_requested()) {
            stream.reset_on_close();
        }
    }
}
