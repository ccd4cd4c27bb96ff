//! Answers the questions of operators, on the thread of the session but without holding it up.

use std::{future::Future, rc::Rc};

use fencegate_policies::{key::ResourceKey, plan::LockSite};
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::{permit_line, shared_node};
use crate::tenures::question::{
    Broken, Fleet, Holder, LineEntry, MOST, PATIENCE, Program, Question, RegisteredGateway, Resolution,
    Resolved, Told, Untold,
};
use crate::{
    once::unresolved::{self, Unresolved},
    reach::Way,
    recipe::{
        delayed,
        layout::{Contender, Line, Rank},
    },
    session::{
        epoch::epoch,
        judged,
        link::{Failed, Fault, Link},
        live::{Current, Live},
        member::{Member, gateway_among, gateway_of},
        paths::Paths,
    },
};

/// This fails if the operator has gone, which needs no action.
fn tell<T>(answer: Told<T>, told: Result<T, Untold>) {
    answer.send(told).ok();
}

/// Reads for as long as somebody waits for the answer.
async fn read<T>(mut answer: Told<T>, reading: impl Future<Output = Result<T, Untold>>) {
    tokio::select! {
        told = reading => tell(answer, told),
        () = answer.closed() => {}
    }
}

/// Questions that read very many nodes take turns, one at a time for each session. So the questions of pages that
/// refresh do not pile up.
#[derive(Debug, Clone)]
pub struct Turns(Rc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Rc::new(Semaphore::new(1)))
    }
}

/// Answers one question, unless the caller has gone before. A question that changes something checks once more directly
/// before the change, because its reads may take long.
pub async fn answer<L: Link>(current: Rc<Current<L>>, turns: Turns, question: Question) {
    let Some(live) = current.live() else { return refuse(question) };
    match question {
        Question::Line { key, site, answer } => {
            // Clients may ask this question, too, so it takes its turn.
            let in_turn = async {
                let _turn = turns.0.acquire().await.expect("nobody closes it");
                line(&live, &key, &site).await
            };
            read(answer, in_turn).await;
        }
        Question::Record { key, answer } => {
            let parent = live.paths.lock(&key);
            read(answer, async { Ok(delayed::look(&live, &parent).await?) }).await;
        }
        Question::Members { answer } => read(answer, members(&live)).await,
        Question::Published { answer } => read(answer, published(&live)).await,
        Question::MemberNames { answer } => read(answer, children(&live, &live.paths.members())).await,
        Question::Holder { member, answer } => read(answer, holder(&live, &member)).await,
        Question::Operations { answer } => {
            let in_turn = async {
                let _turn = turns.0.acquire().await.expect("nobody closes it");
                operations(&live).await
            };
            read(answer, in_turn).await;
        }
        Question::Break { key, site, holder, answer } => {
            let told = remove_holder(&live, (&key, &site), &holder, || !answer.is_closed()).await;
            tell(answer, told);
        }
        Question::Resolve { resolution, answer } => {
            let told = resolve(&live, &resolution, || !answer.is_closed()).await;
            tell(answer, told);
        }
    }
}

fn refuse(question: Question) {
    match question {
        Question::Line { answer, .. } => tell(answer, Err(Untold::Away)),
        Question::Record { answer, .. } => tell(answer, Err(Untold::Away)),
        Question::Break { answer, .. } => tell(answer, Err(Untold::Away)),
        Question::Members { answer } => tell(answer, Err(Untold::Away)),
        Question::Published { answer } => tell(answer, Err(Untold::Away)),
        Question::MemberNames { answer } => tell(answer, Err(Untold::Away)),
        Question::Holder { answer, .. } => tell(answer, Err(Untold::Away)),
        Question::Operations { answer } => tell(answer, Err(Untold::Away)),
        Question::Resolve { answer, .. } => tell(answer, Err(Untold::Away)),
    }
}

async fn published<L: Link>(live: &Live<L>) -> Result<Fleet, Untold> {
    let found = judged::fleet(live).await?;
    let (ours, others, same) = found.ok_or(Untold::Fault("nothing is published here".to_owned()))?;
    Ok(Fleet { ours, same, others })
}

async fn children<L: Link>(live: &Live<L>, path: &str) -> Result<Vec<String>, Untold> {
    match live.link.children(path).await {
        Ok(children) => Ok(children),
        Err(Fault::NoNode) => Ok(Vec::new()),
        Err(fault) => Err(fault.into()),
    }
}

