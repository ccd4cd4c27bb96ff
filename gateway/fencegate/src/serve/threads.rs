//! The threads on which requests and locks depend. Each can be asked whether it still runs its tasks.
//!
//! A thread that computes without end, or blocks on a lock or a disk, answers nothing. A service manager calls that
//! hung. Two threads are left out: the one of the admin listener and the one that writes a guard's store. A restart
//! would help no request if only a page or a disk is slow.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::{mpsc, oneshot};

/// The threads of one process.
#[derive(Debug, Clone, Default)]
pub struct Threads(Arc<Members>);

#[derive(Debug, Default)]
struct Members {
    asked: Mutex<Vec<mpsc::UnboundedSender<Question>>>,
    may_end: AtomicBool,
}

/// A thread answers it the next time that it runs its tasks.
type Question = oneshot::Sender<()>;

impl Threads {
    /// Registers a thread. The returned future answers for it: run it as a task of the thread's runtime, as long as
    /// that runs.
    pub(super) fn joined(&self) -> impl Future<Output = ()> + use<> {
        let (asked, mut questions) = mpsc::unbounded_channel::<Question>();
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        async move {
            while let Some(question) = questions.recv().await {
                // Fails if nobody waits for the answer any more.
                question.send(()).ok();
            }
        }
    }

    /// From now on threads that have ended are ignored.
    pub(super) fn may_end(&self) {
        self.0.may_end.store(true, Ordering::Relaxed);
    }

    /// Returns when each thread has answered once since the call. If a thread has ended too early, this never
    /// returns.
    pub(super) async fn turned(&self) {
        let asked = self.0.asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // All threads are asked before the first answer is awaited.
        let answers: Vec<_> = asked
            .iter()
            .map(|asked| {
                let (question, answer) = oneshot::channel();
                // If the question cannot be sent, its answer fails as well.
                asked.send(question).ok();
                answer
            })
            .collect();
        for answer in answers {
            let ended = answer.await.is_err();
            if ended && !self.0.may_end.load(Ordering::Relaxed) {
                std::future::pending().await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{task::yield_now, time::timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_have_to_turn_and_those_that_have_ended_only_before_the_end() {
        let threads = Threads::default();
        let turns = async || timeout(Duration::from_secs(60), threads.turned()).await.is_ok();
        assert!(turns().await, "none is there");
        let one = tokio::spawn(threads.joined());
        assert!(turns().await);
        let hangs = threads.joined();
        assert!(!turns().await, "one of two answered");
        let other = tokio::spawn(hangs);
        assert!(turns().await);
        other.abort();
        yield_now().await;
        assert!(!turns().await, "one of two has ended");
        threads.may_end();
        assert!(turns().await);
        one.abort();
    }
}
