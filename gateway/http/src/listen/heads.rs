//! Reserves memory for heads that are still being read, below the HTTP library.

use tokio::time::Instant;

use super::detect::{DetectedProtocol, PREFACE};
use crate::buffered::{HeadMemoryBudget, HeadReservation, MemoryBudgetExceededError};

/// The head that one connection is receiving.
pub(super) struct IncomingHeadMemory {
    room: HeadReservation,
    progress: HeadByteTracker,
}

enum HeadByteTracker {
    /// The received bytes of the present head. The library does not shrink its buffer, so the connection keeps the
    /// reservation of its largest head.
    Http1(usize),
    Http2 {
        frames: H2HeaderFrameParser,
        unfinished: usize,
        since: Option<Instant>,
    },
}

impl IncomingHeadMemory {
    /// `unfinished` is the number of bytes that the library may allocate for an incomplete HTTP/2 head.
    pub(super) fn new(protocol: DetectedProtocol, memory: &HeadMemoryBudget, unfinished: usize) -> Self {
        let progress = match protocol {
            DetectedProtocol::Http1 => HeadByteTracker::Http1(0),
            DetectedProtocol::Http2 => {
                HeadByteTracker::Http2 { frames: H2HeaderFrameParser::new(), unfinished, since: None }
            }
        };
        Self { room: memory.reserve(), progress }
    }

    /// Resets the count, because an HTTP/1 head begins.
    pub(super) fn begin_http1_head(&mut self) {
        if let HeadByteTracker::Http1(come) = &mut self.progress {
            *come = 0;
        }
    }

    /// Counts received bytes. `of_head` is true if the head of an HTTP/1 request is not complete.
    pub(super) fn account_head_bytes(
        &mut self,
        bytes: &[u8],
        of_head: bool,
    ) -> Result<(), MemoryBudgetExceededError> {
        match &mut self.progress {
            HeadByteTracker::Http1(come) if of_head => {
                *come += head_length(bytes, *come == 0);
                self.room.resize(*come)
            }
            HeadByteTracker::Http1(_) => Ok(()),
            HeadByteTracker::Http2 { frames, unfinished, since } => {
                frames.track_open_head(bytes);
                if !frames.open {
                    if since.take().is_some() {
                        self.room.release();
                    }
                    return Ok(());
                }
                since.get_or_insert_with(Instant::now);
                self.room.resize(*unfinished)
            }
        }
    }

    /// The moment since which an HTTP/2 head is incomplete. Until it is complete, nothing else can come over the
    /// connection.
    pub(super) fn open_h2_head_since(&self) -> Option<Instant> {
        match self.progress {
            HeadByteTracker::Http1(_) => None,
            HeadByteTracker::Http2 { since, .. } => since,
        }
    }
}

/// Returns how many of these bytes belong to the head: bytes after its empty line are a body, or another request. At
/// the beginning (`first`), empty lines before the request line are skipped (RFC 9112, 2.2).
fn head_length(bytes: &[u8], first: bool) -> usize {
    let before = bytes.iter().take_while(|byte| first && matches!(byte, b'\r' | b'\n')).count();
    let rest = &bytes[before..];
    let ends_at = memchr::memchr_iter(b'\n', rest).find_map(|at| match rest[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    });
    ends_at.map_or(bytes.len(), |end| before + end)
}

/// Parses the incoming frames of an HTTP/2 connection (RFC 9113, 4.1), to know whether a head is incomplete.
#[derive(Debug)]
struct H2HeaderFrameParser {
    /// Bytes to skip: first of the preface, then of a payload.
    left: usize,
    head: [u8; FRAME_HEAD],
    have: usize,
    /// True from the first frame of a head to its last one.
    open: bool,
}

impl H2HeaderFrameParser {
    fn new() -> Self {
        Self { left: PREFACE.len(), head: [0; FRAME_HEAD], have: 0, open: false }
    }

    fn track_open_head(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let payload = self.left.min(bytes.len());
            self.left -= payload;
            bytes = &bytes[payload..];
            let taken = (FRAME_HEAD - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == FRAME_HEAD {
                let [a, b, c, kind, flags, ..] = self.head;
                self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.have = 0;
                if matches!(kind, HEADERS | CONTINUATION) {
                    self.open = flags & END_HEADERS == 0;
                }
            }
        }
    }
}

