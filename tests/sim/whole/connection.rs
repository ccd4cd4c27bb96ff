//! One connection between two hosts. Its bytes arrive late, in order, or never.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf, Bytes};
use fencegate_http::network::ResetOnClose;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use super::delays::NetworkDelays;

pub(super) struct SimConnection {
    distances: Rc<NetworkDelays>,
    hosts: [IpAddr; 2],
    /// The bytes in flight to the end with each index.
    ways: [ByteQueue; 2],
    broken: Cell<bool>,
    /// True if a relay is in between, which has acknowledged everything sent to the end with index 1. The relay
    /// delivers this even after the connection has broken, and does not tell that end of the break.
    relayed: bool,
    /// The time at which the last byte was sent that the end with index 1 has read.
    taken_of: Rc<Cell<Option<Instant>>>,
}

/// The bytes in flight to one end.
#[derive(Default)]
struct ByteQueue {
    pieces: RefCell<VecDeque<QueuedBytes>>,
    /// The waker of the task that waits for more bytes.
    reader: RefCell<Option<Waker>>,
}

/// Bytes in flight, or the end of the stream.
struct QueuedBytes {
    at: Instant,
    /// The time at which the piece arrives.
    due: Instant,
    piece: ConnectionData,
}

enum ConnectionData {
    Bytes(Bytes),
    /// The end of the stream.
    End,
}

/// One of the two ends. Dropping it closes this end.
pub(super) struct SimSocket {
    wire: Rc<SimConnection>,
    /// The index of this end.
    number: usize,
    waits: Option<Pin<Box<Sleep>>>,
    ended: bool,
    resets: Cell<bool>,
}

impl SimConnection {
    pub(super) fn new(
        distances: Rc<NetworkDelays>,
        hosts: [IpAddr; 2],
        relayed: bool,
    ) -> (Rc<Self>, [SimSocket; 2]) {
        let (ways, broken, taken_of) = Default::default();
        let wire = Rc::new(Self { distances, hosts, ways, broken, relayed, taken_of });
        let end = |number| SimSocket {
            wire: wire.clone(),
            number,
            waits: None,
            ended: false,
            resets: Cell::new(false),
        };
        (wire.clone(), [end(0), end(1)])
    }

    pub(super) fn has_host(&self, host: IpAddr) -> bool {
        self.hosts.contains(&host)
    }

    pub(super) fn connects(&self, one: IpAddr, other: IpAddr) -> bool {
        self.hosts == [one, other] || self.hosts == [other, one]
    }

    /// Breaks the connection. Both ends are notified, and bytes in flight are lost, except those that a relay has.
    pub(super) fn break_off(&self) {
        self.broken.set(true);
        for (number, way) in self.ways.iter().enumerate() {
            if !self.hides_the_break_from(number) {
                way.pieces.borrow_mut().clear();
            }
            way.wake_reader();
        }
    }

    fn hides_the_break_from(&self, number: usize) -> bool {
        self.relayed && number == 1
    }

    fn enqueue(&self, from: usize, piece: ConnectionData) {
        let to = 1 - from;
        let way = &self.ways[1 - from];
        let arrival = self.distances.arrival(self.hosts[from], self.hosts[to]);
        let mut pieces = way.pieces.borrow_mut();
        let due = pieces.back().map_or(arrival, |before| arrival.max(before.due));
        pieces.push_back(QueuedBytes { at: Instant::now(), due, piece });
        drop(pieces);
        way.wake_reader();
    }
}

impl ByteQueue {
    fn wake_reader(&self) {
        if let Some(reader) = self.reader.borrow_mut().take() {
            reader.wake();
        }
    }
}

impl SimSocket {
    fn incoming_queue(&self) -> &ByteQueue {
        &self.wire.ways[self.number]
    }

    /// True if this end has noticed that the connection is broken.
    fn is_broken(&self) -> bool {
        self.wire.broken.get() && !self.wire.hides_the_break_from(self.number)
    }

    /// The time at which the last byte was sent that the accepting end has read.
    pub(super) fn last_accepted_at(&self) -> Rc<Cell<Option<Instant>>> {
        self.wire.taken_of.clone()
    }

    /// Reads bytes that have arrived; `Pending` while there are none.
    fn poll_arrived(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.is_broken() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let due = self.incoming_queue().pieces.borrow().front().map(|sent| sent.due);
            match due {
                Some(due) if due <= Instant::now() => {
                    self.take(buf);
                    return Poll::Ready(Ok(()));
                }
                Some(due) => {
                    let waits = self.waits.get_or_insert_with(|| Box::pin(sleep_until(due)));
                    if waits.deadline() != due {
                        waits.as_mut().reset(due);
                    }
                    // Store the waker as well, because it is also called when the connection breaks.
                    *self.wire.ways[self.number].reader.borrow_mut() = Some(cx.waker().clone());
                    ready!(waits.as_mut().poll(cx));
                }
                None => {
                    *self.incoming_queue().reader.borrow_mut() = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }

    fn take(&self, buf: &mut ReadBuf<'_>) {
        let mut pieces = self.incoming_queue().pieces.borrow_mut();
        // The end of the stream stays in the queue, so that later reads find it, too.
        if let Some(QueuedBytes { at, piece: ConnectionData::Bytes(bytes), .. }) = pieces.front_mut() {
            if self.number == 1 {
                self.wire.taken_of.set(Some(*at));
            }
            let most = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes[..most]);
            bytes.advance(most);
            if bytes.is_empty() {
                pieces.pop_front();
            }
        }
    }

    /// True if the other end has closed, and this has arrived here.
    fn is_closed_by_peer(&self) -> bool {
        let now = Instant::now();
        self.incoming_queue()
            .pieces
            .borrow()
            .iter()
            .any(|sent| sent.due <= now && matches!(sent.piece, ConnectionData::End))
    }
}

impl AsyncRead for SimSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_arrived(cx, buf)
    }
}

impl AsyncWrite for SimSocket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_broken() || self.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        // After a break a relay still accepts the bytes, and discards them.
        if !self.wire.broken.get() {
            self.wire.enqueue(self.number, ConnectionData::Bytes(Bytes::copy_from_slice(buf)));
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ended && !self.wire.broken.get() {
            self.ended = true;
            self.wire.enqueue(self.number, ConnectionData::End);
        }
        Poll::Ready(Ok(()))
    }
}

impl ResetOnClose for SimSocket {
    fn reset_on_close(&self) {
        self.resets.set(true);
    }

    fn flush_on_close(&self) {
        self.resets.set(false);
    }

    fn has_hung_up(&self) -> bool {
        self.is_broken() || self.is_closed_by_peer()
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        if self.resets.get() {
            self.wire.break_off();
        } else if !self.ended && !self.wire.broken.get() {
            self.wire.enqueue(self.number, ConnectionData::End);
        }
    }
}
