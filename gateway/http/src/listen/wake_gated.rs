//! Avoids polling a future for a rare event, when the task around it is polled often.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::task::AtomicWaker;

/// Polls the inner future only after it has called its waker. A connection is polled several times for each request,
/// but the event that ends it happens once, and each poll of a cancellation token would take a lock.
///
/// # Cancellation
/// Dropping this future drops the inner one.
pub(super) struct PollOnWake<F> {
    inner: Pin<Box<F>>,
    flag: Arc<WakeFlag>,
    /// The waker for the inner future, which sets the flag.
    waker: Waker,
    /// The task that polls this future, and that the flag wakes.
    task: Option<Waker>,
}

struct WakeFlag {
    rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F: Future> PollOnWake<F> {
    pub(super) fn new(awaited: F) -> Self {
        // The flag is set at the start, so that the first poll reaches the inner future.
        let bell = Arc::new(WakeFlag { rung: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { inner: Box::pin(awaited), waker: bell.clone().into(), flag: bell, task: None }
    }
}

impl<F: Future> Future for PollOnWake<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if !this.task.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            this.flag.task.register(cx.waker());
            this.task = Some(cx.waker().clone());
        }
        if !this.flag.rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // The wake took the registered waker with it.
        this.flag.task.register(cx.waker());
        // The flag is cleared before the poll, so that a wake during the poll leads to another poll.
        this.flag.rung.store(false, Ordering::Release);
        this.inner.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::poll_fn, rc::Rc};

    use tokio_util::sync::CancellationToken;

    use super::*;

    /// The inner future is polled once, and then only after it has woken its task.
    #[tokio::test]
    async fn future_is_polled_only_after_wake() {
        let polls = Rc::new(Cell::new(0));
        let token = CancellationToken::new();
        let awaited = {
            let polls = polls.clone();
            let cancelled = token.clone().cancelled_owned();
            let mut cancelled = Box::pin(cancelled);
            poll_fn(move |cx| {
                polls.set(polls.get() + 1);
                cancelled.as_mut().poll(cx)
            })
        };
        let mut gated = PollOnWake::new(awaited);
        for _ in 0..10 {
            let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut gated).poll(cx))).await;
            assert!(polled.is_pending());
        }
        assert_eq!(polls.get(), 1);
        let canceller = tokio::spawn(async move { token.cancel() });
        gated.await;
        assert_eq!(polls.get(), 2);
        canceller.await.expect("no panic");
    }

    /// A future that needs several wakes gets the second one as well, in the same task.
    #[tokio::test]
    async fn every_wake_leads_to_poll() {
        let mut polls = 0;
        let (sender, receiver) = std::sync::mpsc::channel::<Waker>();
        let gated = PollOnWake::new(poll_fn(move |cx| {
            polls += 1;
            if polls == 3 {
                return Poll::Ready(());
            }
            sender.send(cx.waker().clone()).expect("the test receives");
            Poll::Pending
        }));
        let waiting = tokio::spawn(gated);
        for _ in 0..2 {
            tokio::task::yield_now().await;
            receiver.try_recv().expect("polled").wake();
        }
        tokio::time::timeout(std::time::Duration::from_secs(10), waiting)
            .await
            .expect("woken")
            .expect("no panic");
    }

    #[tokio::test]
    async fn latest_poller_is_woken() {
        let token = CancellationToken::new();
        let mut gated = PollOnWake::new(token.clone().cancelled_owned());
        let nobody = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut gated).poll(nobody).is_pending());
        let waits = tokio::spawn(gated);
        tokio::task::yield_now().await;
        token.cancel();
        waits.await.expect("woken");
    }

    #[test]
    fn ready_future_is_ready_at_once() {
        let token = CancellationToken::new();
        token.cancel();
        let mut gated = PollOnWake::new(token.cancelled());
        assert!(Pin::new(&mut gated).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
