//! Monitors the threads on which requests and locks depend: each is pinged to detect whether it still runs its tasks.
//!
//! A thread that computes without end, or blocks on a lock or a disk, answers no ping. A service manager calls such a
//! thread hung, and so does `/live`. No probe waits for such a thread: [`ThreadMonitor::watch`] pings all threads
//! again and again, and counts the checks without an answer. While a process is suspended as a whole, it does not
//! check either, so that time counts for no thread.
//!
//! Two threads are not monitored: the thread of the admin listener, which does the checks, and the thread that writes
//! log lines, for which nothing waits. The thread that owns a guard's store counts for `/ready` only: if a disk is
//! slow, a restart would help no request, and would close the keys in use. The main thread and the thread that checks
//! endpoints count for neither: requests go on without them, and a file that cannot be read now could not be read
//! after a restart. Log and metrics report them.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use prometheus::IntCounterVec;
use tokio::{
    sync::{
        mpsc,
        oneshot::{self, error::TryRecvError},
    },
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// The time between two checks of a thread.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A thread that has not answered for this many checks hangs.
const HUNG_AFTER_CHECKS: u32 = 5;

/// The work of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadRole {
    /// Requests, on one of several threads.
    Requests,
    Sessions,
    Leases,
    /// The store of a guard.
    Store,
    /// Signals and reloads; in a guard also its periodic tasks.
    Main,
    /// Checks of the endpoints of one plan.
    Endpoints,
}

impl ThreadRole {
    fn is_liveness_critical(self) -> bool {
        matches!(self, Self::Requests | Self::Sessions | Self::Leases)
    }

    fn is_readiness_critical(self) -> bool {
        self.is_liveness_critical() || self == Self::Store
    }

    /// The name in metrics.
    fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Sessions => "sessions",
            Self::Leases => "leases",
            Self::Store => "store",
            Self::Main => "main",
            Self::Endpoints => "endpoints",
        }
    }
}

/// The threads of one process.
#[derive(Debug, Clone, Default)]
pub struct ThreadMonitor(Arc<ThreadMonitorState>);

#[derive(Debug, Default)]
struct ThreadMonitorState {
    all: Mutex<Vec<MonitoredThread>>,
    may_end: AtomicBool,
    /// Counts the seconds for which threads hung.
    hung: Option<IntCounterVec>,
}

#[derive(Debug)]
struct MonitoredThread {
    work: ThreadRole,
    /// The number of the thread among the threads with the same work, from 1.
    number: usize,
    asked: mpsc::UnboundedSender<Ping>,
    /// The ping of the last check that found an answer. It stays here until it is answered itself.
    open: Option<oneshot::Receiver<()>>,
    /// The number of checks that have found this ping unanswered.
    looks: u32,
    has_ended: bool,
    /// Cancelled when nothing depends on the thread any more.
    over: CancellationToken,
}

/// A ping. A thread answers it the next time that it runs its tasks.
type Ping = oneshot::Sender<()>;

impl ThreadMonitor {
    /// `hung` counts the seconds for which threads hang.
    pub fn with_counter(hung: IntCounterVec) -> Self {
        Self(Arc::new(ThreadMonitorState { hung: Some(hung), ..ThreadMonitorState::default() }))
    }

    /// Registers a thread. The returned future answers pings: run it as a task of the thread's runtime, as long as
    /// that runtime runs.
    pub fn register(&self, work: ThreadRole) -> impl Future<Output = ()> + use<> {
        self.register_until(work, CancellationToken::new())
    }

    /// Registers a thread that is not pinged any more after `over` is cancelled.
    pub fn register_until(
        &self,
        work: ThreadRole,
        over: CancellationToken,
    ) -> impl Future<Output = ()> + use<> {
        self.monitor_thread(work, over, || std::future::ready(()))
    }

    /// Registers a thread with its own check: `probe` returns when the thread has run its tasks once.
    pub fn register_with<F: Future<Output = ()>, T: Fn() -> F>(
        &self,
        work: ThreadRole,
        probe: T,
    ) -> impl Future<Output = ()> + use<F, T> {
        self.monitor_thread(work, CancellationToken::new(), probe)
    }

    fn monitor_thread<F: Future<Output = ()>, T: Fn() -> F>(
        &self,
        work: ThreadRole,
        over: CancellationToken,
        probe: T,
    ) -> impl Future<Output = ()> + use<F, T> {
        let (asked, mut questions) = mpsc::unbounded_channel::<Ping>();
        let mut all = self.lock_members();
        let number = all.iter().filter(|member| member.work == work).count() + 1;
        all.push(MonitoredThread { work, number, asked, open: None, looks: 0, has_ended: false, over });
        drop(all);
        self.count_hung(work, 0);
        async move {
            while let Some(question) = questions.recv().await {
                probe().await;
                // Sending fails if the receiver of the answer is gone.
                question.send(()).ok();
            }
        }
    }

    /// Marks the process as stopping: from now on threads that have ended are ignored.
    pub fn allow_exit(&self) {
        self.0.may_end.store(true, Ordering::Relaxed);
    }