const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffered::{MemoryBudget, metrics::BufferMetrics};

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).expect("short").to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], &vec![9; payload]].concat()
    }

    /// A head is open from its first frame to its last, however the frames are cut.
    #[test]
    fn head_is_open_until_last_frame() {
        let sent = [
            (PREFACE.to_vec(), false),
            (frame(4, 0, 0), false),
            (frame(HEADERS, 1, 300), true),
            (frame(CONTINUATION, 0, 70_000), true),
            (frame(CONTINUATION, END_HEADERS, 0), false),
            (frame(0, END_HEADERS, 5), false),
            (frame(HEADERS, END_HEADERS, 5), false),
            (frame(HEADERS, 0, 0), true),
        ];
        for cut in [1, 2, 7, 9, 1000, usize::MAX] {
            let mut frames = H2HeaderFrameParser::new();
            for (bytes, open) in &sent {
                bytes.chunks(cut.min(bytes.len())).for_each(|piece| frames.track_open_head(piece));
                assert_eq!(frames.open, *open, "{cut}: {frames:?}");
            }
        }
    }

    /// Partial heads reserve memory, and a head for which there is none is refused.
    #[test]
    fn partial_heads_are_bounded() {
        for protocol in [DetectedProtocol::Http1, DetectedProtocol::Http2] {
            let budget = MemoryBudget::new(1 << 20, BufferMetrics::unexposed_metrics());
            let memory = HeadMemoryBudget::new(budget.clone(), None);
            let opened = [PREFACE.to_vec(), frame(HEADERS, 0, 1)].concat();
            let bytes = if protocol == DetectedProtocol::Http1 { vec![b'x'; 1 << 20] } else { opened };
            let mut held = Vec::new();
            let all = loop {
                let mut heads = IncomingHeadMemory::new(protocol, &memory, 1 << 20);
                if heads.account_head_bytes(&bytes, true).is_err() {
                    break held.len();
                }
                held.push(heads);
            };
            assert_eq!(all, 4, "{protocol:?}");
            held.clear();
            assert_eq!(budget.metrics().add(0), 0, "{protocol:?}");
        }
    }

    /// Bytes of a body after the head do not count as bytes of the head.
    #[test]
    fn body_bytes_are_not_head_bytes() {
        for (sent, head) in [
            ("POST / HTTP/1.1\r\nHost: a\r\n\r\nbody", 28),
            ("\r\n\r\nPOST / HTTP/1.1\nHost: a\n\nbody", 29),
            ("POST / HTTP/1.1\r\nHost: a\n\r\nbody", 27),
            ("POST / HTTP/1.1\r\nHost: a\r\n", 26),
            ("\r\n\r\n", 4),
        ] {
            assert_eq!(head_length(sent.as_bytes(), true), head, "{sent:?}");
        }
        assert_eq!(head_length(b"\r\n\r\nbody", false), 4);
    }

    /// A complete HTTP/2 head releases its memory; an HTTP/1 connection keeps its buffer.
    #[test]
    fn complete_http2_head_releases_memory() {
        let budget = MemoryBudget::new(1 << 20, BufferMetrics::unexposed_metrics());
        let memory = HeadMemoryBudget::new(budget.clone(), None);
        let mut http2 = IncomingHeadMemory::new(DetectedProtocol::Http2, &memory, 1 << 20);
        let opened = [PREFACE.to_vec(), frame(HEADERS, 0, 1)].concat();
        http2.account_head_bytes(&opened, false).expect("room");
        assert!(http2.open_h2_head_since().is_some());
        http2.account_head_bytes(&frame(CONTINUATION, END_HEADERS, 1), false).expect("room");
        assert_eq!((http2.open_h2_head_since(), budget.metrics().add(0)), (None, 0));
        let mut http1 = IncomingHeadMemory::new(DetectedProtocol::Http1, &memory, 1 << 20);
        http1.account_head_bytes(&[b'x'; 30_000], true).expect("room");
        http1.account_head_bytes(&[b'x'; 90_000], false).expect("a body is counted elsewhere");
        http1.begin_http1_head();
        http1.account_head_bytes(&[b'x'; 20_000], true).expect("room");
        assert_eq!(budget.metrics().add(0), 30_000);
    }
}
