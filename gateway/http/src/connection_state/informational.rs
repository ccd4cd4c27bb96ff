//! Informational responses on their way to a client (RFC 9110, 15.2). The HTTP library cannot send them, so they are
//! written below it, between whole messages of its own.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use hyper::{HeaderMap, StatusCode};

/// The informational responses of one connection. All uses are on one thread; there is a mutex only because the
/// library requires the receiver of informational responses to be `Send`.
#[derive(Debug, Default)]
pub struct InformationalQueue(Mutex<InformationalQueueState>);

#[derive(Debug, Default)]
struct InformationalQueueState {
    /// The number of the exchange to which the queued responses belong.
    exchange: u64,
    /// True if a part of `bytes` was written.
    begun: bool,
    /// True until the final response begins.
    open: bool,
    /// Bytes to be written; a part of them may be written already.
    bytes: Vec<u8>,
    /// The task of the exchange, woken when a response is queued and when all are written.
    waker: Option<Waker>,
}

/// Sends the informational responses of one exchange.
#[derive(Debug, Clone)]
pub struct InformationalSender {
    queue: Arc<InformationalQueue>,
    exchange: u64,
}

/// The most bytes of informational responses that are kept.
const MOST: usize = 16 << 10;

impl InformationalQueue {
    /// Opens the exchange to informational responses, until its final response begins.
    pub fn open(self: &Arc<Self>, waker: &Waker) -> InformationalSender {
        let mut queue = self.queue();
        (queue.open, queue.exchange) = (true, queue.exchange + 1);
        if !queue.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            queue.waker = Some(waker.clone());
        }
        InformationalSender { queue: self.clone(), exchange: queue.exchange }
    }

    /// Closes the exchange to informational responses, because the final response begins. Ready when the queued ones
    /// are written, or the connection has ended.
    pub fn poll_close(&self, cx: &Context<'_>) -> Poll<()> {
        let mut queue = self.queue();
        queue.open = false;
        if queue.bytes.is_empty() {
            return Poll::Ready(());
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Writes the queued bytes with `write`.
    pub(crate) fn poll_write(
        &self,
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        let mut queue = self.queue();
        while !queue.bytes.is_empty() {
            match write(&queue.bytes) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => drop(queue.bytes.drain(..count)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
            queue.begun = !queue.bytes.is_empty();
            if !queue.begun
                && let Some(waker) = &queue.waker
            {
                waker.wake_by_ref();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// True if an informational response is partly written, so that the rest of it must be written before anything
    /// else.
    pub(crate) fn has_partial_informational(&self) -> bool {
        self.queue().begun
    }

    fn queue(&self) -> MutexGuard<'_, InformationalQueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InformationalSender {
    /// Queues an informational response, unless the final one has begun or too many bytes wait.
    pub fn send(&self, status: StatusCode, headers: &HeaderMap) {
        let reason = status.canonical_reason().unwrap_or("Interim");
        let mut words = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
        for (name, value) in headers {
            words.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        words.extend(b"\r\n");
        let mut queue = self.queue.queue();
        if !queue.open || queue.exchange != self.exchange || queue.bytes.len() + words.len() > MOST {
            return;
        }
        queue.bytes.extend(words);
        if let Some(waker) = &queue.waker {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_queued_text(interims: &InformationalQueue, most: usize) -> String {
        let mut all = Vec::new();
        let polled = interims.poll_write(|bytes| {
            if all.len() >= most {
                return Poll::Pending;
            }
            let count = bytes.len().min(7);
            all.extend(&bytes[..count]);
            Poll::Ready(Ok(count))
        });
        assert!(!matches!(polled, Poll::Ready(Err(_))));
        String::from_utf8(all).expect("text")
    }

    /// An informational response is written in full before the response; one that comes too late is dropped.
    #[test]
    fn informational_is_written_whole_before_response() {
        let interims = Arc::<InformationalQueue>::default();
        let waker = Waker::noop();
        let first = interims.open(waker);
        let mut link = HeaderMap::new();
        link.insert("link", "</a>; rel=preload".parse().expect("a value"));
        first.send(StatusCode::EARLY_HINTS, &link);
        let cx = Context::from_waker(waker);
        assert!(interims.poll_close(&cx).is_pending());
        first.send(StatusCode::PROCESSING, &HeaderMap::new());
        let begun = write_queued_text(&interims, 10);
        assert!(interims.has_partial_informational());
        let all = begun + &write_queued_text(&interims, usize::MAX);
        assert_eq!(all, "HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n");
        assert!(interims.poll_close(&cx).is_ready() && !interims.has_partial_informational());
        let second = interims.open(waker);
        first.send(StatusCode::PROCESSING, &HeaderMap::new());
        assert_eq!(write_queued_text(&interims, usize::MAX), "", "the one before is over");
        for _ in 0..10_000 {
            second.send(StatusCode::PROCESSING, &HeaderMap::new());
        }
        assert!(write_queued_text(&interims, usize::MAX).len() <= MOST);
    }
}
