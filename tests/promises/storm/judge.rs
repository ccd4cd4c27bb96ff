//! Compares the responses that clients got with the operations that were executed.

use std::collections::BTreeMap;

use fencegate_tests::{
    client::{ClientResponse, FencingOutcome},
    effort::effort,
    history::{ATTEMPT, History},
    origin::{OriginLog, RequestRecord},
};

use super::{
    clients::{AttemptResult, ClientAttemptEnd},
    operation::{OperationNumber, operations},
    weather::StormFaults,
};

#[derive(Default)]
pub(super) struct StormJudge {
    told: BTreeMap<usize, Vec<AttemptResult>>,
}

/// Counts of each kind of event. A storm without such events proves little.
#[derive(Debug, Default)]
struct StormEventCounts {
    replayed: usize,
    unknown: usize,
    recorded_unknown: usize,
    not_dispatched: usize,
    hung_up: usize,
    broken: usize,
}

impl StormJudge {
    pub(super) fn add_result(&mut self, told: AttemptResult) {
        self.told.entry(told.operation.0).or_default().push(told);
    }

    /// Operations without a final answer to any client.
    pub(super) fn undecided(&self) -> Vec<OperationNumber> {
        let undecided = self.told.iter().filter(|(_, all)| !all.iter().any(|told| told.end.is_final()));
        undecided.map(|(number, _)| OperationNumber(*number)).collect()
    }

    pub(super) fn judge(&self, log: &OriginLog, weather: &StormFaults) {
        let mut executions = BTreeMap::<&str, Vec<&RequestRecord>>::new();
        for record in log.records.iter().filter(|record| record.whole.is_some()) {
            executions.entry(record.path()).or_default().push(record);
        }
        let mut seen = StormEventCounts::default();
        let mut sum = 0;
        let mut known = 0;
        let mut open = 0;
        for number in 0..operations() {
            let operation = OperationNumber(number);
            let target = operation.target();
            let told = &self.told[&number];
            let executed = executions.remove(&*target).unwrap_or_default();
            assert!(executed.len() <= 1, "{operation:?} was executed twice: {executed:#?}");
            told.iter().for_each(|told| seen.count(&told.end));
            let done = told.iter().any(|told| is_truthful(told, executed.first().copied()));
            sum += executed.iter().map(|record| cents(record)).sum::<u64>();
            match (done, executed.len()) {
                (true, _) => known += operation.cents(),
                (false, 1) => open += operation.cents(),
                (false, _) => {}
            }
        }
        assert!(executions.is_empty(), "nobody asked for {executions:?}");
        assert_eq!(sum, known + open, "what was paid is what clients know of and what is told as unknown");
        self.check_history(log);
        println!("{seen:?}, {known} cents known, {open} unknown, {} executions", log.records.len());
        seen.assert_exercised(log, weather);
    }

    /// Asserts that executions of an account never overlap, and that no attempt was answered with a wrong outcome.
    fn check_history(&self, log: &OriginLog) {
        let mut history = History::from_log(log);
        for told in self.told.values().flatten() {
            let answer = match &told.end {
                ClientAttemptEnd::Answer(answer) => Some(&**answer),
                ClientAttemptEnd::Impatient | ClientAttemptEnd::Broken => None,
            };
            history.record_answer(told.operation.attempt(told.attempt), answer);
        }
        history.assert_holds();
        let mut tenures: Vec<u64> =
            history.executions.iter().map(|execution| execution.token.number()).collect();
        tenures.sort_unstable();
        tenures.dedup();
        assert!(tenures.len() >= operations() / 5, "not exercised: {} tenures", tenures.len());
    }
}

fn cents(record: &RequestRecord) -> u64 {
    let text = std::str::from_utf8(&record.request.body).expect("a number");
    text.parse().expect("a number")
}

/// Checks the answer to one attempt. True if the answer says that the operation is done.
///
/// # Panics
/// Panics if the answer is not true.
fn is_truthful(told: &AttemptResult, executed: Option<&RequestRecord>) -> bool {
    let ClientAttemptEnd::Answer(answer) = &told.end else { return false };
    let at = || format!("{:?}, attempt {}: {answer:?}; executed: {executed:?}", told.operation, told.attempt);
    let outcome = answer.outcome().unwrap_or_else(|| panic!("says nothing: {}", at()));
    let receipt = format!("receipt 1 of operation {}", told.operation.0);
    match outcome {
        FencingOutcome::Done => {
            let own = executed.and_then(|record| record.request.field(ATTEMPT));
            assert_eq!(own, Some(&*told.operation.attempt(told.attempt)), "{}", at());
            assert!(answer.body == receipt && matches!(answer.status, 200 | 402 | 503), "{}", at());
        }
        FencingOutcome::Replayed => {
            assert!(executed.is_some(), "{}", at());
            assert!(answer.body == receipt && matches!(answer.status, 200 | 402), "{}", at());
        }
        FencingOutcome::NotDispatched => {
            assert!(matches!(answer.status, 423 | 429 | 502 | 503), "{}", at());
            assert_ne!(answer.reason(), "outcome-unknown", "{}", at());
        }
        FencingOutcome::Unknown => assert!(matches!(answer.status, 409 | 502 | 504), "{}", at()),
    }
    matches!(outcome, FencingOutcome::Done | FencingOutcome::Replayed)
}

impl StormEventCounts {
    fn count(&mut self, end: &ClientAttemptEnd) {
        *match end {
            ClientAttemptEnd::Impatient => &mut self.hung_up,
            ClientAttemptEnd::Broken => &mut self.broken,
            ClientAttemptEnd::Answer(answer) => match answer.outcome() {
                Some(FencingOutcome::Replayed) => &mut self.replayed,
                Some(FencingOutcome::NotDispatched) => &mut self.not_dispatched,
                Some(FencingOutcome::Unknown) if is_recorded(answer) => &mut self.recorded_unknown,
                Some(FencingOutcome::Unknown) => &mut self.unknown,
                Some(FencingOutcome::Done) | None => return,
            },
        } += 1;
    }

    fn assert_exercised(&self, log: &OriginLog, weather: &StormFaults) {
        let whole = log.records.iter().filter(|record| record.whole.is_some()).count();
        let abandoned = log.records.iter().filter(|record| record.abandoned.is_some()).count();
        for (what, count, least) in [
            ("replays", self.replayed, effort(50, 200)),
            ("unknown outcomes", self.unknown, effort(20, 50)),
            ("repeats of unknown outcomes", self.recorded_unknown, effort(20, 50)),
            ("refusals", self.not_dispatched, effort(20, 50)),
            ("hang-ups", self.hung_up, effort(30, 100)),
            ("broken connections", self.broken, 3),
            ("executions", whole, operations() * 9 / 10),
            ("executions whose guard went away", abandoned, effort(3, 5)),
            ("killed gateways", weather.gateways_killed, 4),
            ("killed guards", weather.guards_killed, 4),
        ] {
            assert!(count >= least, "not exercised: {count} {what}; {self:?}");
        }
    }
}

fn is_recorded(answer: &ClientResponse) -> bool {
    answer.status == 409 && answer.reason() == "outcome-unknown"
}
