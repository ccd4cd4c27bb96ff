//! One process of a simulation: all of its tasks, which can be stopped in the middle, woken, and ended without a word.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    rc::Rc,
    task::{Poll, Waker},
};

use tokio::task::{LocalSet, spawn_local};
use tracing::Span;

/// Ends, when dropped, like one that was killed.
pub(super) struct Process(Rc<Inner>);

struct Inner {
    /// `None` when it is over.
    tasks: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    frozen: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Process {
    /// Runs it, with whatever it spawns, beside the caller. What it logs is told to be of `name`.
    pub(super) fn start(name: &'static str, main: impl Future<Output = ()> + 'static) -> Self {
        let tasks: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            let tasks = LocalSet::new();
            tasks.run_until(main).await;
            // What it leaves behind does not run, as with a process that has ended.
            mem::forget(tasks);
        });
        let inner = Rc::new(Inner {
            tasks: RefCell::new(Some(tasks)),
            frozen: Cell::new(false),
            waker: RefCell::default(),
        });
        let run = inner.clone();
        let span = tracing::error_span!("process", at = name);
        spawn_local(poll_fn(move |cx| run.poll(cx.waker(), &span)));
        Self(inner)
    }

    /// As SIGSTOP does: nothing of it runs, and its connections stay.
    pub(super) fn freeze(&self) {
        self.0.frozen.set(true);
    }

    /// As SIGCONT does.
    pub(super) fn thaw(&self) {
        self.0.frozen.set(false);
        self.0.wake();
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.tasks.borrow().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Dropped, its tasks would still give things back: locks, connections, words to others.
        mem::forget(self.0.tasks.borrow_mut().take());
        self.0.wake();
    }
}

impl Inner {
    fn poll(&self, waker: &Waker, span: &Span) -> Poll<()> {
        *self.waker.borrow_mut() = Some(waker.clone());
        if self.frozen.get() {
            return Poll::Pending;
        }
        let Some(mut tasks) = self.tasks.borrow_mut().take() else { return Poll::Ready(()) };
        let _at = span.enter();
        let ended = tasks.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_ready();
        if ended {
            return Poll::Ready(());
        }
        self.tasks.replace(Some(tasks));
        Poll::Pending
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}
