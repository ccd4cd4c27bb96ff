//! One attempt at one key: its name below the key's parent, and the steps that single keys and sets share.

use std::{rc::Rc, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::Mode};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    grant::{Caller, NotGranted, Stop},
    layout::{self, Place},
    signpost::{self, Signpost},
};
use crate::{
    randomness::Guid,
    session::{
        link::{Fault, Kind, Link, Seen},
        live::Live,
    },
};

/// Where an attempt stands.
pub struct Site<L> {
    pub live: Rc<Live<L>>,
    pub parent: String,
    shard: String,
    pub guid: Guid,
    pub mode: Mode,
}

/// A lock node of ours.
#[derive(Debug, Clone)]
pub struct Node {
    pub name: String,
    pub seen: Seen,
}

impl<L: Link> Site<L> {
    pub fn new(live: Rc<Live<L>>, key: &ResourceKey, guid: Guid, mode: Mode) -> Self {
        Self { parent: live.paths.lock(key), shard: live.paths.shard(key), live, guid, mode }
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.parent)
    }

    /// The path to ask for; the server appends the sequence number.
    pub fn requested(&self) -> String {
        self.path(&layout::requested(self.guid, self.mode))
    }

    /// Makes the folder that the key's parent belongs in.
    pub async fn create_shard(&self) -> Result<(), NotGranted> {
        match self.live.link.create(&self.shard, b"", Kind::Persistent).await {
            Ok(_) | Err(Fault::NodeExists | Fault::Ambiguous(_)) => Ok(()),
            Err(Fault::NoNode) => Err(NotGranted::Service(format!(
                "{} is missing; `fencegate era init` makes it",
                self.live.paths.locks()
            ))),
            Err(fault) => Err(refused(fault)),
        }
    }

    /// The answer to a create was lost: did it happen? `None`: it did not, and will not, because a session that came
    /// back through another server has its old server's requests refused from then on.
    ///
    /// The lowest node of ours is adopted and every other removed.
    pub async fn recover(&self) -> Result<Option<(Node, Vec<String>)>, NotGranted> {
        'anew: loop {
            let (synced, children) =
                (self.live.link.sync(&self.parent), self.live.link.children(&self.parent));
            let (synced, children) = tokio::join!(synced, children);
            let children = match (synced, children) {
                // First: what an unsynced server does not show may exist.
                (Err(Fault::Ambiguous(_)), _) | (_, Err(Fault::Ambiguous(_))) => {
                    sleep(AGAIN).await;
                    continue;
                }
                (Ok(()), Ok(children)) => children,
                (Ok(()) | Err(Fault::NoNode), Err(Fault::NoNode)) => return Ok(None),
                (Err(fault), _) | (_, Err(fault)) => return Err(refused(fault)),
            };
            let mut adopted = None;
            for name in layout::made_by(&children, self.guid) {
                match self.live.link.seen(&self.path(name)).await {
                    Ok(Some(seen)) if adopted.is_none() => {
                        adopted = Some(Node { name: name.to_owned(), seen })
                    }
                    Ok(Some(_)) => self.remove(name).await,
                    Ok(None) => {}
                    Err(Fault::Ambiguous(_)) => continue 'anew,
                    Err(fault) => return Err(refused(fault)),
                }
            }
            return Ok(adopted.map(|node| (node, children)));
        }
    }

    /// Returns when the node holds; whether it had to wait.
    pub async fn stand_in_line(
        &self,
        own: &str,
        mut children: Vec<String>,
        caller: &mut impl Caller,
    ) -> Result<bool, Stop> {
        let mut contended = false;
        loop {
            let before = match layout::place(&children, own) {
                Place::First => return Ok(contended),
                Place::Gone => return Err(NotGranted::Lost.into()),
                Place::Behind(before) => self.path(before),
            };
            contended = true;
            caller.behind()?;
            let asks = caller.asks_the_way();
            let watched = self.live.link.watch(&before);
            // Beside the watch, and not behind it: who is sent on leaves a round trip earlier.
            let first = layout::alone(&children).filter(|_| asks).map(|first| self.path(first));
            let read = first.as_deref().map(|first| self.live.link.data(first));
            match watched.await {
                Ok(gone_or_changed) => tokio::select! {
                    () = gone_or_changed => {}
                    stop = self.left(asks, read, caller) => return Err(stop),
                    () = self.live.over.cancelled() => return Err(NotGranted::Lost.into()),
                },
                Err(Fault::NoNode | Fault::Ambiguous(_)) => {}
                Err(fault) => return Err(refused(fault).into()),
            }
            if caller.is_gone() {
                return Err(Stop::CallerGone);
            }
            // The event says that something changed, not that we are first; and our own node may be gone as well.
            children = tokio::select! {
                children = self.list() => children?,
                () = caller.gone() => return Err(Stop::CallerGone),
            };
        }
    }

    /// Returns when nobody waits here any more: all have gone, or were sent on. `asks`: somebody may be, and `read` is
    /// on its way to tell where to.
    async fn left(
        &self,
        asks: bool,
        read: Option<impl Future<Output = Signpost>>,
        caller: &mut impl Caller,
    ) -> Stop {
        if asks {
            let way = match read {
                Some(read) => signpost::follow(&self.live, read.await).await,
                None => None,
            };
            if let Err(stop) = caller.way(way) {
                return stop;
            }
        }
        loop {
            caller.stirred().await;
            if caller.is_gone() {
                return Stop::CallerGone;
            }
            // Who has come since is not kept here until the one directly before us goes.
            if caller.asks_the_way()
                && let Err(stop) = caller.way(signpost::ask(self).await)
            {
                return stop;
            }
        }
    }

    /// After the node holds: until the session is proven, so that a grant can be used.
    pub async fn proven(&self, caller: &mut impl Caller) -> Result<(), Stop> {
        tokio::select! {
            () = self.live.proven() => Ok(()),
            () = caller.gone() => Err(Stop::CallerGone),
            () = self.live.over.cancelled() => Err(NotGranted::Lost.into()),
        }
    }

    /// The siblings; none when the parent is gone.
    pub async fn list(&self) -> Result<Vec<String>, NotGranted> {
        loop {
            match self.live.link.children(&self.parent).await {
                Ok(children) => return Ok(children),
                Err(Fault::NoNode) => return Ok(Vec::new()),
                Err(Fault::Ambiguous(_)) => sleep(AGAIN).await,
                Err(fault) => return Err(refused(fault)),
            }
        }
    }

    /// Returns when no node of this attempt is there, calling `gone` with the key's parent, or when that cannot be told.
    pub async fn watch_own(&self, gone: &impl Fn(&str)) {
        loop {
            let children = match self.list().await {
                Ok(children) => children,
                Err(_) => return,
            };
            let Some(own) = layout::made_by(&children, self.guid).first().map(|name| self.path(name)) else {
                return gone(&self.parent);
            };
            match self.live.link.watch(&own).await {
                Ok(changed) => changed.await,
                Err(Fault::NoNode | Fault::Ambiguous(_)) => sleep(AGAIN).await,
                Err(_) => return,
            }
        }
    }

    /// Removes every node of this attempt, or returns because the session, and so they, are over. It looks instead of
    /// trusting what the attempt remembers: an answer may have been lost on the way here.
    pub async fn purge(&self) {
        loop {
            let (synced, children) =
                (self.live.link.sync(&self.parent), self.live.link.children(&self.parent));
            match tokio::join!(synced, children) {
                (Ok(()), Ok(children)) => {
                    for name in layout::made_by(&children, self.guid) {
                        self.remove(name).await;
                    }
                    return;
                }
                (Err(Fault::Over), _) | (_, Err(Fault::Over)) | (Ok(()), Err(Fault::NoNode)) => return,
                (Err(fault), _) | (_, Err(fault)) => {
                    debug!(%fault, parent = %self.parent, "looking again for what is left");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Deletes until the node is known to be gone: until then the next holder waits.
    pub async fn remove(&self, name: &str) {
        let path = self.path(name);
        loop {
            match self.live.link.delete(&path).await {
                Ok(()) | Err(Fault::NoNode | Fault::Over) => return,
                Err(Fault::Ambiguous(_)) => sleep(AGAIN).await,
                Err(fault) => {
                    warn!(%fault, %path, "lock node not removed yet");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Before what had an ambiguous end is tried again: an error that comes at once must not come in a circle.
pub const AGAIN: Duration = Duration::from_millis(20);

/// Between two tries of what the server refuses to do (throttled, or an ACL in the way).
pub const PAUSE: Duration = Duration::from_millis(500);

/// How often a create begins again because a parent was removed as empty in between.
pub const CREATE_ROUNDS: usize = 16;

/// A definite refusal of the server.
pub fn refused(fault: Fault) -> NotGranted {
    match fault {
        Fault::Over => NotGranted::Lost,
        other => NotGranted::Service(other.to_string()),
    }
}
