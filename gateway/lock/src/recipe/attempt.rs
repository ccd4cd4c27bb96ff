//! The life of the lock node of one key, from its creation to its proven removal.
//!
//! The task that runs an attempt owns the node. Whoever asked for it may go away at any moment: the task notices at its
//! next step and removes the node. No request to ZooKeeper is abandoned half way, because it may still take effect.
//! Whatever happens, [`Attempt::clear`] has to be the last call.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockSite, Mode},
};
use fencegate_process::failpoint;
use futures_util::future::OptionFuture;
use tokio::task::yield_now;

use super::{
    candidate::{Berth, CREATE_ROUNDS, Candidate, Node, PATIENT_ROUNDS, refused},
    delayed::{self, Delayed, FirstNode, LAST_RECORDED},
    grant::{Caller, Grant, Stop},
    grant_record::GrantRecord,
    made::Made,
    rotate::FullParent,
};
use crate::not_granted::NotGranted;
use crate::recipe::registered::Registered;
use crate::session::{
    collected::{NewKey, NextNode},
    evidence::Evidence,
    link::{Created, Failed, Fault, Kind, Link, Step},
    live::Live,
    together::NextMade,
};

/// One attempt.
pub struct Attempt<L: Link> {
    pub candidate: Candidate<L>,
    /// The names of its nodes.
    made: Made<String>,
    /// The data of its nodes.
    says: Box<[u8]>,
    /// Present where the parent of the key keeps a grant record.
    delayed: Option<Delayed>,
    registered: Registered<L>,
}

impl<L: Link> Attempt<L> {
    /// Enters the attempt in the session's registry, before any node is made. This may wait for room.
    pub async fn begin(
        live: &Rc<Live<L>>,
        key: &ResourceKey,
        site: &LockSite,
        mode: Mode,
    ) -> Result<Self, NotGranted> {
        let at = Berth::of(&live.paths, key, site)?;
        if live.registry.parents.has_ours(&at.parent) {
            // A client that was just answered may be back before the task of its last request has run, which removes
            // the node of that request. Let it run first: then we do not have to wait in line behind ourselves.
            yield_now().await;
        }
        Ok(Self::of(Registered::enter(live, at.bytes()).await?, live, &at, mode))
    }

    /// Another attempt for the same key. Its node takes the place of this one's, so it needs no room of its own.
    pub fn succeed(&self, mode: Mode) -> Self {
        let Candidate { live, .. } = &self.candidate;
        Self::of(self.registered.succeed(), live, &self.candidate.berth(), mode)
    }

    fn of(registered: Registered<L>, live: &Rc<Live<L>>, at: &Berth, mode: Mode) -> Self {
        let candidate = Candidate::new(live.clone(), at, registered.guid, mode);
        // Among other programs' nodes the data only tells people whose node this is; no request is sent on by it.
        let says: &[u8] = if candidate.line.is_native() { b"" } else { live.member.as_bytes() };
        Self { says: says.into(), candidate, made: Made::default(), delayed: None, registered }
    }

    /// For a tenure that is kept for later requests: its node names this gateway, so that others can send requests on
    /// to it. Only a native node that holds alone does so.
    pub fn signed(mut self) -> Self {
        if self.candidate.mode == Mode::Exclusive && self.candidate.line.is_native() {
            self.says = self.candidate.live.signature().into();
        }
        self
    }

    /// For a key where nobody compares tokens: our requests may go on for `delay` after we are gone.
    pub fn delayed(self, delay: Option<Duration>) -> Self {
        match delay {
            Some(delay) => self.with(Delayed::by(delay)),
            None => self,
        }
    }

    /// For an attempt that sends no request, and only puts the grant record of its key in order.
    pub fn sending_nothing(self) -> Self {
        self.with(Delayed::sending_nothing())
    }

    fn with(mut self, delayed: Delayed) -> Self {
        self.candidate.keeps_record();
        self.delayed = Some(delayed);
        self
    }

    /// Says that all requests under this node are over.
    pub fn all_known(&self) {
        self.delayed.iter().for_each(Delayed::all_known);
    }

    fn leaves_clean(&self) -> bool {
        self.delayed.as_ref().is_some_and(Delayed::leaves_clean)
    }