async fn line<L: Link>(live: &Live<L>, key: &ResourceKey, site: &LockSite) -> Result<Vec<LineEntry>, Untold> {
    let Stood { order, parent, shared } = Stood::of(&live.paths, key, site);
    let all = children(live, &parent).await?;
    let mut nodes: Vec<String> = all.iter().filter(|name| order.contender(name).is_some()).cloned().collect();
    nodes.sort_by_key(|name| order.contender(name).map(|one| one.sequence));
    nodes.truncate(MOST);
    let members = children(live, &live.paths.members()).await?;
    let paths: Vec<String> = nodes.iter().map(|name| format!("{parent}/{name}")).collect();
    let seen = join_all(paths.iter().map(|path| live.link.seen(path))).await;
    let mut line = Vec::new();
    for (name, seen) in nodes.iter().zip(seen) {
        let (Some(seen), Some(contender)) = (seen?, order.contender(name)) else { continue };
        let rank = order.rank(&nodes, name);
        let session = format!("{:016x}", seen.owner);
        let gateway = gateway_among(&members, &session);
        line.push(LineEntry {
            node: name.clone(),
            mode: contender.mode,
            program: program(order, &contender, gateway.is_some()),
            gateway,
            number: epoch(live.base, seen.czxid).ok(),
            holds: rank == Rank::First,
            permit: None,
            behind: match rank {
                Rank::Behind(other) => Some(other.to_owned()),
                Rank::First | Rank::Gone => None,
            },
            session,
            made_ms: Some(seen.created),
        });
    }
    match shared {
        Some(path) => shared_node::settle(live, path, &members, line).await,
        None => permit_line::settle(live, &parent, &all, line).await,
    }
}

/// In such a line our nodes are named as the other programs name theirs. So a registered session tells which ones are
/// ours.
fn program(order: Line, contender: &Contender<'_>, registered: bool) -> Program {
    match order {
        _ if registered => Program::Fencegate,
        _ if contender.guid.is_none() => Program::Unknown,
        Line::Native | Line::Permits(_) => Program::Fencegate,
        Line::CuratorMutex | Line::CuratorReadWrite => Program::Curator,
        Line::Kazoo => Program::Kazoo,
    }
}

/// Removes the named node and no other. The operator's list may be old, and then the node is gone already.
async fn remove_holder<L: Link>(
    live: &Live<L>,
    (key, site): (&ResourceKey, &LockSite),
    holder: &str,
    still_meant: impl Fn() -> bool,
) -> Result<Broken, Untold> {
    let Stood { order, parent, shared } = Stood::of(&live.paths, key, site);
    live.link.sync(&parent).await?;
    let nodes = children(live, &parent).await?;
    let permits = order.contender(holder).is_some_and(|one| one.permits.is_some());
    let first = order.rank(&nodes, holder) == Rank::First;
    if !first && !permits && shared.is_none() {
        return Ok(Broken::NotHolding);
    }
    // The operator was told that no answer came, so a change after that would be a surprise.
    if !still_meant() {
        return Err(Untold::Late(PATIENCE));
    }
    let place = format!("{parent}/{holder}");
    match shared {
        None if permits => permit_line::remove(live, &parent, holder).await,
        None => Broken::of(live.link.delete(&place).await),
        Some(path) if first => shared_node::remove_ours(live, &place, path).await,
        Some(path) => shared_node::remove_theirs(live, holder, path).await,
    }
}

/// The line for a lock: of all contenders, or of ours only where the lock is an exclusive node.
struct Stood<'s> {
    order: Line,
    parent: String,
    /// Path of the exclusive node that the first of the line has to make.
    shared: Option<&'s str>,
}

impl<'s> Stood<'s> {
    fn of(paths: &Paths, key: &ResourceKey, site: &'s LockSite) -> Self {
        match (Line::of(site), site) {
            (Some(order), _) => Self { order, parent: paths.of_lock(key, site), shared: None },
            // Only ours stand in this line.
            (None, LockSite::Foreign { path, .. }) => {
                Self { order: Line::Native, parent: paths.lock(key), shared: Some(path) }
            }
            (None, LockSite::Native | LockSite::Semaphore { .. }) => {
                Self { order: Line::Native, parent: paths.lock(key), shared: None }
            }
        }
    }
}

