//! Clients that repeat each payment, at the other gateway, until it has a final response, and wait only a short time
//! for one.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fencegate_testkit::wait::{PATIENCE, wait_until};
use fencegate_tests::client::{ClientResponse, FencingOutcome};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    operation::{ATTEMPTS, OperationNumber, operations},
    weather::StormState,
};

const CLIENTS: usize = 40;

/// The end of one attempt, as its client saw it.
pub(super) struct AttemptResult {
    pub(super) operation: OperationNumber,
    pub(super) attempt: usize,
    pub(super) end: ClientAttemptEnd,
}

pub(super) enum ClientAttemptEnd {
    Answer(Box<ClientResponse>),
    /// The client hung up.
    Impatient,
    /// No process answered, or the connection broke.
    Broken,
}

pub(super) struct StormClient {
    storm: Arc<StormState>,
    number: usize,
}

impl StormClient {
    pub(super) fn spawn_all(storm: &Arc<StormState>) -> JoinSet<Vec<AttemptResult>> {
        let client = |number| Self { storm: storm.clone(), number };
        (0..CLIENTS).map(|number| client(number).run_operations()).collect()
    }

    async fn run_operations(self) -> Vec<AttemptResult> {
        let mut told = Vec::new();
        for operation in (self.number..operations()).step_by(CLIENTS).map(OperationNumber) {
            told.extend(self.repeat_operation(operation).await);
            self.storm.over.send_modify(|over| *over += 1);
        }
        told
    }

    /// Repeats an operation, each time at the other gateway, until it has a final answer. Sometimes the client also
    /// repeats an operation with a final answer.
    async fn repeat_operation(&self, operation: OperationNumber) -> Vec<AttemptResult> {
        let dice = &self.storm.dice;
        let mut door = dice.index(2);
        let mut told: Vec<AttemptResult> = Vec::new();
        for attempt in 0..ATTEMPTS - 1 {
            let patience =
                if dice.below(5) == 0 { Duration::from_millis(1 + dice.below(30)) } else { PATIENCE };
            let end = ask(&self.storm, operation, attempt, door, patience).await;
            let over = end.is_final() && dice.below(3) > 0;
            let pause = if end.is_final() { Duration::ZERO } else { Duration::from_millis(dice.below(400)) };
            told.push(AttemptResult { operation, attempt, end });
            if over {
                break;
            }
            sleep(pause).await;
            door = 1 - door;
        }
        told
    }
}

/// Sends the last attempt to the first gateway, and repeats it as long as it is not dispatched.
pub(super) async fn send_last_attempt(storm: &StormState, operation: OperationNumber) -> AttemptResult {
    let attempt = ATTEMPTS - 1;
    let asked = async {
        loop {
            let end = ask(storm, operation, attempt, 0, PATIENCE).await;
            match &end {
                ClientAttemptEnd::Answer(answer)
                    if answer.outcome() == Some(FencingOutcome::NotDispatched) => {}
                _ => return AttemptResult { operation, attempt, end },
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("an answer in fair weather", asked, || operation).await
}

async fn ask(
    storm: &StormState,
    operation: OperationNumber,
    attempt: usize,
    door: usize,
    patience: Duration,
) -> ClientAttemptEnd {
    let address: SocketAddr = *storm.doors[door].lock().expect("no thread panics here");
    match timeout(patience, operation.attempt_request(attempt).send_to(address)).await {
        Err(_) if patience == PATIENCE => panic!("no answer at all to {operation:?}"),
        Err(_) => ClientAttemptEnd::Impatient,
        Ok(Err(_)) => ClientAttemptEnd::Broken,
        Ok(Ok(answer)) => ClientAttemptEnd::Answer(Box::new(answer)),
    }
}

impl ClientAttemptEnd {
    /// True if the client need not repeat its request.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Answer(answer) => {
                matches!(answer.outcome(), Some(FencingOutcome::Done | FencingOutcome::Replayed))
                    || answer.status == 409
            }
            Self::Impatient | Self::Broken => false,
        }
    }
}
