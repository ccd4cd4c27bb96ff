//! Clients that want their payments done, and have little patience.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fencegate_tests::{
    client::{Answer, Outcome},
    patience::{PATIENCE, patiently},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    operation::{ATTEMPTS, Operation, operations},
    weather::Storm,
};

const CLIENTS: usize = 40;

/// How one attempt ended, as its client saw it.
pub(super) struct Told {
    pub(super) operation: Operation,
    pub(super) attempt: usize,
    pub(super) end: End,
}

pub(super) enum End {
    Answer(Box<Answer>),
    /// The client hung up.
    Impatient,
    /// Nobody was there, or the connection broke.
    Broken,
}

pub(super) struct Client {
    storm: Arc<Storm>,
    number: usize,
}

impl Client {
    pub(super) fn all(storm: &Arc<Storm>) -> JoinSet<Vec<Told>> {
        let client = |number| Self { storm: storm.clone(), number };
        (0..CLIENTS).map(|number| client(number).works()).collect()
    }

    async fn works(self) -> Vec<Told> {
        let mut told = Vec::new();
        for operation in (self.number..operations()).step_by(CLIENTS).map(Operation) {
            told.extend(self.insists(operation).await);
            self.storm.over.send_modify(|over| *over += 1);
        }
        told
    }

    /// Asks again and again, each time at the other gateway. Sometimes the client also repeats an operation with a
    /// final answer.
    async fn insists(&self, operation: Operation) -> Vec<Told> {
        let dice = &self.storm.dice;
        let mut door = dice.index(2);
        let mut told: Vec<Told> = Vec::new();
        for attempt in 0..ATTEMPTS - 1 {
            let patience =
                if dice.below(5) == 0 { Duration::from_millis(1 + dice.below(30)) } else { PATIENCE };
            let end = ask(&self.storm, operation, attempt, door, patience).await;
            let over = end.is_final() && dice.below(3) > 0;
            let pause = if end.is_final() { Duration::ZERO } else { Duration::from_millis(dice.below(400)) };
            told.push(Told { operation, attempt, end });
            if over {
                break;
            }
            sleep(pause).await;
            door = 1 - door;
        }
        told
    }
}

/// Asks for the last time, at the first gateway, for as long as nothing is dispatched.
pub(super) async fn last(storm: &Storm, operation: Operation) -> Told {
    let attempt = ATTEMPTS - 1;
    let asked = async {
        loop {
            let end = ask(storm, operation, attempt, 0, PATIENCE).await;
            match &end {
                End::Answer(answer) if answer.outcome() == Some(Outcome::NotDispatched) => {}
                _ => return Told { operation, attempt, end },
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    patiently("an answer in fair weather", asked, || operation).await
}

async fn ask(storm: &Storm, operation: Operation, attempt: usize, door: usize, patience: Duration) -> End {
    let address: SocketAddr = *storm.doors[door].lock().expect("no thread panics here");
    match timeout(patience, operation.ask(attempt).to(address)).await {
        Err(_) if patience == PATIENCE => panic!("no answer at all to {operation:?}"),
        Err(_) => End::Impatient,
        Ok(Err(_)) => End::Broken,
        Ok(Ok(answer)) => End::Answer(Box::new(answer)),
    }
}

impl End {
    /// True if the client need not ask again.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Answer(answer) => {
                matches!(answer.outcome(), Some(Outcome::Done | Outcome::Replayed)) || answer.status == 409
            }
            Self::Impatient | Self::Broken => false,
        }
    }
}