    /// For an attempt that stands in line for the exclusive node at `path`: its nodes have that path as data.
    pub fn towards(mut self, path: &str) -> Self {
        self.says = path.as_bytes().into();
        self
    }

    /// Makes the node and waits until it holds.
    pub async fn acquire(&self, caller: &mut impl Caller) -> Result<Grant, Stop> {
        let (node, children) = self.create().await?;
        self.wait(node, children, caller).await
    }

    /// Like [`Self::acquire`], but removes the node of `old` in the transaction that makes the new one. So nobody sees
    /// the key without a contender of ours, and a holder that yields is at the end of the queue at once.
    pub async fn acquire_instead_of(&self, old: &Self, caller: &mut impl Caller) -> Result<Grant, Stop> {
        match self.replace(old).await? {
            Some((node, children)) => self.wait(node, children, caller).await,
            None => {
                old.clear().await;
                self.acquire(caller).await
            }
        }
    }

    /// Makes the node and enters it in its line, for locks that do not hold by being first. Returns the node's name and
    /// the children of its parent.
    pub(super) async fn stand(&self, caller: &mut impl Caller) -> Result<(String, Vec<String>), Stop> {
        let (node, children) = self.create().await?;
        self.enter(&node, caller).await?;
        Ok((node.name, children))
    }

    /// E and S of the node's token, if the node may stay in its line.
    async fn enter(&self, node: &Node, caller: &mut impl Caller) -> Result<(u64, u32), Stop> {
        let live = &self.candidate.live;
        if node.seen.owner != live.link.id() {
            // Another session owns the node: our connection was given a new session id without notice. Our proof says
            // nothing of that session, so this one is given up.
            live.over.cancel();
            return Err(NotGranted::Lost.into());
        }
        // Compared now and not after the wait: later grants to others are larger by right.
        let before = self.made.before().expect("a node that was found is one whose create was sent");
        let epoch = live.epoch(node.seen.czxid, before)?;
        let sequence = self.candidate.sequence(&node.name);
        live.metrics.sequence(sequence);
        if self.delayed.is_some() && sequence > LAST_RECORDED {
            return Err(NotGranted::KeyLimit(NUMBERS_USED_UP).into());
        }
        if self.delayed.is_none() && sequence > self.candidate.line.last(live.sequence_limit) {
            if !self.candidate.line.is_native() {
                return Err(NotGranted::KeyLimit(NUMBERS_USED_UP).into());
            }
            let full = FullParent::mark(&self.candidate).await?;
            self.clear().await;
            full.replaced(caller).await?;
            // The caller tries again with a new attempt, which makes its node under the new parent.
            return Err(NotGranted::Lost.into());
        }
        Ok((epoch, sequence))
    }

    async fn wait(&self, node: Node, children: Vec<String>, caller: &mut impl Caller) -> Result<Grant, Stop> {
        let (epoch, sequence) = self.enter(&node, caller).await?;
        let contended = self.candidate.stand_in_line(&node.name, children, caller).await?;
        if let Some(delayed) = &self.delayed {
            let held = [FirstNode { candidate: &self.candidate, name: &node.name }];
            delayed.take_over(&held, epoch, caller).await?;
        }
        self.candidate.proven(caller).await?;
        self.delayed.iter().for_each(Delayed::in_use);
        let evidence = Arc::new(Evidence::of(self.candidate.live.proof.clone()));
        let nodes = [self.candidate.path(&node.name)].into();
        Ok(Grant { epoch, sequence, permit: None, evidence, nodes, contended })
    }

    /// Makes one node and lists its siblings. This takes one round trip if we know rightly whether the parent exists.
    async fn create(&self) -> Result<(Node, Vec<String>), NotGranted> {
        let mut made = false;
        let created = self.create_in_rounds(&mut made).await;
        if made && created.is_err() {
            self.candidate.take_parent_back().await;
        }
        created
    }

