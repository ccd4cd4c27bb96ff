//! One process of a simulation. All of its tasks together can be frozen at any await, thawed, and killed.

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

/// A running process. Dropping it ends the process as SIGKILL does.
pub(super) struct SimProcess(Rc<ProcessState>);

struct ProcessState {
    /// `None` after the process has ended.
    tasks: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    frozen: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl SimProcess {
    /// Starts a process that runs `main` and the tasks that it spawns. Its log lines have the name `name`.
    pub(super) fn start(name: &'static str, main: impl Future<Output = ()> + 'static) -> Self {
        let tasks: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            let tasks = LocalSet::new();
            tasks.run_until(main).await;
            // Leak the remaining tasks, so that they neither run nor are dropped, as after the end of a process.
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

    /// Freezes the process as SIGSTOP does: no task runs, and its connections stay open.
    pub(super) fn freeze(&self) {
        self.0.frozen.set(true);
    }

    /// Lets the process go on, as SIGCONT does.
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
        // Leak the tasks: dropping them would still release locks and close connections, which a killed process does
        // not do.
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
