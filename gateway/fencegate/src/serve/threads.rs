//! The threads that requests and locks depend on: each can be asked whether it still turns.
//!
//! A thread that computes without end, or waits for a lock or a disk without its runtime, answers nothing. That is what a service
//! manager calls hung. The thread of the admin listener is not among them, and neither is the one that makes a guard's words
//! durable: no request is helped by a restart because a page or a disk is slow.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::{mpsc, oneshot};

/// Those of one process.
#[derive(Debug, Clone, Default)]
pub struct Threads(Arc<Members>);

#[derive(Debug, Default)]
struct Members {
    asked: Mutex<Vec<mpsc::UnboundedSender<Question>>>,
    may_end: AtomicBool,
}

/// Answered by a thread at its next turn.
type Question = oneshot::Sender<()>;

impl Threads {
    /// Counts a thread in. What is returned answers for it: to be run as a task of its runtime, for as long as that runs.
    pub(super) fn joined(&self) -> impl Future<Output = ()> + use<> {
        let (asked, mut questions) = mpsc::unbounded_channel::<Question>();
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        async move {
            while let Some(question) = questions.recv().await {
                // Fails when nobody waits for it any more.
                question.send(()).ok();
            }
        }
    }

    /// From now on a thread that has ended is not waited for.
    pub(super) fn may_end(&self) {
        self.0.may_end.store(true, Ordering::Relaxed);
    }

    /// Returns when each thread has turned since the call. One that has ended before it may turns no more: then this never returns.
    pub(super) async fn turned(&self) {
        let asked = self.0.asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // All are asked before the first one is waited for.
        let answers: Vec<_> = asked
            .iter()
            .map(|asked| {
                let (question, answer) = oneshot::channel();
                // Where it fails, the answer does as well.
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