    /// Returns when each thread that `/live` depends on has answered once since the call. If a thread has ended too
    /// early, this never returns.
    pub async fn wait_all_alive(&self) {
        // All threads are pinged before the first answer is awaited.
        let answers: Vec<_> = self
            .lock_members()
            .iter()
            .filter(|member| member.work.is_liveness_critical())
            .map(MonitoredThread::ping)
            .collect();
        for answer in answers {
            let ended = answer.await.is_err();
            if ended && !self.0.may_end.load(Ordering::Relaxed) {
                std::future::pending().await
            }
        }
    }

    /// Checks all threads periodically. Run it on a thread that is not monitored. Never returns.
    pub async fn watch(self) {
        let mut due = check_interval();
        loop {
            due.tick().await;
            self.check();
        }
    }

    fn check(&self) {
        let may_end = self.0.may_end.load(Ordering::Relaxed);
        let mut all = self.lock_members();
        all.retain(|member| !member.over.is_cancelled());
        for member in all.iter_mut() {
            member.check_thread_liveness(may_end);
            if member.is_silent() {
                self.count_hung(member.work, CHECK_INTERVAL.as_secs());
            }
        }
    }

    /// Adds to the seconds for which a thread hung. The call with 0 creates the series, also for a thread that never
    /// hangs.
    fn count_hung(&self, work: ThreadRole, seconds: u64) {
        if let Some(hung) = &self.0.hung {
            hung.with_label_values(&[work.as_str()]).inc_by(seconds);
        }
    }

    /// The name of a thread that `/live` depends on and that hangs or has ended too early, by the last check of
    /// [`ThreadMonitor::watch`]; `None` if there is none.
    pub fn hung_thread(&self) -> Option<String> {
        self.find_silent(ThreadRole::is_liveness_critical)
    }

    /// The same as [`ThreadMonitor::hung_thread`], but also for the threads that only `/ready` depends on.
    pub fn unready_thread(&self) -> Option<String> {
        self.find_silent(ThreadRole::is_readiness_critical)
    }

    fn find_silent(&self, counts: impl Fn(ThreadRole) -> bool) -> Option<String> {
        let all = self.lock_members();
        let silent = all.iter().find(|member| counts(member.work) && member.is_silent());
        silent.map(ToString::to_string)
    }

    fn lock_members(&self) -> MutexGuard<'_, Vec<MonitoredThread>> {
        // No thread waits for anything while it holds this lock, so the lock is soon free.
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MonitoredThread {
    fn ping(&self) -> oneshot::Receiver<()> {
        let (question, answer) = oneshot::channel();
        // If the ping cannot be sent, its answer fails as well.
        self.asked.send(question).ok();
        answer
    }

    fn is_silent(&self) -> bool {
        self.has_ended || self.looks >= HUNG_AFTER_CHECKS
    }

    fn check_thread_liveness(&mut self, may_end: bool) {
        let was_silent = self.is_silent();
        match self.open.as_mut().map(oneshot::Receiver::try_recv) {
            None | Some(Ok(())) => {
                if was_silent {
                    info!(thread = %self.name(), "the thread responds again");
                }
                (self.looks, self.open) = (0, Some(self.ping()));
            }
            Some(Err(TryRecvError::Empty)) => self.looks += 1,
            Some(Err(TryRecvError::Closed)) => (self.looks, self.has_ended) = (0, !may_end),
        }
        if self.is_silent() && !was_silent {
            error!("FG0552: {self}");
        }
    }

    fn name(&self) -> String {
        match self.work {
            ThreadRole::Requests => format!("worker {}", self.number),
            ThreadRole::Sessions => "the thread of the sessions".into(),
            ThreadRole::Leases => "the thread of the leases".into(),
            ThreadRole::Store => "the thread of the store".into(),
            ThreadRole::Main => "the main thread".into(),
            ThreadRole::Endpoints => "the thread of the endpoints".into(),
        }
    }
}

impl fmt::Display for MonitoredThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_ended {
            return write!(f, "{} has ended", self.name());
        }
        let silent = CHECK_INTERVAL * self.looks;
        write!(f, "{} has not responded for {} s", self.name(), silent.as_secs())
    }
}

/// Returns when this process has run for `time`. Time in which the process is suspended counts as one second.
pub async fn sleep_unsuspended(time: Duration) {
    let mut due = check_interval();
    due.tick().await;
    for _ in 0..time.as_secs().max(1) {
        due.tick().await;
    }
}

/// An interval whose missed ticks are not made up for, so that a suspended process does not check many times at once.
fn check_interval() -> tokio::time::Interval {
    let mut due = interval(CHECK_INTERVAL);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    due
}

#[cfg(test)]
mod tests {
    use tokio::{
        task::yield_now,
        time::{advance, timeout},
    };

    use super::*;

