//! One process of a simulation. All of its tasks together can be stopped in the middle, woken, and killed.

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

/// Dropping it ends the process as SIGKILL does.
pub(super) struct SimProcess(Rc<ProcessState>);

struct ProcessState {
    /// `None` after the end.
    tasks: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    frozen: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl SimProcess {
    /// Runs `main` and the tasks that it spawns beside the caller. Its log lines get the name `name`.
    pub(super) fn start(name: &'static str, main: impl Future<Output = ()> + 'static) -> Self {
        let tasks: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            let tasks = LocalSet::new();
            tasks.run_until(main).await;
            // The remaining tasks do not run, as after the end of a process.
            mem::forget(tasks);
        });
        let inner = Rc::new(ProcessState {
            tasks: RefCell::new(Some(tasks)),
            frozen: Cell::new(false),
            waker: RefCell::default(),
        });
        let run = inner.clone();
        let span = tracing::error_span!("process", at = name);
        spawn_local(poll_fn(move |cx| run.poll(cx.waker(), &span)));
        Self(inner)
    }

    /// Stops the process as SIGSTOP does: no task runs, and the connections stay.
    pub(super) fn freeze(&self) {
        self.0.frozen.set(true);
    }

    /// Wakes the process as SIGCONT does.
    pub(super) fn thaw(&self) {
        self.0.frozen.set(false);
        self.0.wake();
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.tasks.borrow().is_none()
    }
}

impl Drop for SimProcess {
    fn drop(&mut self) {
        // Dropped tasks would still give back locks and close connections, so they are leaked.
        mem::forget(self.0.tasks.borrow_mut().take());
        self.0.wake();
    }
}

impl ProcessState {
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