    /// `made`: set once we have made the parent by itself, in any round.
    async fn create_in_rounds(&self, made: &mut bool) -> Result<(Node, Vec<String>), NotGranted> {
        let parents = &self.candidate.live.registry.parents;
        let mut kept = self.candidate.takes_kept_parent();
        for round in 0..CREATE_ROUNDS {
            let Candidate { line, parent, .. } = &self.candidate;
            // Other programs make their parents mostly themselves, so we first try the create without making one.
            let below = !line.is_native() || round >= PATIENT_ROUNDS || parents.expects(parent);
            let found = match kept.take() {
                Some(number) => self.create_next(number).await?,
                None if below => self.create_below(round, made).await?,
                None => self.create_with_parent().await?,
            };
            if let Some(found) = found {
                self.candidate.saw(&found.1);
                return Ok(found);
            }
        }
        Err(NotGranted::Service("the lock node could not be made: its parent came and went".into()))
    }

    /// Makes the node below an existing parent. `None`: the parent was missing, or the answer was lost and no node was
    /// made; begin again.
    async fn create_below(
        &self,
        round: usize,
        made: &mut bool,
    ) -> Result<Option<(Node, Vec<String>)>, NotGranted> {
        let Candidate { live, parent, .. } = &self.candidate;
        self.sending();
        let requested = self.candidate.requested();
        let makes = round >= PATIENT_ROUNDS && self.candidate.line.is_native();
        let (record, kind) = self.candidate.above();
        let above = makes.then(|| live.link.create(parent, record, kind));
        let create = live.link.create(&requested, &self.says, Kind::EphemeralSequential);
        let list = live.link.children(parent);
        failpoint::pass("after_create_sent");
        // The answer to the create tells whether the parent exists. A parent that we have made is removed again if no
        // node gets made.
        let (above, created, children) = tokio::join!(OptionFuture::from(above), create, list);
        *made |= matches!(above, Some(Ok(_)));
        match created {
            Ok(Created { seen, sequence }) => {
                let name = self.candidate.numbered(sequence);
                self.made.named(&name);
                let children = match children {
                    Ok(children) => children,
                    Err(_) => self.candidate.list().await?,
                };
                Ok(Some((Node { name, seen }, children)))
            }
            Err(Fault::NoNode) => {
                self.made.nothing();
                live.registry.parents.is_gone(parent);
                if !self.candidate.line.is_native() {
                    self.candidate.create_above().await?;
                }
                Ok(None)
            }
            Err(Fault::Ambiguous(_)) => self.candidate.recover().await,
            Err(fault) => {
                self.made.nothing();
                Err(refused(fault))
            }
        }
    }

    /// Makes parent and node in one transaction, as the first contender of a key does. `None`: another contender was
    /// faster, or the shard was missing and is now made; begin again.
    async fn create_with_parent(&self) -> Result<Option<(Node, Vec<String>)>, NotGranted> {
        let Candidate { live, parent, .. } = &self.candidate;
        let (requested, name) = (self.candidate.requested(), self.candidate.numbered(0));
        let (path, parent) = (self.candidate.path(&name), parent.clone());
        let (record, kind) = self.candidate.above();
        let (record, says) = (record.to_owned(), self.says.clone());
        self.sending();
        let made = live.first(NewKey { parent, record, kind, requested, path, says });
        failpoint::pass("after_create_sent");
        match made.await {
            Ok(seen) => {
                self.made.named(&name);
                // Below a new parent there can be no other node.
                Ok(Some((Node { name: name.clone(), seen }, vec![name])))
            }
            Err(Failed { fault: Fault::Ambiguous(_), .. }) => self.candidate.recover().await,
            Err(Failed { fault, .. }) => {
                self.made.nothing();
                match fault {
                    Fault::NodeExists => {
                        self.candidate.shares_key();
                        live.registry.parents.is_there(&self.candidate.parent);
                        Ok(None)
                    }
                    Fault::NoNode => self.candidate.create_above().await.map(|()| None),
                    fault => Err(refused(fault)),
                }
            }
        }
    }

