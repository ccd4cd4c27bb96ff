//! Interim answers on their way to a client (RFC 9110, 15.2). The HTTP library has none to give, so they are written below
//! it, between whole messages of its own.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use hyper::{HeaderMap, StatusCode};

/// Those of one connection. Whoever hears of them is asked to be `Send` by the library; all of it is on one thread.
#[derive(Debug, Default)]
pub struct Interims(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// Of which exchange of the connection.
    exchange: u64,
    /// A part of what there is was written.
    begun: bool,
    /// The answer itself has not begun.
    open: bool,
    /// What is to be said; a part of it may be written.
    bytes: Vec<u8>,
    /// Who answers.
    waker: Option<Waker>,
}

/// Those of one exchange, for who hears of them.
#[derive(Debug, Clone)]
pub struct Saying {
    of: Arc<Interims>,
    exchange: u64,
}

/// At most: whoever sends more has something else in mind.
const MOST: usize = 16 << 10;

impl Interims {
    /// Until the answer of this exchange begins.
    pub fn open(self: &Arc<Self>, waker: &Waker) -> Saying {
        let mut queue = self.queue();
        (queue.open, queue.exchange) = (true, queue.exchange + 1);
        if !queue.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            queue.waker = Some(waker.clone());
        }
        Saying { of: self.clone(), exchange: queue.exchange }
    }

    /// The answer begins: no more of them. Ready when those that there were are written, or nobody writes any more.
    pub fn poll_over(&self, cx: &Context<'_>) -> Poll<()> {
        let mut queue = self.queue();
        queue.open = false;
        if queue.bytes.is_empty() {
            return Poll::Ready(());
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Writes what there is, with `write`.
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

    /// Nothing else may be written before the rest of them is.
    pub(crate) fn is_begun(&self) -> bool {
        self.queue().begun
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Saying {
    /// Nothing of what is not awaited any more is said, and no more than a client may be asked to read.
    pub fn say(&self, status: StatusCode, headers: &HeaderMap) {
        let reason = status.canonical_reason().unwrap_or("Interim");
        let mut words = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
        for (name, value) in headers {
            words.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        words.extend(b"\r\n");
        let mut queue = self.of.queue();
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

    fn written(interims: &Interims, most: usize) -> String {
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

    #[test]
    fn what_was_said_before_the_answer_is_written_whole_and_nothing_else() {
        let (interims, waker) = (Arc::<Interims>::default(), Waker::noop());
        let first = interims.open(waker);
        let mut link = HeaderMap::new();
        link.insert("link", "</a>; rel=preload".parse().expect("a value"));
        first.say(StatusCode::EARLY_HINTS, &link);
        let cx = Context::from_waker(waker);
        assert!(interims.poll_over(&cx).is_pending());
        first.say(StatusCode::PROCESSING, &HeaderMap::new());
        let begun = written(&interims, 10);
        assert!(interims.is_begun());
        let all = begun + &written(&interims, usize::MAX);
        assert_eq!(all, "HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n");
        assert!(interims.poll_over(&cx).is_ready() && !interims.is_begun());
        let second = interims.open(waker);
        first.say(StatusCode::PROCESSING, &HeaderMap::new());
        assert_eq!(written(&interims, usize::MAX), "", "the one before is over");
        for _ in 0..10_000 {
            second.say(StatusCode::PROCESSING, &HeaderMap::new());
        }
        assert!(written(&interims, usize::MAX).len() <= MOST);
    }
}
