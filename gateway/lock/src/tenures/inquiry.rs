//! What an operator asks ZooKeeper through a running gateway, or has it do: who stands in line for a key, which gateways
//! are there, what nobody knows the outcome of.

mod answers;

use std::time::Duration;

use fencegate_policies::{key::ResourceKey, plan::Mode};
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, time::timeout};

pub use self::answers::{Turns, answer};
use super::{desk::Work, keeper::Keeper};
use crate::{
    once::open::Open,
    session::{link::Fault, live::View, proof::Proof},
};

/// Answered on the thread of the sessions.
pub enum Question {
    Line { key: ResourceKey, answer: Told<Vec<Standing>> },
    Break { key: ResourceKey, holder: String, answer: Told<Broken> },
    Members { answer: Told<Vec<Registered>> },
    Operations { answer: Told<Vec<Open>> },
    Resolve { resolution: Resolution, answer: Told<Resolved> },
}

type Told<T> = oneshot::Sender<Result<T, Untold>>;

/// Why nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untold {
    #[error("no ZooKeeper session")]
    Away,
    #[error("ZooKeeper did not answer within {0:?}")]
    Late(Duration),
    /// Whoever was asked has ended: the process stops.
    #[error("nobody answers any more: the gateway is stopping")]
    Ended,
    #[error("ask ZooKeeper: {0}")]
    Fault(String),
    /// Only of what changes something.
    #[error("the answer of ZooKeeper was lost: it may have been done; look again")]
    Unknown,
}

/// One that stands in line for a key, in any gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Name of its node, which names it and no other.
    pub node: String,
    pub mode: Mode,
    /// Whose it is; none where no member of that session is registered.
    pub gateway: Option<String>,
    /// 16 hex digits.
    pub session: String,
    /// `Fencing-Number` of what it sends.
    pub number: Option<u64>,
    pub holds: bool,
    /// The node that it waits for.
    pub behind: Option<String>,
}

/// What came of breaking a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The node is gone by our hand.
    Gone,
    /// It was not there, or did not hold.
    NotHolding,
    /// The answer was lost: it may be gone.
    Unknown,
}

/// A gateway as it is registered in ZooKeeper, by one of its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    pub gateway: String,
    /// 16 hex digits.
    pub session: String,
    /// Absent where its node cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Fingerprint of the plan: gateways with another one may use other locks for the same request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Where other gateways reach it, where they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

/// What an operator says of an operation.
#[derive(Debug, Clone)]
pub struct Resolution {
    pub reference: String,
    pub done: bool,
    /// Also while it may be running.
    pub force: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    Written,
    NotFound(String),
    MayRun(String),
}

/// One of the gateway's sessions, as it is seen without asking anybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub number: usize,
    pub connected: bool,
    /// 16 hex digits; none without a session.
    pub id: Option<String>,
    /// For so long nothing that is sent under it can be too late.
    pub proven_for_ms: u64,
    /// Why there is no session.
    pub away: Option<String>,
}

/// Operators can wait; a page that many of them look at cannot.
const PATIENCE: Duration = Duration::from_secs(3);

/// Nodes and operations that are told at most.
const MOST: usize = 1000;

impl Keeper {
    /// Who stands in line for a key, in the order in which they get it.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing; this holds for all questions but the two that change something.
    pub async fn line_of(&self, key: &ResourceKey) -> Result<Vec<Standing>, Untold> {
        self.ask(key, |answer| Question::Line { key: key.clone(), answer }).await
    }

    /// Removes a holder's lock node. Its holder learns of it by a watch, so for a moment both it and the next one may
    /// write: only who compares tokens tells them apart.
    ///
    /// # Cancellation
    /// It may have been removed all the same.
    pub async fn break_lock(&self, key: &ResourceKey, holder: String) -> Result<Broken, Untold> {
        self.ask(key, |answer| Question::Break { key: key.clone(), holder, answer })
            .await
            .map_err(Untold::of_a_change)
    }

    pub async fn members(&self) -> Result<Vec<Registered>, Untold> {
        self.ask_any(|answer| Question::Members { answer }).await
    }

    /// Operations of which nobody knows what came of them.
    pub async fn operations(&self) -> Result<Vec<Open>, Untold> {
        self.ask_any(|answer| Question::Operations { answer }).await
    }

    /// # Cancellation
    /// It may have been written down all the same.
    pub async fn resolve(&self, resolution: Resolution) -> Result<Resolved, Untold> {
        self.ask_any(|answer| Question::Resolve { resolution, answer }).await.map_err(Untold::of_a_change)
    }

    pub fn sessions(&self) -> Vec<Session> {
        let now = self.clock.now();
        let proven = |proof: &Proof| proof.deadline().since(now).as_millis().try_into().unwrap_or(u64::MAX);
        let session = |(number, view): (usize, View)| match view {
            View::Away(why) | View::Unmade(why) | View::RolledBack(why) => {
                Session { number, connected: false, id: None, proven_for_ms: 0, away: Some(why.to_string()) }
            }
            View::Live { connected, proof } => Session {
                number,
                connected,
                id: Some(format!("{:016x}", proof.session())),
                proven_for_ms: proven(&proof),
                away: None,
            },
        };
        self.desks.iter().map(|line| line.view.borrow().clone()).enumerate().map(session).collect()
    }

    async fn ask<T>(
        &self,
        key: &ResourceKey,
        question: impl FnOnce(Told<T>) -> Question,
    ) -> Result<T, Untold> {
        let (told, answer) = oneshot::channel();
        self.line(key).work.send(Work::Ask(question(told))).map_err(|_| Untold::Away)?;
        told_in_time(answer).await
    }

    /// Through a session that is ready, if there is one.
    async fn ask_any<T>(&self, question: impl FnOnce(Told<T>) -> Question) -> Result<T, Untold> {
        let ready = self.desks.iter().find(|line| line.view.borrow().is_ready(&self.clock));
        let line = ready.or(self.desks.first()).expect("there is at least one session");
        let (told, answer) = oneshot::channel();
        line.work.send(Work::Ask(question(told))).map_err(|_| Untold::Away)?;
        told_in_time(answer).await
    }
}

async fn told_in_time<T>(answer: oneshot::Receiver<Result<T, Untold>>) -> Result<T, Untold> {
    match timeout(PATIENCE, answer).await {
        Ok(answer) => answer.unwrap_or(Err(Untold::Ended)),
        Err(_elapsed) => Err(Untold::Late(PATIENCE)),
    }
}

impl Untold {
    /// Whoever ended on the way may have done it before.
    fn of_a_change(self) -> Self {
        if self == Self::Ended { Self::Unknown } else { self }
    }
}

impl From<Fault> for Untold {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Over => Self::Away,
            other => Self::Fault(other.to_string()),
        }
    }
}
