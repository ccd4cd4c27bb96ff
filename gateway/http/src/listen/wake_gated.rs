//! Polls a rare event cheaply, beside a future that is polled again and again.

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

/// Polls the inner future only after that has called its waker. A connection is polled several times for each request,
/// but its end comes once, and each poll of a cancellation token would take a lock.
///
/// # Cancellation
/// The same as for the inner future.
pub(super) struct WakeGated<F> {
    inner: Pin<Box<F>>,
    flag: Arc<WakeFlag>,
    /// The waker for the inner future, which rings the bell.
    waker: Waker,
    /// The task that the bell wakes.
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

impl<F: Future> WakeGated<F> {
    pub(super) fn new(awaited: F) -> Self {
        // It is rung at the start, so that the first poll reaches the inner future.
        let bell = Arc::new(WakeFlag { rung: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { inner: Box::pin(awaited), waker: bell.clone().into(), flag: bell, task: None }
    }
}

impl<F: Future> Future for WakeGated<F> {
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
        // Reset before the poll, so that a call during the poll leads to another one.
        this.flag.rung.store(false, Ordering::Release);
        this.inner.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::poll_fn, rc::Rc};

    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn it_is_asked_once_and_then_only_when_it_has_called() {
        let (asked, token) = (Rc::new(Cell::new(0)), CancellationToken::new());
        let awaited = {
            let (asked, cancelled) = (asked.clone(), token.clone().cancelled_owned());
            let mut cancelled = Box::pin(cancelled);
            poll_fn(move |cx| {
                asked.set(asked.get() + 1);
                cancelled.as_mut().poll(cx)
            })
        };
        let mut seldom = WakeGated::new(awaited);
        for _ in 0..10 {
            let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut seldom).poll(cx))).await;
            assert!(polled.is_pending());
        }
        assert_eq!(asked.get(), 1);
        let canceller = tokio::spawn(async move { token.cancel() });
        seldom.await;
        assert_eq!(asked.get(), 2);
        canceller.await.expect("no panic");
    }

    #[tokio::test]
    async fn whoever_asks_last_is_woken() {
        let token = CancellationToken::new();
        let mut seldom = WakeGated::new(token.clone().cancelled_owned());
        let nobody = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut seldom).poll(nobody).is_pending());
        let waits = tokio::spawn(seldom);
        tokio::task::yield_now().await;
        token.cancel();
        waits.await.expect("woken");
    }

    #[test]
    fn what_is_there_from_the_start_is_seen_at_once() {
        let token = CancellationToken::new();
        token.cancel();
        let mut seldom = WakeGated::new(token.cancelled());
        assert!(Pin::new(&mut seldom).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
