//! Follows the frames of an HTTP/2 connection (RFC 9113, 4.1), so that it is known for sure whether a request has left
//! in full: the library queues what the other side's windows have no room for, and answers may come early.

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

/// A connection whose frames are followed. It lies below the HTTP library and above TLS.
pub struct Followed<S> {
    io: S,
    out: Out,
    /// Bytes of the first frame that have come in.
    greeting: Vec<u8>,
    seen: Rc<Seen>,
}

/// What is known of a connection; shared with whoever sends on it.
#[derive(Debug)]
pub struct Seen {
    /// The other side has begun with its settings, so it does speak HTTP/2.
    greeted: Cell<bool>,
    /// We have said that we got them.
    acknowledged: Cell<bool>,
    /// The newest stream, which is the exchange at hand once it is newer than `before`.
    newest: Cell<u32>,
    before: Cell<u32>,
    /// The last frame of the newest stream that belongs to its request has been taken.
    ended: Cell<bool>,
    /// When the last piece of a request was taken.
    last_piece: Cell<Instant>,
    changed: Notify,
}

/// Where we are in what goes out.
#[derive(Debug)]
struct Out {
    /// Of the preface, then of a payload.
    skip: usize,
    head: [u8; HEAD],
    have: usize,
    /// The frame whose payload is skipped.
    frame: Frame,
}

/// What a frame means to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    Other,
    SettingsAck,
    /// `last`: nothing of the request comes after it, but for what continues its fields.
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
/// `PRI * HTTP/2.0`, and so on.
const PREFACE: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
/// Of settings, `ACK`; of data and headers, `END_STREAM`.
const FIRST_FLAG: u8 = 1;
const END_HEADERS: u8 = 4;

impl Seen {
    fn new() -> Self {
        Self {
            greeted: Cell::new(false),
            acknowledged: Cell::new(false),
            newest: Cell::new(0),
            before: Cell::new(0),
            ended: Cell::new(false),
            last_piece: Cell::new(Instant::now()),
            changed: Notify::new(),
        }
    }

    /// Another exchange begins.
    pub fn begin(&self) {
        self.before.set(self.newest.get());
        self.ended.set(false);
    }

    /// The request of the exchange at hand has been taken from the library in full.
    pub fn request_has_left(&self) -> bool {
        self.newest.get() > self.before.get() && self.ended.get()
    }

    /// Both sides have shown that they speak HTTP/2.
    pub fn is_open(&self) -> bool {
        self.greeted.get() && self.acknowledged.get()
    }

    pub fn last_piece(&self) -> Instant {
        self.last_piece.get()
    }

    /// Returns once `reached` is true. It is asked again whenever something went out.
    pub async fn until(&self, reached: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if reached(self) {
                return;
            }
            changed.await;
        }
    }

    fn passed(&self, frame: Frame) {
        match frame {
            Frame::Other => return,
            Frame::SettingsAck => self.acknowledged.set(true),
            Frame::Request { stream, last, fields_go_on } => {
                self.newest.set(self.newest.get().max(stream));
                // A promise to end the stream holds once the rest of its fields is out.
                self.ended.set(last && stream == self.newest.get() && !fields_go_on);
                self.last_piece.set(Instant::now());
            }
            Frame::Continuation { stream, fields_go_on } => {
                self.ended.set(stream == self.newest.get() && !fields_go_on);
                self.last_piece.set(Instant::now());
            }
        }
        self.changed.notify_waiters();
    }
}

impl Out {
    /// `bytes` were taken.
    fn follow(&mut self, mut bytes: &[u8], seen: &Seen) {
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
                (self.skip, self.frame) = read(self.head, self.frame);
                self.have = 0;
            }
            if self.skip == 0 {
                seen.passed(self.frame);
            }
        }
    }
}

/// Length and meaning of the frame with this head. `before`: the frame before it.
fn read(head: [u8; HEAD], before: Frame) -> (usize, Frame) {
    let [high, middle, low, kind, flags, id @ ..] = head;
    let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
    let stream = u32::from_be_bytes(id) & 0x7fff_ffff;
    let flagged = flags & FIRST_FLAG != 0;
    let frame = match kind {
        DATA => Frame::Request { stream, last: flagged, fields_go_on: false },
        HEADERS => Frame::Request { stream, last: flagged, fields_go_on: flags & END_HEADERS == 0 },
        SETTINGS if flagged => Frame::SettingsAck,
        // Nothing but a continuation may stand behind fields that go on; without an end before it, it ends nothing.
        CONTINUATION => match before {
            Frame::Request { last: true, .. } | Frame::Continuation { .. } => {
                Frame::Continuation { stream, fields_go_on: flags & END_HEADERS == 0 }
            }
            _ => Frame::Other,
        },
        _ => Frame::Other,
    };
    (length, frame)
}

