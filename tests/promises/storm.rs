//! Clients repeat requests that got no response, through gateways and a guard that are killed, before a service that
//! breaks off, fails and hangs: no operation is executed twice, and no response is untrue.
//!
//! There are 400 operations, and 2,000 among the faults. The sums of the service are exact.

mod clients;
mod judge;
mod operation;
mod weather;

use std::{
    env,
    sync::{Arc, Mutex},
};

use fencegate_tests::{guarded::GuardedSite, memory::SeededRng};
use tokio::sync::watch;

use self::{
    clients::StormClient,
    judge::StormJudge,
    operation::{OperationNumber, operations},
    weather::{StormFaults, StormState},
};

/// The seed of the random choices, which does not repeat the races. A failing run names its seed.
pub(super) fn seed() -> u64 {
    let given = env::var("FENCEGATE_SEED").ok().map(|text| text.parse().expect("a number"));
    let seed = given.unwrap_or_else(|| {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).expect("the kernel has randomness");
        u64::from_ne_bytes(bytes)
    });
    println!("FENCEGATE_SEED={seed}");
    seed
}

/// Repeats through failing gateways and a failing guard execute no operation twice, and no client gets an untrue
/// answer.
#[tokio::test]
async fn repeats_execute_once_in_storm() {
    let dice = SeededRng::new(seed());
    let guarded = GuardedSite::fresh().await;
    for operation in (0..operations()).map(OperationNumber) {
        guarded.site.origin.script(&operation.target(), operation.planned_answers(&dice));
    }
    let mut weather = StormFaults::begin(&guarded, dice.next()).await;
    let storm =
        Arc::new(StormState { dice, doors: weather.doors().map(Mutex::new), over: watch::Sender::new(0) });

    let mut clients = StormClient::spawn_all(&storm);
    weather.run_faults(&storm).await;
    let mut judge = StormJudge::default();
    while let Some(told) = clients.join_next().await {
        told.expect("no panic").into_iter().for_each(|told| judge.add_result(told));
    }
    weather.wait_calm().await;
    // Operations without a final answer are requested once more.
    for operation in judge.undecided() {
        judge.add_result(clients::send_last_attempt(&storm, operation).await);
    }
    judge.judge(&guarded.site.origin.log(), &weather);
}
