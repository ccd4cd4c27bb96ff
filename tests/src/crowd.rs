//! Gateways under load that are killed in turn, where several requests may hold one key. Counts the requests that
//! run at the same time.

use std::collections::BTreeMap;

use fencegate_testkit::child::Signal;

use crate::{
    gateway::Gateway,
    history::{Execution, History},
    load::{AttemptResult, LoadPlan, RunningLoad},
    origin::Origin,
    policy::TestPolicy,
};

/// The executions of a load, and the responses that its clients got.
pub struct RestartLoadResult {
    pub history: History,
    pub told: Vec<AttemptResult>,
}

/// The size of a load, and the number of kills.
#[derive(Debug, Clone, Copy)]
pub struct RestartLoad {
    pub accounts: usize,
    pub clients: usize,
    /// One gateway is killed in each round.
    pub rounds: usize,
    /// The minimum number of executions in each round.
    pub requests: usize,
}

impl RestartLoad {
    /// Runs the load on two gateways that stay, and on one more in each round, which is killed in the middle of it.
    pub async fn run(self, origin: &Origin, policy: impl Fn(&str) -> TestPolicy) -> RestartLoadResult {
        let (one, two) = Gateway::start_both(&policy("stays-1"), &policy("stays-2")).await;
        let mut told = Vec::new();
        for round in 0..self.rounds {
            let victim = Gateway::start(&policy(&format!("victim-{round}"))).await;
            let plan = LoadPlan::payments(&[&victim, &one, &two], self.accounts, self.clients, usize::MAX);
            let before = origin.log().records.len();
            let load = RunningLoad::start(&format!("round-{round}"), &plan);
            let done = |part: usize| {
                move |log: &crate::origin::OriginLog| (log.records.len() >= before + part).then_some(())
            };
            origin.wait_for("half of a round", done(self.requests / 2)).await;
            victim.signal(Signal::KILL);
            origin.wait_for("the rest of a round", done(self.requests)).await;
            told.extend(load.stop().await);
        }
        RestartLoadResult { history: History::from_log(&origin.log()).with_results(&told), told }
    }
}

/// The largest number of executions of one resource at the same time, over all of its permits.
pub fn max_concurrent(history: &History) -> usize {
    let mut resources = BTreeMap::<&str, Vec<&Execution>>::new();
    for execution in &history.executions {
        let resource = execution.key.split_once('#').map_or(&*execution.key, |(resource, _)| resource);
        resources.entry(resource).or_default().push(execution);
    }
    let most = |executions: Vec<&Execution>| {
        let begun = executions.iter().map(|one| (one.began, 1));
        let ended = executions.iter().filter_map(|one| Some((one.ended?, -1)));
        let mut events: Vec<_> = begun.chain(ended).collect();
        // Sorted by time and change: an execution that ends at the moment at which another one begins does not
        // overlap it.
        events.sort_unstable();
        let counts = events.into_iter().scan(0_isize, |count, (_, change)| {
            *count += change;
            Some(*count)
        });
        counts.max().unwrap_or_default()
    };
    resources.into_values().map(most).max().map_or(0, |most| usize::try_from(most).expect("not below zero"))
}
