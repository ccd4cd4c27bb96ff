//! Parses the frames of an HTTP/2 connection (RFC 9113, 4.1), to know for certain whether a request was sent in full.
//! The library queues bytes while the other side's windows are full, and a response may come before the request is
//! sent.
//!
//! It also determines whether the other side has said that it has not processed a request (RFC 9113, 8.7). The library
//! reports the error of a stream. But when a connection ends, streams that were processed may also get the error of its
//! GOAWAY, and the last stream that the GOAWAY names is not reported.

use std::{
    cell::Cell,
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::Instant,
};

/// A connection whose frames are parsed. It is below the HTTP library and above TLS.
pub(crate) struct H2ObservedIo<S> {
    io: S,
    out: H2WritePosition,
    incoming: H2ReadPosition,
    /// The received bytes of the first frame.
    greeting: Vec<u8>,
    seen: Rc<H2WriteState>,
}

/// The facts about a connection, shared with the code that sends on it.
#[derive(Debug)]
pub struct H2WriteState {
    /// True if the other side has sent its settings, so that it does speak HTTP/2.
    greeted: Cell<bool>,
    /// True if this side has acknowledged the settings of the other side.
    acknowledged: Cell<bool>,
    /// The newest stream. It belongs to the present exchange if it is newer than `before`.
    newest: Cell<u32>,
    before: Cell<u32>,
    /// True if the frame that ends the request of the newest stream was taken from the library.
    ended: Cell<bool>,
    /// The moment when the last piece of a request was taken from the library.
    last_piece: Cell<Instant>,
    /// The last stream that the other side has reset as refused.
    refused: Cell<Option<u32>>,
    /// The last stream for which a part of a response came, final or interim.
    answered: Cell<Option<u32>>,
    /// The lowest stream that a GOAWAY frame has named as the last one.
    last_processed: Cell<Option<u32>>,
    changed: Notify,
}

/// The position in the incoming stream.
#[derive(Debug, Default)]
struct H2ReadPosition {
    head: [u8; HEAD],
    have: usize,
    /// Bytes of the payload that are still to come.
    rest: usize,
    /// The first bytes of the payload, of which `kept` were received.
    begin: [u8; 4],
    kept: usize,
}

/// The position in the outgoing stream.
#[derive(Debug)]
struct H2WritePosition {
    /// Bytes to skip: first of the preface, then of a payload.
    skip: usize,
    head: [u8; HEAD],
    have: usize,
    /// The frame whose payload is skipped.
    frame: H2FrameKind,
}

/// The meaning of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum H2FrameKind {
    Other,
    SettingsAck,
    /// A frame of a request. `last` is true if it has `END_STREAM`: then only the continuation of its fields may
    /// follow.
    Request {
        stream: u32,
        last: bool,
        fields_go_on: bool,
    },
    Continuation {
        stream: u32,
        fields_go_on: bool,
    },
}

const HEAD: usize = 9;
/// The length of the client preface, which begins with `PRI * HTTP/2.0`.
const PREFACE: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
/// The flag `ACK` of settings, and `END_STREAM` of data and headers.
const FIRST_FLAG: u8 = 1;
const END_HEADERS: u8 = 4;
/// The error code of a stream that was closed before any of it was processed (RFC 9113, 7).
const REFUSED_STREAM: u32 = 7;

impl H2WriteState {
    fn new() -> Self {
        Self {
            greeted: Cell::new(false),
            acknowledged: Cell::new(false),
            newest: Cell::new(0),
            before: Cell::new(0),
            ended: Cell::new(false),
            last_piece: Cell::new(Instant::now()),
            refused: Cell::new(None),
            answered: Cell::new(None),
            last_processed: Cell::new(None),
            changed: Notify::new(),
        }
    }

    /// Records that another exchange begins: later streams belong to it.
    pub fn begin_exchange(&self) {
        self.before.set(self.newest.get());
        self.ended.set(false);
    }

    /// True if the request of the present exchange was taken from the library in full.
    pub(crate) fn is_request_sent(&self) -> bool {
        self.newest.get() > self.before.get() && self.ended.get()
    }

    /// True if the other side has said that it has processed nothing of the present exchange's request: it has reset
    /// the stream as refused, or has ended the connection with an earlier last stream (RFC 9113, 8.7). Always false
    /// once a part of a response has come.
    pub fn is_request_unprocessed(&self) -> bool {
        let stream = self.newest.get();
        stream > self.before.get()
            && self.answered.get() != Some(stream)
            && (self.refused.get() == Some(stream)
                || self.last_processed.get().is_some_and(|last| last < stream))
    }

    /// True if both sides have shown that they speak HTTP/2.
    pub(crate) fn is_http2_established(&self) -> bool {
        self.greeted.get() && self.acknowledged.get()
    }

    pub(crate) fn last_data(&self) -> Instant {
        self.last_piece.get()
    }

    /// Returns once `reached` is true. It is evaluated again after each write.
    pub async fn wait_until(&self, reached: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if reached(self) {
                return;
            }
            changed.await;
        }
    }

    fn record_frame(&self, frame: H2FrameKind) {
        match frame {
            H2FrameKind::Other => return,
            H2FrameKind::SettingsAck => self.acknowledged.set(true),
            H2FrameKind::Request { stream, last, fields_go_on } => {
                self.newest.set(self.newest.get().max(stream));
                // If fields go on in a continuation, the request ends only with their last frame.
                self.ended.set(last && stream == self.newest.get() && !fields_go_on);
                self.last_piece.set(Instant::now());
            }
            H2FrameKind::Continuation { stream, fields_go_on } => {
                self.ended.set(stream == self.newest.get() && !fields_go_on);
                self.last_piece.set(Instant::now());
            }
        }
        self.changed.notify_waiters();
    }
}