    /// Makes the node below a parent that was kept, and that nobody else was seen to use. `number`: the one that the node
    /// should get. `None`: the parent was missing, or the answer was lost and no node was made; begin again.
    async fn create_next(&self, number: i64) -> Result<Option<(Node, Vec<String>)>, NotGranted> {
        let Candidate { live, parent, .. } = &self.candidate;
        let expected = self.candidate.path(&self.candidate.numbered(number));
        let (parent, requested) = (parent.clone(), self.candidate.requested());
        self.sending();
        let says = self.says.clone();
        let made = live.next(NextNode { parent, requested, expected: expected.clone(), says });
        failpoint::pass("after_create_sent");
        match made.await {
            Ok(NextMade { seen, path, children }) => {
                if path != expected {
                    self.candidate.shares_key();
                }
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                self.made.named(&name);
                let children = match children {
                    Some(children) => children,
                    None => self.candidate.list().await?,
                };
                Ok(Some((Node { name, seen }, children)))
            }
            Err(Failed { fault: Fault::Ambiguous(_), .. }) => self.candidate.recover().await,
            Err(Failed { fault, .. }) => {
                self.made.nothing();
                match fault {
                    Fault::NoNode => {
                        self.candidate.misses_parent();
                        Ok(None)
                    }
                    fault => Err(refused(fault)),
                }
            }
        }
    }

    /// `None`: the old node had gone before, and nothing was done.
    async fn replace(&self, old: &Self) -> Result<Option<(Node, Vec<String>)>, NotGranted> {
        let Some(name) = old.made.names() else { return Ok(None) };
        let (live, path, requested) =
            (&self.candidate.live, old.candidate.path(&name), self.candidate.requested());
        let clean = GrantRecord::clean().bytes();
        let mut steps = vec![Step::Delete { path: &path, version: None }];
        if old.leaves_clean() {
            steps.push(Step::Set { path: &old.candidate.parent, data: &clean });
        }
        steps.push(Step::Create { path: &requested, data: &self.says, kind: Kind::EphemeralSequential });
        self.sending();
        let created = match live.link.commit(&steps).await {
            Ok(mut paths) => paths.pop().flatten(),
            Err(Failed { fault: Fault::Ambiguous(_), .. }) => None,
            Err(_) => {
                self.made.nothing();
                return Ok(None);
            }
        };
        let Some(name) = created.as_deref().and_then(|path| path.rsplit('/').next()) else {
            return self.candidate.recover().await;
        };
        let path = self.candidate.path(name);
        let (seen, children) = (live.link.seen(&path), live.link.children(&self.candidate.parent));
        match tokio::join!(seen, children) {
            (Ok(Some(seen)), Ok(children)) => {
                old.gone();
                self.candidate.saw(&children);
                let name = name.to_owned();
                self.made.named(&name);
                Ok(Some((Node { name, seen }, children)))
            }
            _ => self.candidate.recover().await,
        }
    }

    /// A create is about to be sent.
    fn sending(&self) {
        self.made.sending(self.candidate.live.memory.highest());
    }

    /// Its node is gone.
    fn gone(&self) {
        self.made.nothing();
        self.delayed.iter().for_each(Delayed::left);
    }

    /// The name of the node, once an unambiguous answer gave it.
    pub fn node(&self) -> Option<String> {
        self.made.names()
    }

    /// The only node of this attempt was removed by the caller of this.
    pub(super) fn was_removed(&self) {
        self.made.nothing();
    }

    /// Returns when no node of this attempt is left, or the session is over.
    pub async fn clear(&self) {
        if !self.made.may_exist() {
            return;
        }
        if let Some(delayed) = self.delayed.as_ref().filter(|delayed| delayed.leaves_clean()) {
            for name in delayed.nodes() {
                delayed::leave(&self.candidate, &name).await;
            }
            delayed.left();
            if self.made.names().is_some() {
                return self.made.nothing();
            }
        }
        match self.made.names() {
            Some(name) => self.candidate.remove(&name).await,
            None => self.candidate.purge().await,
        }
        self.made.nothing();
    }
}

/// Refusal text for a lock of other programs whose sequence numbers are used up.
pub(super) const NUMBERS_USED_UP: &str =
    "the numbers below the lock path are used up; remove its parent while no program uses it";

impl<L: Link> Drop for Attempt<L> {
    fn drop(&mut self) {
        if self.made.may_exist() {
            // `clear` has not ended, so the node may still hold; it stays registered and nobody removes it.
            self.registered.stays();
        }
    }
}
