//! Sees whether other gateways of the installation lock other keys than this one: then one resource has two locks.

use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fencegate_process::clock::Boot;
use futures_util::future::join_all;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::{
    link::{Fault, Link},
    live::Live,
    nameplate::{Member, gateway_of},
    supervise::Settings,
};

/// What was seen last, shared by all sessions of a process: one of them looks for all.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Nanoseconds since boot; 0 for a look that is due.
    looked: AtomicU64,
    /// Gateways that lock other keys, by name.
    unlike: Mutex<BTreeSet<String>>,
    /// Paths of the nodes that this process has made, of the last so many sessions.
    ours: Mutex<VecDeque<String>>,
}

/// How often a session asks whether it is time to look.
const TICK: Duration = Duration::from_secs(1);

/// Of so many nodes the plan is read; each gateway has one per session.
const MOST: usize = 4096;

/// Several times what a process has at once: a session that was lost leaves its node for a while.
const MOST_OF_OURS: usize = 512;

impl Others {
    /// What this gateway locks has changed.
    pub(super) fn look_again(&self) {
        self.looked.store(0, Ordering::Release);
    }

    /// Before the node is made: it says nothing of other gateways. After a reload it goes on telling the old plan until
    /// its session has its next heartbeat. Going by the gateway's name is not enough: in a rolling restart two processes
    /// have one name.
    pub(super) fn is_ours(&self, member: &str) {
        let mut ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        ours.push_back(member.to_owned());
        if ours.len() > MOST_OF_OURS {
            ours.pop_front();
        }
    }

    fn are_not_ours(&self, mut members: Vec<String>) -> Vec<String> {
        let ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|member| !ours.contains(member));
        members
    }

    /// True for one of those that ask, once per `every`.
    fn is_due(&self, now: Boot, every: Duration) -> bool {
        let last = self.looked.load(Ordering::Acquire);
        let due = last == 0 || now.since(Boot::from_nanos(last)) >= every;
        let mine = || self.looked.compare_exchange(last, now.as_nanos(), Ordering::AcqRel, Ordering::Acquire);
        due && mine().is_ok()
    }

    /// Tells a change once, and gives the number of them.
    fn saw(&self, unlike: BTreeSet<String>) -> usize {
        let mut known = self.unlike.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != unlike {
            let gateways = unlike.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            match unlike.is_empty() {
                true => info!("all gateways of the installation lock the same keys"),
                false => {
                    warn!(code = "FG0515", gateways, "other gateways of the installation lock other keys")
                }
            }
            *known = unlike;
        }
        known.len()
    }
}

/// For as long as the session lives. Reads only.
pub(super) async fn watch<L: Link>(live: &Live<L>, settings: &Settings, every: Duration) -> Infallible {
    let others = settings.member.others();
    loop {
        sleep(TICK.min(every)).await;
        if !others.is_due(settings.clock.now(), every) {
            continue;
        }
        match unlike(live, settings).await {
            Ok(unlike) => {
                let unlike = others.saw(unlike);
                settings.metrics.unlike(unlike);
                settings.census.strangers(unlike > 0);
            }
            // The next look is another try.
            Err(fault) => debug!(%fault, "the other gateways were not seen"),
        }
    }
}

async fn unlike<L: Link>(live: &Live<L>, settings: &Settings) -> Result<BTreeSet<String>, Fault> {
    let folder = live.paths.members();
    let nodes = live.link.children(&folder).await?;
    let paths = nodes.iter().take(MOST).map(|node| format!("{folder}/{node}")).collect();
    let paths = settings.member.others().are_not_ours(paths);
    let read = join_all(paths.iter().map(|path| live.link.data(path))).await;
    let ours = plan_of(&settings.member.data());
    let plans = paths.iter().zip(read).filter_map(|(path, read)| {
        let node = path.strip_prefix(&folder)?.trim_start_matches('/');
        // A node that has gone was one of a gateway that has gone.
        Some((gateway_of(node).to_owned(), plan_of(&read.ok()?.0)?))
    });
    Ok(plans.filter(|(_, plan)| Some(plan) != ours.as_ref()).map(|(gateway, _)| gateway).collect())
}

/// `None` for what is no member's data.
fn plan_of(data: &[u8]) -> Option<String> {
    serde_json::from_slice::<Member>(data).ok().map(|member| member.plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_all_sessions_looks_once_per_period_and_at_once_after_a_change() {
        let (others, every) = (Others::default(), Duration::from_secs(10));
        let second = |n: u64| Boot::from_nanos(n * 1_000_000_000);
        let due: Vec<bool> = [1, 1, 5, 11, 11, 12].map(|now| others.is_due(second(now), every)).into();
        assert_eq!(due, [true, false, false, true, false, false]);
        others.look_again();
        assert!(others.is_due(second(13), every) && !others.is_due(second(13), every));
    }

    #[test]
    fn nodes_of_this_process_are_not_those_of_others_and_a_namesake_s_are() {
        let others = Others::default();
        others.is_ours("/f/members/gw-1-01");
        let members = ["/f/members/gw-1-01", "/f/members/gw-1-02", "/f/members/gw-2-03"];
        let left = others.are_not_ours(members.map(str::to_owned).into());
        assert_eq!(left, ["/f/members/gw-1-02", "/f/members/gw-2-03"]);
        for session in 0..MOST_OF_OURS {
            others.is_ours(&format!("/f/members/gw-1-{session}-later"));
        }
        assert_eq!(others.are_not_ours(vec![members[0].to_owned()]).len(), 1, "kept for ever");
    }
}
