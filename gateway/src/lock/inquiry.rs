//! What an operator asks ZooKeeper through a running gateway, or has it do: who stands in line for a key, which gateways
//! are there, what nobody knows the outcome of.

use std::{rc::Rc, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::Mode};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, time::timeout};

use super::{
    desk::Work,
    grant,
    keeper::Keeper,
    layout::{self, Contender, Place},
};
use crate::{
    once::open::{self, Open},
    session::{
        link::{Fault, Link},
        live::{Current, Live, View},
        nameplate::Member,
        proof::Proof,
    },
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
    #[error("ask ZooKeeper: {0}")]
    Fault(String),
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
        self.ask(key, |answer| Question::Break { key: key.clone(), holder, answer }).await
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
        self.ask_any(|answer| Question::Resolve { resolution, answer }).await
    }

    pub fn sessions(&self) -> Vec<Session> {
        let now = self.clock.now();
        let proven = |proof: &Proof| proof.deadline().since(now).as_millis().try_into().unwrap_or(u64::MAX);
        let session = |(number, view): (usize, View)| match view {
            View::Away(why) => {
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
        match timeout(PATIENCE, answer).await {
            Ok(answer) => answer.unwrap_or(Err(Untold::Away)),
            Err(_elapsed) => Err(Untold::Late(PATIENCE)),
        }
    }

    /// Through a session that is ready, if there is one.
    async fn ask_any<T>(&self, question: impl FnOnce(Told<T>) -> Question) -> Result<T, Untold> {
        let ready = self.desks.iter().find(|line| line.view.borrow().is_ready(&self.clock));
        let line = ready.or(self.desks.first()).expect("there is at least one session");
        let (told, answer) = oneshot::channel();
        line.work.send(Work::Ask(question(told))).map_err(|_| Untold::Away)?;
        match timeout(PATIENCE, answer).await {
            Ok(answer) => answer.unwrap_or(Err(Untold::Away)),
            Err(_elapsed) => Err(Untold::Late(PATIENCE)),
        }
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

/// Nobody who waits for it: the operator has gone, and nothing has to be done about that.
fn tell<T>(answer: Told<T>, told: Result<T, Untold>) {
    answer.send(told).ok();
}

/// Answers one question. Whoever asked may have gone: what has not begun is not begun for nobody.
pub async fn answer<L: Link>(current: Rc<Current<L>>, question: Question) {
    let Some(live) = current.live() else { return refuse(question) };
    match question {
        Question::Line { key, answer } => {
            let told = line(&live, &key).await;
            tell(answer, told);
        }
        Question::Break { key, holder, answer } if !answer.is_closed() => {
            let told = remove_holder(&live, &key, &holder).await;
            tell(answer, told);
        }
        Question::Members { answer } => {
            let told = members(&live).await;
            tell(answer, told);
        }
        Question::Operations { answer } => {
            let told = operations(&live).await;
            tell(answer, told);
        }
        Question::Resolve { resolution, answer } if !answer.is_closed() => {
            let told = resolve(&live, &resolution).await;
            tell(answer, told);
        }
        Question::Break { .. } | Question::Resolve { .. } => {}
    }
}

fn refuse(question: Question) {
    match question {
        Question::Line { answer, .. } => tell(answer, Err(Untold::Away)),
        Question::Break { answer, .. } => tell(answer, Err(Untold::Away)),
        Question::Members { answer } => tell(answer, Err(Untold::Away)),
        Question::Operations { answer } => tell(answer, Err(Untold::Away)),
        Question::Resolve { answer, .. } => tell(answer, Err(Untold::Away)),
    }
}

async fn children<L: Link>(live: &Live<L>, path: &str) -> Result<Vec<String>, Untold> {
    match live.link.children(path).await {
        Ok(children) => Ok(children),
        Err(Fault::NoNode) => Ok(Vec::new()),
        Err(fault) => Err(fault.into()),
    }
}

async fn line<L: Link>(live: &Live<L>, key: &ResourceKey) -> Result<Vec<Standing>, Untold> {
    let parent = live.paths.lock(key);
    let mut nodes = children(live, &parent).await?;
    nodes.retain(|name| Contender::parse(name).is_some());
    nodes.sort_by_key(|name| Contender::parse(name).map(|one| one.sequence));
    nodes.truncate(MOST);
    let members = children(live, &live.paths.members()).await?;
    let paths: Vec<String> = nodes.iter().map(|name| format!("{parent}/{name}")).collect();
    let seen = join_all(paths.iter().map(|path| live.link.seen(path))).await;
    let mut line = Vec::new();
    for (name, seen) in nodes.iter().zip(seen) {
        let (Some(seen), Some(contender)) = (seen?, Contender::parse(name)) else { continue };
        let place = layout::place(&nodes, name);
        let session = format!("{:016x}", seen.owner);
        line.push(Standing {
            node: name.clone(),
            mode: contender.mode,
            gateway: members.iter().find_map(|member| gateway(member, &session)).map(str::to_owned),
            number: grant::epoch(live.base, seen.czxid).ok(),
            holds: place == Place::First,
            behind: match place {
                Place::Behind(other) => Some(other.to_owned()),
                Place::First | Place::Gone => None,
            },
            session,
        });
    }
    Ok(line)
}

/// The name in front of the session in a member node's name.
fn gateway<'a>(member: &'a str, session: &str) -> Option<&'a str> {
    member.strip_suffix(session)?.strip_suffix('-')
}

/// The node that was meant, and no other: a list may be older than the last hand-over, and then it is gone already.
async fn remove_holder<L: Link>(live: &Live<L>, key: &ResourceKey, holder: &str) -> Result<Broken, Untold> {
    let parent = live.paths.lock(key);
    live.link.sync(&parent).await?;
    let nodes = children(live, &parent).await?;
    if layout::place(&nodes, holder) != Place::First {
        return Ok(Broken::NotHolding);
    }
    match live.link.delete(&format!("{parent}/{holder}")).await {
        Ok(()) => Ok(Broken::Gone),
        Err(Fault::NoNode) => Ok(Broken::NotHolding),
        Err(Fault::Ambiguous(_) | Fault::Over) => Ok(Broken::Unknown),
        Err(fault) => Err(fault.into()),
    }
}

async fn members<L: Link>(live: &Live<L>) -> Result<Vec<Registered>, Untold> {
    let parent = live.paths.members();
    let mut names = children(live, &parent).await?;
    names.sort_unstable();
    names.truncate(MOST);
    let paths: Vec<String> = names.iter().map(|name| format!("{parent}/{name}")).collect();
    let read = join_all(paths.iter().map(|path| live.link.data(path))).await;
    let registered = names.iter().zip(read).filter_map(|(name, read)| {
        let (data, _) = match read {
            // Gone since the list, or a heartbeat's probe that is.
            Err(Fault::NoNode) => return None,
            Err(_) => (Vec::new(), ()),
            Ok((data, _)) => (data, ()),
        };
        let (gateway, session) = name.rsplit_once('-')?;
        let member = serde_json::from_slice::<Member>(&data).ok();
        let (version, plan) = member.map(|member| (member.version, member.plan)).unzip();
        Some(Registered { gateway: gateway.to_owned(), session: session.to_owned(), version, plan })
    });
    Ok(registered.filter(|one| one.session.len() == SESSION_DIGITS).collect())
}

const SESSION_DIGITS: usize = 16;

async fn operations<L: Link>(live: &Live<L>) -> Result<Vec<Open>, Untold> {
    let found = open::all(&live.link, &live.paths, live.base).await;
    let mut found = found.map_err(|trouble| Untold::Fault(trouble.to_string()))?;
    found.truncate(MOST);
    Ok(found)
}

async fn resolve<L: Link>(live: &Live<L>, resolution: &Resolution) -> Result<Resolved, Untold> {
    let Resolution { reference, done, force } = resolution;
    let found = match open::one(&live.link, &live.paths, live.base, reference).await {
        Ok(found) => found,
        Err(trouble @ (open::Trouble::NotFound(_) | open::Trouble::Several(_))) => {
            return Ok(Resolved::NotFound(trouble.to_string()));
        }
        Err(trouble) => return Err(Untold::Fault(trouble.to_string())),
    };
    if found.may_run && !force {
        return Ok(Resolved::MayRun(open::Trouble::MayRun(reference.clone()).to_string()));
    }
    let written = found.resolve(&live.link, *done).await;
    written.map(|()| Resolved::Written).map_err(|trouble| Untold::Fault(trouble.to_string()))
}