async fn members<L: Link>(live: &Live<L>) -> Result<Vec<RegisteredGateway>, Untold> {
    let parent = live.paths.members();
    let mut names = children(live, &parent).await?;
    names.sort_unstable();
    names.truncate(MOST);
    let paths: Vec<String> = names.iter().map(|name| format!("{parent}/{name}")).collect();
    let read = join_all(paths.iter().map(|path| live.link.data(path))).await;
    let newest = read.iter().flatten().map(|(_, seen)| seen.modified).max().unwrap_or_default();
    let proves = u64::try_from(live.rhythm().proves().as_millis()).unwrap_or(u64::MAX);
    let registered = names.iter().zip(read).filter_map(|(name, read)| {
        let (data, seen) = match read {
            // The session has gone since the list, or this was the probe of a heartbeat.
            Err(Fault::NoNode) => return None,
            Err(_) => (Vec::new(), None),
            Ok((data, seen)) => (data, Some(seen)),
        };
        let (gateway, session) = name.rsplit_once('-')?;
        let member: Option<Member> = serde_json::from_slice(&data).ok();
        let silent_ms = seen.map_or(0, |seen| newest.saturating_sub(seen.modified));
        let leaving = member.as_ref().is_some_and(|member| member.leaving);
        Some(RegisteredGateway {
            gateway: gateway.to_owned(),
            session: session.to_owned(),
            ready: member.is_some() && !leaving && silent_ms < proves,
            leaving,
            silent_ms,
            since: seen.map_or(0, |seen| seen.created / 1000),
            version: member.as_ref().map(|member| member.version.clone()),
            plan: member.as_ref().map(|member| member.plan.clone()),
            page: member.as_ref().and_then(|member| member.page.clone()),
            // Only the address is told, never the pass beside it.
            peer: member.and_then(|member| member.peer).map(|reach| reach.address),
        })
    });
    Ok(registered.filter(|one| one.session.len() == SESSION_DIGITS).collect())
}

const SESSION_DIGITS: usize = 16;

async fn holder<L: Link>(live: &Live<L>, member: &str) -> Result<Holder, Untold> {
    if member == live.member {
        return Ok(Holder::Here);
    }
    // This text was written by somebody else, and becomes a part of a path.
    if member.contains('/') {
        return Ok(Holder::Gone);
    }
    let data = match live.link.data(&format!("{}/{member}", live.paths.members())).await {
        Ok((data, _)) => data,
        Err(Fault::NoNode) => return Ok(Holder::Gone),
        Err(fault) => return Err(fault.into()),
    };
    let said = serde_json::from_slice::<Member>(&data).ok();
    let Some(reach) = said.and_then(|member| member.peer) else { return Ok(Holder::Unreached) };
    // A pass belongs to a process, so it is the same for all its sessions.
    if live.reach.as_ref().is_some_and(|ours| ours.pass == reach.pass) {
        return Ok(Holder::Here);
    }
    let (gateway, address) = (gateway_of(member).into(), reach.address.into());
    Ok(Holder::Elsewhere(Way { gateway, member: member.into(), address, pass: reach.pass }))
}

async fn operations<L: Link>(live: &Live<L>) -> Result<Vec<Unresolved>, Untold> {
    let found = unresolved::all(&live.link, &live.paths, live.base).await;
    let mut found = found.map_err(|trouble| Untold::Fault(trouble.to_string()))?;
    found.truncate(MOST);
    Ok(found)
}

async fn resolve<L: Link>(
    live: &Live<L>,
    resolution: &Resolution,
    still_meant: impl Fn() -> bool,
) -> Result<Resolved, Untold> {
    let Resolution { reference, done, force, within } = resolution;
    let found = match unresolved::one(&live.link, &live.paths, live.base, reference).await {
        Ok(found) => found,
        Err(trouble @ (unresolved::Trouble::NotFound(_) | unresolved::Trouble::Several(_))) => {
            return Ok(Resolved::NotFound(trouble.to_string()));
        }
        Err(trouble) => return Err(Untold::Fault(trouble.to_string())),
    };
    if !force && let Err(trouble) = found.may_be_resolved(*done, *within) {
        return Ok(Resolved::MayRun(trouble.to_string()));
    }
    if !still_meant() {
        return Err(Untold::Late(PATIENCE));
    }
    match found.resolve(&live.link, *done).await {
        Ok(()) => Ok(Resolved::Written),
        Err(unresolved::Trouble::Write { source: Failed { fault, .. }, .. }) => Err(match fault {
            Fault::Ambiguous(_) | Fault::Over => Untold::Unknown,
            refused => Untold::Fault(refused.to_string()),
        }),
        Err(trouble) => Err(Untold::Fault(trouble.to_string())),
    }
}