impl H2ReadPosition {
    /// Parses received bytes.
    fn parse_received_frames(&mut self, mut bytes: &[u8], seen: &H2WriteState) {
        while !bytes.is_empty() {
            if self.have < HEAD {
                let taken = (HEAD - self.have).min(bytes.len());
                self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
                (self.have, bytes) = (self.have + taken, &bytes[taken..]);
                if self.have < HEAD {
                    return;
                }
                let [high, middle, low, ..] = self.head;
                self.rest = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                self.kept = 0;
            } else {
                let taken = self.rest.min(bytes.len());
                let kept = taken.min(self.begin.len() - self.kept);
                self.begin[self.kept..self.kept + kept].copy_from_slice(&bytes[..kept]);
                (self.kept, self.rest, bytes) = (self.kept + kept, self.rest - taken, &bytes[taken..]);
            }
            if self.rest == 0 {
                self.have = 0;
                self.record_frame(seen);
            }
        }
    }

    /// Records the facts of a frame that was received in full.
    fn record_frame(&self, seen: &H2WriteState) {
        let [_, _, _, kind, _, id @ ..] = self.head;
        let stream = u32::from_be_bytes(id) & 0x7fff_ffff;
        let word = (self.kept == self.begin.len()).then(|| u32::from_be_bytes(self.begin));
        match (kind, word) {
            (HEADERS | DATA, _) => seen.answered.set(Some(stream)),
            (RST_STREAM, Some(REFUSED_STREAM)) => seen.refused.set(Some(stream)),
            (GOAWAY, Some(last)) => {
                let last = last & 0x7fff_ffff;
                seen.last_processed
                    .set(Some(seen.last_processed.get().map_or(last, |known| known.min(last))));
            }
            _ => {}
        }
    }
}

impl H2WritePosition {
    /// Parses `bytes`, which the stream has accepted.
    fn advance(&mut self, mut bytes: &[u8], seen: &H2WriteState) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                (self.skip, bytes) = (self.skip - skipped, &bytes[skipped..]);
            } else {
                let taken = (HEAD - self.have).min(bytes.len());
                self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
                (self.have, bytes) = (self.have + taken, &bytes[taken..]);
                if self.have < HEAD {
                    return;
                }
                (self.skip, self.frame) = parse_head(self.head, self.frame);
                self.have = 0;
            }
            if self.skip == 0 {
                seen.record_frame(self.frame);
            }
        }
    }
}

/// Returns the length and the meaning of the frame with this head. `before` is the frame before it.
fn parse_head(head: [u8; HEAD], before: H2FrameKind) -> (usize, H2FrameKind) {
    let [high, middle, low, kind, flags, id @ ..] = head;
    let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
    let stream = u32::from_be_bytes(id) & 0x7fff_ffff;
    let flagged = flags & FIRST_FLAG != 0;
    let frame = match kind {
        DATA => H2FrameKind::Request { stream, last: flagged, fields_go_on: false },
        HEADERS => H2FrameKind::Request { stream, last: flagged, fields_go_on: flags & END_HEADERS == 0 },
        SETTINGS if flagged => H2FrameKind::SettingsAck,
        // A continuation follows unfinished fields. It ends the request only if the frame with the first fields had
        // `END_STREAM`.
        CONTINUATION => match before {
            H2FrameKind::Request { last: true, .. } | H2FrameKind::Continuation { .. } => {
                H2FrameKind::Continuation { stream, fields_go_on: flags & END_HEADERS == 0 }
            }
            _ => H2FrameKind::Other,
        },
        _ => H2FrameKind::Other,
    };
    (length, frame)
}

impl<S> H2ObservedIo<S> {
    pub(crate) fn new(io: S) -> (Self, Rc<H2WriteState>) {
        let seen = Rc::new(H2WriteState::new());
        let out = H2WritePosition { skip: PREFACE, head: [0; HEAD], have: 0, frame: H2FrameKind::Other };
        let incoming = H2ReadPosition::default();
        (Self { io, out, incoming, greeting: Vec::new(), seen: seen.clone() }, seen)
    }

    /// Checks that the first frame is settings; anything else means that the other side does not speak HTTP/2.
    fn check_preface(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.seen.greeted.get() || bytes.is_empty() {
            return Ok(());
        }
        self.greeting.extend(bytes.iter().take(HEAD - self.greeting.len()));
        if self.greeting.len() < HEAD {
            return Ok(());
        }
        if self.greeting[3] != SETTINGS || self.greeting[5..] != [0; 4] {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the other side does not speak HTTP/2"));
        }
        self.seen.greeted.set(true);
        self.seen.changed.notify_waiters();
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for H2ObservedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = polled {
            let this = &mut *self;
            this.check_preface(&buf.filled()[before..])?;
            this.incoming.parse_received_frames(&buf.filled()[before..], &this.seen);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for H2ObservedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.io).poll_write(cx, buf);
        if let Poll::Ready(Ok(taken)) = polled {
            this.out.advance(&buf[..taken], &this.seen);
        }
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.io).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(mut taken)) = polled {
            for buf in bufs {
                let part = taken.min(buf.len());
                this.out.advance(&buf[..part], &this.seen);
                taken -= part;
            }
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        if flushed.is_ready() {
            self.seen.changed.notify_waiters();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
