//! Judges the executions: tokens grow, and the answers were true. Two executions of one key overlap only if both of
//! them only read.
//!
//! A request that was told `done` was executed, one that was told `not-dispatched` was not, and none was executed
//! twice. Its own tests judge doctored histories, which must fail.
//!
//! An execution lasts from the first byte at the origin to the moment before the last byte of its answer is written.
//! This is the strictest reading. Origin, clients and judge share one monotonic clock, because they share one
//! process.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use fencegate_policies::token::FencingToken;
use fencegate_testkit::history::{KeyExecution, OrderViolation, find_order_violations};

pub use crate::origin::ATTEMPT;
use crate::{
    client::{ClientResponse, FencingOutcome},
    origin::{AccessMode, OriginLog, RequestRecord},
};

/// The executions of an origin, and the outcomes that its clients received.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub executions: Vec<Execution>,
    pub attempts: Vec<ClientOutcome>,
}

#[derive(Debug, Clone)]
pub struct Execution {
    pub key: String,
    pub access: AccessMode,
    pub token: FencingToken,
    pub gateway: String,
    pub attempt: Option<String>,
    /// The time at which the last byte of the request was sent, by the sender that waits for the end of the
    /// execution; `None` if it is not known.
    pub sent: Option<Instant>,
    pub began: Instant,
    /// `None`: the end is not known, so the execution counts as running.
    pub ended: Option<Instant>,
}

/// One request, with the outcome that its client received.
#[derive(Debug, Clone)]
pub struct ClientOutcome {
    pub id: String,
    /// `None` if the connection broke, or the response has no outcome.
    pub outcome: Option<FencingOutcome>,
}

/// The condition under which a promise holds. Executions that do not keep it are outside of the promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromiseCondition {
    /// An execution ends within this time after its request was sent, including pauses of queues, proxies and
    /// instances.
    OverAfterSending(Duration),
    /// An execution lasts at most this time, whenever its request was sent: a filter refuses late requests.
    Lasts(Duration),
}

/// The violations of a history, separated by the condition of the promise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryVerdict {
    pub broken: Vec<Violation>,
    /// Violations in which an execution takes part that did not keep the condition.
    pub outside: Vec<Violation>,
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// The second execution began before the first had ended.
    Overlap { key: String, first: FencingToken, second: FencingToken },
    /// The second execution began after the first, and its token is not newer.
    NotNewer { key: String, first: FencingToken, second: FencingToken },
    /// A client received `done`, but nothing was executed.
    DoneWithoutExecution(String),
    /// A client received `not-dispatched`, but the request was executed.
    NotDispatchedButExecuted(String),
    /// One attempt was executed more than once.
    ExecutedTwice(String),
}

impl History {
    /// Every fenced request that a comparing origin did not refuse counts as an execution.
    pub fn from_log(log: &OriginLog) -> Self {
        let fenced = log.records.iter().filter(|record| record.key().is_some() && !record.stale);
        Self { executions: fenced.map(Execution::from_record).collect(), attempts: Vec::new() }
    }

    /// Adds the outcome of the response that a client received to one attempt.
    pub fn record_answer(&mut self, id: impl Into<String>, answer: Option<&ClientResponse>) {
        self.attempts
            .push(ClientOutcome { id: id.into(), outcome: answer.and_then(ClientResponse::outcome) });
    }

    /// The history of the keys with this prefix.
    #[must_use]
    pub fn of_keys(&self, prefix: &str) -> Self {
        let executions = self.executions.iter().filter(|execution| execution.key.starts_with(prefix));
        Self { executions: executions.cloned().collect(), attempts: Vec::new() }
    }

    /// The number of times that a key went from one gateway to another. A history without handovers shows little.
    pub fn hand_overs(&self) -> usize {
        let pairs = |line: Vec<&Execution>| line.windows(2).filter(|p| p[0].gateway != p[1].gateway).count();
        self.by_key().into_values().map(pairs).sum()
    }

    /// The number of tenures that had executions. It measures a run behind a guard, where the gateway of an
    /// execution is not known.
    pub fn tenures(&self) -> usize {
        let tenures = self.executions.iter().map(|execution| (&execution.key, execution.token.number()));
        tenures.collect::<BTreeSet<_>>().len()
    }