    /// All registered threads must answer; threads that have ended are accepted only after `allow_exit`.
    #[tokio::test(start_paused = true)]
    async fn all_threads_must_answer_until_exit() {
        let threads = ThreadMonitor::default();
        let turns = async || timeout(Duration::from_secs(60), threads.wait_all_alive()).await.is_ok();
        assert!(turns().await, "none is there");
        let one = tokio::spawn(threads.register(ThreadRole::Requests));
        assert!(turns().await);
        let hangs = threads.register(ThreadRole::Requests);
        let _store = threads.register(ThreadRole::Store);
        assert!(!turns().await, "one of two answered");
        let other = tokio::spawn(hangs);
        assert!(turns().await);
        other.abort();
        yield_now().await;
        assert!(!turns().await, "one of two has ended");
        threads.allow_exit();
        assert!(turns().await);
        one.abort();
    }

    /// A thread hangs after `HUNG_AFTER_CHECKS` checks without an answer, and at once when it has ended before the
    /// exit.
    #[tokio::test]
    async fn thread_hangs_after_missed_checks() {
        let threads = ThreadMonitor::default();
        let one = tokio::spawn(threads.register(ThreadRole::Requests));
        let hangs = threads.register(ThreadRole::Requests);
        let looks = async |times: u32| {
            for _ in 0..times {
                threads.check();
                yield_now().await;
            }
        };
        looks(1 + HUNG_AFTER_CHECKS - 1).await;
        assert_eq!(threads.hung_thread(), None);
        looks(1).await;
        assert_eq!(threads.hung_thread().as_deref(), Some("worker 2 has not responded for 5 s"));
        let other = tokio::spawn(hangs);
        yield_now().await;
        looks(1).await;
        assert_eq!(threads.hung_thread(), None, "it has answered");
        other.abort();
        yield_now().await;
        looks(2).await;
        assert_eq!(threads.hung_thread().as_deref(), Some("worker 2 has ended"));
        threads.allow_exit();
        looks(1).await;
        assert_eq!(threads.hung_thread(), None);
        one.abort();
    }

    #[tokio::test]
    async fn hung_store_is_unready_but_live() {
        let threads = ThreadMonitor::default();
        let answers = tokio::spawn(threads.register_with(ThreadRole::Store, std::future::pending::<()>));
        for _ in 0..=HUNG_AFTER_CHECKS {
            threads.check();
            yield_now().await;
        }
        assert_eq!(threads.hung_thread(), None);
        assert_eq!(
            threads.unready_thread().as_deref(),
            Some("the thread of the store has not responded for 5 s")
        );
        answers.abort();
    }

    /// A main thread that hangs fails no probe; only the seconds for which it hangs are counted.
    #[tokio::test]
    async fn hung_main_thread_is_only_counted() {
        let hung = IntCounterVec::new(prometheus::Opts::new("hung", "Seconds."), &["thread"]).expect("sound");
        let threads = ThreadMonitor::with_counter(hung.clone());
        let _hangs = threads.register(ThreadRole::Main);
        let seconds = |thread: &str| hung.with_label_values(&[thread]).get();
        for _ in 0..HUNG_AFTER_CHECKS {
            threads.check();
            yield_now().await;
        }
        assert_eq!(seconds("main"), 0);
        threads.check();
        threads.check();
        assert_eq!(seconds("main"), 2);
        assert_eq!((threads.hung_thread(), threads.unready_thread()), (None, None));
    }

    /// The thread that checks the endpoints of a plan ends with the plan, and then does not count as hung. Each plan
    /// has a thread of its own for that.
    #[tokio::test]
    async fn ended_plan_thread_is_not_hung() {
        let hung = IntCounterVec::new(prometheus::Opts::new("hung", "Seconds."), &["thread"]).expect("sound");
        let threads = ThreadMonitor::with_counter(hung.clone());
        let over = CancellationToken::new();
        let seconds = || hung.with_label_values(&["endpoints"]).get();
        let ends = async |over: CancellationToken| {
            let turns = tokio::spawn(threads.register_until(ThreadRole::Endpoints, over.clone()));
            threads.check();
            yield_now().await;
            turns.abort();
            yield_now().await;
            // The first check still finds the answer to the ping of the check before; the second one does not.
            threads.check();
            threads.check();
        };
        over.cancel();
        ends(over).await;
        assert_eq!(seconds(), 0);
        ends(CancellationToken::new()).await;
        assert_eq!(seconds(), 1, "nobody has ended it");
    }

    /// A suspended machine marks no thread as hung: after an hour one check is due, and not 3600.
    #[tokio::test(start_paused = true)]
    async fn suspended_machine_marks_no_thread_hung() {
        let threads = ThreadMonitor::default();
        let _hangs = threads.register(ThreadRole::Sessions);
        let watched = tokio::spawn(threads.clone().watch());
        yield_now().await;
        advance(Duration::from_secs(3600)).await;
        yield_now().await;
        assert_eq!(threads.hung_thread(), None);
        for _ in 0..HUNG_AFTER_CHECKS {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        assert!(threads.hung_thread().is_some());
        watched.abort();
    }
}