impl<S> Followed<S> {
    pub fn new(io: S) -> (Self, Rc<Seen>) {
        let seen = Rc::new(Seen::new());
        let out = Out { skip: PREFACE, head: [0; HEAD], have: 0, frame: Frame::Other };
        (Self { io, out, greeting: Vec::new(), seen: seen.clone() }, seen)
    }

    /// The first frame has to be settings: anything else is another protocol.
    fn greet(&mut self, bytes: &[u8]) -> io::Result<()> {
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

impl<S: AsyncRead + Unpin> AsyncRead for Followed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = polled {
            self.greet(&buf.filled()[before..])?;
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Followed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.io).poll_write(cx, buf);
        if let Poll::Ready(Ok(taken)) = polled {
            this.out.follow(&buf[..taken], &this.seen);
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
                this.out.follow(&buf[..part], &this.seen);
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).expect("short").to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend(stream.to_be_bytes());
        bytes.extend(vec![1; payload]);
        bytes
    }

    fn followed(bytes: &[u8], pieces: usize) -> Seen {
        let seen = Seen::new();
        let mut out = Out { skip: PREFACE, head: [0; HEAD], have: 0, frame: Frame::Other };
        for piece in [&[0; PREFACE], bytes].concat().chunks(pieces) {
            out.follow(piece, &seen);
        }
        seen
    }

    #[test]
    fn a_request_has_left_with_the_last_byte_of_the_frame_that_ends_its_stream() {
        let (open, end) = (END_HEADERS, END_HEADERS | FIRST_FLAG);
        let cases: [(&str, Vec<Vec<u8>>, bool); 9] = [
            ("fields only", vec![frame(HEADERS, end, 1, 20)], true),
            ("body to come", vec![frame(HEADERS, open, 1, 20)], false),
            ("half of the body", vec![frame(HEADERS, open, 1, 20), frame(DATA, 0, 1, 9)], false),
            ("all of it", vec![frame(HEADERS, open, 1, 20), frame(DATA, 1, 1, 9)], true),
            ("an empty end", vec![frame(HEADERS, open, 1, 20), frame(DATA, 1, 1, 0)], true),
            (
                "trailers",
                vec![frame(HEADERS, open, 1, 20), frame(DATA, 0, 1, 9), frame(HEADERS, end, 1, 3)],
                true,
            ),
            ("fields go on", vec![frame(HEADERS, FIRST_FLAG, 1, 20)], false),
            (
                "and end",
                vec![frame(HEADERS, FIRST_FLAG, 1, 20), frame(CONTINUATION, END_HEADERS, 1, 5)],
                true,
            ),
            (
                "others between",
                vec![frame(HEADERS, open, 1, 20), frame(6, 1, 0, 8), frame(3, 0, 1, 4)],
                false,
            ),
        ];
        for (case, frames, left) in cases {
            let bytes = [frame(SETTINGS, 0, 0, 12), frames.concat()].concat();
            assert_eq!(followed(&bytes, 1).request_has_left(), left, "{case}");
            if left {
                assert!(!followed(&bytes[..bytes.len() - 1], 4).request_has_left(), "{case}: but for a byte");
            }
        }
    }

    #[test]
    fn the_end_of_an_earlier_exchange_is_not_that_of_the_next() {
        let seen = followed(&frame(HEADERS, END_HEADERS | FIRST_FLAG, 1, 20), 7);
        assert!(seen.request_has_left());
        seen.begin();
        assert!(!seen.request_has_left());
    }

    proptest! {
        #[test]
        fn where_bytes_are_cut_changes_nothing(
            kinds in proptest::collection::vec((0_u8..10, 0_u8..8, 0_u32..4, 0_usize..40), 0..12),
            pieces in 1_usize..60,
        ) {
            let bytes: Vec<u8> =
                kinds.iter().flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, *payload)).collect();
            let (one, other) = (followed(&bytes, 1), followed(&bytes, pieces));
            prop_assert_eq!(one.request_has_left(), other.request_has_left());
            prop_assert_eq!(one.acknowledged.get(), other.acknowledged.get());
        }
    }
}