    /// Asserts that there are no violations.
    ///
    /// # Panics
    /// With the violations, if there are any.
    pub fn assert_holds(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "{} violations: {violations:#?}", violations.len());
    }

    pub fn violations(&self) -> Vec<Violation> {
        let serial = self.by_key().into_iter().flat_map(|(key, line)| order_violations(key, &line));
        serial.chain(self.outcome_violations()).collect()
    }

    /// Separates the violations by a condition: those that need an execution which did not keep it are outside of
    /// the promise. These may be overlaps, wrong orders of tokens and double executions. The responses to clients
    /// have to be true in any case.
    pub fn judge(&self, condition: PromiseCondition) -> HistoryVerdict {
        let kept = |execution: &&Execution| condition.is_kept_by(execution);
        let executions = self.executions.iter().filter(kept).cloned().collect();
        let inside = Self { executions, attempts: Vec::new() };
        let serial = |history: &Self| -> Vec<Violation> {
            history.by_key().into_iter().flat_map(|(key, line)| order_violations(key, &line)).collect()
        };
        let mut broken = serial(&inside);
        let all = serial(self).into_iter();
        let mut outside: Vec<_> = all.filter(|violation| !broken.contains(violation)).collect();
        for violation in self.outcome_violations() {
            let excused = matches!(&violation, Violation::ExecutedTwice(id)
                if self.executions.iter().any(|one| one.attempt.as_ref() == Some(id) && !kept(&one)));
            if excused { outside.push(violation) } else { broken.push(violation) }
        }
        HistoryVerdict { broken, outside }
    }

    /// The executions of each key, in the order of their beginnings.
    fn by_key(&self) -> BTreeMap<&str, Vec<&Execution>> {
        let mut keys = BTreeMap::<&str, Vec<&Execution>>::new();
        for execution in &self.executions {
            keys.entry(&execution.key).or_default().push(execution);
        }
        keys.values_mut().for_each(|line| line.sort_by_key(|execution| execution.began));
        keys
    }

    fn outcome_violations(&self) -> Vec<Violation> {
        let mut times = BTreeMap::<&str, usize>::new();
        for id in self.executions.iter().filter_map(|execution| execution.attempt.as_deref()) {
            *times.entry(id).or_default() += 1;
        }
        let mut broken = Vec::new();
        for ClientOutcome { id, outcome } in &self.attempts {
            match (outcome, times.get(id.as_str()).copied().unwrap_or(0)) {
                (Some(FencingOutcome::Done), 0) => broken.push(Violation::DoneWithoutExecution(id.clone())),
                (Some(FencingOutcome::NotDispatched), 1..) => {
                    broken.push(Violation::NotDispatchedButExecuted(id.clone()));
                }
                (_, 2..) => broken.push(Violation::ExecutedTwice(id.clone())),
                _ => {}
            }
        }
        broken
    }
}

impl Execution {
    /// The execution as the listener saw it: from the first byte of the request to the last byte of the response.
    pub fn from_record(record: &RequestRecord) -> Self {
        Self {
            key: record.key().unwrap_or_default().to_owned(),
            access: record.access(),
            token: record.expect_token(),
            gateway: record.gateway.clone(),
            attempt: record.request.field(ATTEMPT).map(str::to_owned),
            sent: None,
            began: record.arrived,
            ended: record.ended,
        }
    }
}

impl PromiseCondition {
    fn is_kept_by(self, execution: &Execution) -> bool {
        let (since, most) = match self {
            // If the time of sending is not known, take the beginning of the execution. It is later, so the
            // condition excuses less.
            Self::OverAfterSending(wait) => (execution.sent.unwrap_or(execution.began), wait),
            Self::Lasts(length) => (execution.began, length),
        };
        execution.ended.is_some_and(|ended| ended <= since + most)
    }
}

