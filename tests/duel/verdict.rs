//! Judges a history: counts the violations that a lock should have prevented.

use fencegate_testkit::history::{KeyExecution, OrderViolation, find_order_violations};

use crate::account::AccountHistory;

/// The number of executions, and of each kind of violation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ViolationCounts {
    pub(crate) executions: usize,
    /// Executions that began while another one was running.
    pub(crate) overlaps: usize,
    /// Executions whose effect is lost from the balance.
    pub(crate) lost: usize,
    /// Writes of a former holder after a newer holder had begun.
    pub(crate) stale: usize,
}

impl ViolationCounts {
    /// Counts the violations in a history.
    ///
    /// # Panics
    /// If an execution is still running.
    pub(crate) fn judge(book: &AccountHistory) -> Self {
        let mut stale = 0;
        let mut history = Vec::new();
        for execution in &book.executions {
            let ended = execution.ended.expect("all have ended");
            history.push(KeyExecution {
                token: execution.since,
                is_shared: false,
                began: execution.began,
                ended: Some(ended),
            });
            let newer =
                book.executions.iter().any(|other| other.since > execution.since && other.began < ended);
            stale += usize::from(newer);
        }
        let broken = find_order_violations(history).into_iter();
        let overlaps = broken.filter(|violation| matches!(violation, OrderViolation::Overlap { .. })).count();
        let executions = book.executions.len();
        let kept = usize::try_from(book.balance).expect("a small balance");
        Self { executions, overlaps, lost: executions - kept, stale }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::account::Execution;

    /// A history of executions, each given by its holder's number, its beginning and its end in milliseconds, with
    /// the balance that the service would have.
    fn book(executions: &[(u128, u64, u64)]) -> AccountHistory {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut writes = Vec::new();
        for &(_, began, ended) in executions {
            let read = writes.iter().filter(|(at, _)| *at <= began).max_by_key(|(at, _)| *at);
            writes.push((ended, read.map_or(0, |(_, balance)| *balance) + 1));
        }
        let balance = writes.iter().max_by_key(|(at, _)| *at).map_or(0, |(_, balance)| *balance);
        let execution = |&(since, began, ended): &(u128, u64, u64)| Execution {
            holder: since.to_string(),
            since,
            began: at(began),
            ended: Some(at(ended)),
            work: Duration::from_millis(ended - began),
        };
        AccountHistory {
            balance,
            executions: executions.iter().map(execution).collect(),
            refused: Vec::new(),
        }
    }

    fn violation_counts(executions: &[(u128, u64, u64)]) -> (usize, usize, usize) {
        let ViolationCounts { overlaps, lost, stale, .. } = ViolationCounts::judge(&book(executions));
        (overlaps, lost, stale)
    }

    #[test]
    fn sequential_executions_are_clean() {
        assert_eq!(violation_counts(&[(1, 0, 10), (2, 10, 20), (3, 25, 30)]), (0, 0, 0));
    }

    /// Overlaps, lost updates and stale writes are counted, each in its schedule.
    #[test]
    fn every_violation_kind_is_counted() {
        // A former holder writes late, while no other execution runs.
        assert_eq!(violation_counts(&[(2, 0, 10), (1, 20, 30), (3, 40, 50)]), (0, 0, 1));
        // A former holder writes late, while an execution of a newer holder runs.
        assert_eq!(violation_counts(&[(1, 0, 5), (3, 10, 20), (2, 15, 25)]), (1, 1, 1));
        // Newer holders begin while a former one still runs, as when a lock ended with its connection.
        assert_eq!(violation_counts(&[(1, 0, 30), (2, 5, 10), (3, 12, 17)]), (2, 2, 1));
        // The newest holder executes twice: its second write is not late.
        assert_eq!(violation_counts(&[(2, 0, 10), (2, 20, 30)]), (0, 0, 0));
    }

    /// A history with an execution that has not ended is not judged: that panics.
    #[test]
    #[should_panic(expected = "all have ended")]
    fn unfinished_execution_is_not_judged() {
        let mut open = book(&[(1, 0, 10)]);
        open.executions[0].ended = None;
        ViolationCounts::judge(&open);
    }
}