/// The violations among the executions of one key.
fn order_violations(key: &str, line: &[&Execution]) -> impl Iterator<Item = Violation> + use<> {
    let executions = line.iter().map(|execution| KeyExecution {
        token: execution.token,
        is_shared: execution.access == AccessMode::Shared,
        began: execution.began,
        ended: execution.ended,
    });
    let key = key.to_owned();
    find_order_violations(executions).into_iter().map(move |violation| match violation {
        OrderViolation::Overlap { first, second } => Violation::Overlap { key: key.clone(), first, second },
        OrderViolation::NotNewer { first, second } => Violation::NotNewer { key: key.clone(), first, second },
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn token(epoch: u64) -> FencingToken {
        FencingToken::new(epoch, 0, 1).expect("small epoch")
    }

    fn execution(start: Instant, epoch: u64, began: u64, ended: Option<u64>) -> Execution {
        let at = |ms| start + Duration::from_millis(ms);
        Execution {
            key: "a".into(),
            access: AccessMode::Exclusive,
            token: token(epoch),
            gateway: format!("gw-{}", epoch % 2),
            attempt: Some(epoch.to_string()),
            sent: None,
            began: at(began),
            ended: ended.map(at),
        }
    }

    /// Three executions in succession, each reported to its client as done.
    fn good_history() -> History {
        let start = Instant::now();
        let executions = vec![
            execution(start, 1, 0, Some(10)),
            execution(start, 2, 10, Some(20)),
            execution(start, 3, 25, Some(30)),
        ];
        let told = |id: u64| ClientOutcome { id: id.to_string(), outcome: Some(FencingOutcome::Done) };
        History { executions, attempts: (1..=3).map(told).collect() }
    }

    #[test]
    fn clean_history_has_no_violations() {
        good_history().assert_holds();
        assert_eq!(good_history().hand_overs(), 2);
    }

    /// Each single change of a correct history is reported as exactly the violations that it causes.
    #[test]
    fn doctored_history_is_rejected() {
        type HistoryEdit = fn(&mut History);
        let overlap = |first, second| Violation::Overlap {
            key: "a".into(),
            first: token(first),
            second: token(second),
        };
        let not_newer = |first, second| Violation::NotNewer {
            key: "a".into(),
            first: token(first),
            second: token(second),
        };
        let unexecuted = |id: &str| Violation::DoneWithoutExecution(id.into());
        let cases: [(&str, HistoryEdit, Vec<Violation>); 8] = [
            ("end moved", |h| h.executions[0].ended = h.executions[1].ended, vec![overlap(1, 2)]),
            (
                "long one over two",
                |h| h.executions[0].ended = h.executions[2].ended,
                vec![overlap(1, 2), overlap(1, 3)],
            ),
            ("end lost", |h| h.executions[1].ended = None, vec![overlap(2, 3)]),
            ("token repeated", |h| h.executions[2].token = token(2), vec![not_newer(2, 2)]),
            ("token of the past", |h| h.executions[1].token = token(0), vec![not_newer(1, 0)]),
            ("never executed", |h| h.attempts[0].id = "9".into(), vec![unexecuted("9")]),
            (
                "told wrongly",
                |h| h.attempts[0].outcome = Some(FencingOutcome::NotDispatched),
                vec![Violation::NotDispatchedButExecuted("1".into())],
            ),
            (
                "sent twice",
                |h| h.executions[1].attempt = Some("1".into()),
                vec![Violation::ExecutedTwice("1".into()), unexecuted("2")],
            ),
        ];
        for (name, doctor, expected) in cases {
            let mut history = good_history();
            doctor(&mut history);
            assert_eq!(history.violations(), expected, "{name}");
        }
    }

    /// An execution that begins late after it was sent is outside of the promise without a filter, and a violation
    /// with one.
    #[test]
    fn late_start_is_judged_by_condition() {
        let ms = Duration::from_millis;
        let mut history = good_history();
        // The first request was sent at the beginning, and is executed late: during the third one.
        let sent = history.executions[0].began;
        history.executions[0].sent = Some(sent);
        history.executions[0].began = sent + ms(27);
        history.executions[0].ended = Some(sent + ms(32));
        let violations = history.violations();
        assert_eq!(violations.len(), 2, "{violations:?}");
        let outside = HistoryVerdict { broken: Vec::new(), outside: violations.clone() };
        assert_eq!(history.judge(PromiseCondition::OverAfterSending(ms(20))), outside);
        let broken = HistoryVerdict { broken: violations, outside: Vec::new() };
        assert_eq!(history.judge(PromiseCondition::OverAfterSending(ms(32))), broken);
        assert_eq!(history.judge(PromiseCondition::Lasts(ms(10))), broken);
        // A paused execution that took longer than the filter's condition allows is outside of the promise.
        assert_eq!(history.judge(PromiseCondition::Lasts(ms(4))).broken, Vec::new());
    }

    /// A double execution is outside of the promise if one of the two was late. An untrue response is always a
    /// violation.
    #[test]
    fn late_second_execution_is_outside_promise() {
        let ms = Duration::from_millis;
        let mut history = good_history();
        history.executions[1].attempt = Some("1".into());
        history.executions[0].sent = Some(history.executions[0].began);
        let twice = Violation::ExecutedTwice("1".into());
        let untrue = Violation::DoneWithoutExecution("2".into());
        let judged = |wait| history.judge(PromiseCondition::OverAfterSending(ms(wait)));
        assert_eq!(judged(9), HistoryVerdict { broken: vec![untrue.clone()], outside: vec![twice.clone()] });
        assert_eq!(judged(10), HistoryVerdict { broken: vec![twice, untrue], outside: Vec::new() });
    }

    fn reader(start: Instant, epoch: u64, began: u64, ended: u64) -> Execution {
        Execution { access: AccessMode::Shared, ..execution(start, epoch, began, Some(ended)) }
    }

    /// Readers may overlap in any order of their tokens. A writer must not overlap a reader, and each must have a
    /// newer token than the other before it.
    #[test]
    fn readers_overlap_only_readers() {
        let start = Instant::now();
        let of = |executions| History { executions, attempts: Vec::new() }.violations();
        let readers = vec![reader(start, 2, 0, 10), reader(start, 1, 5, 15), reader(start, 2, 6, 8)];
        assert_eq!(of(readers.clone()), []);

        let overlap = |first, second| Violation::Overlap {
            key: "a".into(),
            first: token(first),
            second: token(second),
        };
        let with = |one| of(readers.iter().cloned().chain([one]).collect());
        assert_eq!(with(execution(start, 3, 12, Some(20))), [overlap(1, 3)]);
        assert_eq!(with(execution(start, 3, 15, Some(20))), []);
        let stale = Violation::NotNewer { key: "a".into(), first: token(2), second: token(2) };
        assert_eq!(with(execution(start, 2, 15, Some(20))), std::slice::from_ref(&stale));

        let writer = execution(start, 2, 0, Some(10));
        assert_eq!(of(vec![writer.clone(), reader(start, 3, 9, 12)]), [overlap(2, 3)]);
        assert_eq!(of(vec![writer, reader(start, 2, 11, 12)]), [stale]);
    }
}
