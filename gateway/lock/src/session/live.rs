//! The session of the moment, as those see it who act under it, and as the rest of the gateway sees it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use fencegate_process::{
    clock::{Boot, SharedClock},
    randomness::Randomness,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{
    collected::Collected,
    epoch::epoch,
    heartbeat::Rhythm,
    link::Link,
    nameplate::{Nameplate, Publishes},
    paths::Paths,
    proof::Proof,
    published_plan::Announced,
};
use crate::{
    metrics::SessionMetrics, not_granted::NotGranted, reach::Reach, session::registry::Registry,
    state::Memory,
};

/// A registered session, shared by all that act under it on its thread.
pub struct Live<L> {
    pub link: L,
    pub paths: Paths,
    /// Name of our member node.
    pub member: String,
    /// Where other gateways reach this process.
    pub reach: Option<Reach>,
    pub(super) plate: Nameplate,
    /// What it has published of the plan; nothing, where the process publishes nothing.
    pub(super) announced: Option<Announced>,
    pub proof: Arc<Proof>,
    /// Added to a czxid to make the epoch of a token.
    pub base: u64,
    pub memory: Arc<Memory>,
    pub registry: Registry,
    /// What is about to be sent.
    pub(crate) collected: Collected,
    /// No new grant under this session: it is over, or about to be given up.
    pub over: CancellationToken,
    pub clock: SharedClock,
    pub randomness: Arc<dyn Randomness>,
    pub sequence_limit: u32,
    pub metrics: SessionMetrics,
    /// The arithmetic of its timeout, which a reconnect may shorten.
    pub(super) rhythm: Cell<Rhythm>,
    pub(super) beaten: Notify,
    /// When a heartbeat was acknowledged last, whether or not that moved the proof.
    pub(super) acknowledged: Cell<Boot>,
    /// A node of this session was not above what had been seen before.
    pub(super) went_back: Cell<bool>,
}

impl<L: Link> Live<L> {
    /// What a lock node says by which others find us; nothing where they cannot reach us.
    pub fn signature(&self) -> &[u8] {
        if self.reach.is_some() { self.member.as_bytes() } else { b"" }
    }

    pub(super) fn publishes(&self) -> Option<(&Publishes, &Announced)> {
        self.plate.publishes().zip(self.announced.as_ref())
    }

    /// The arithmetic of its timeout as it is now.
    pub(crate) fn rhythm(&self) -> Rhythm {
        self.rhythm.get()
    }

    /// Returns when the proof holds. Does not return for a session that is over: select on [`Live::over`] beside it.
    pub async fn proven(&self) {
        while !self.proof.holds(self.clock.now()) {
            self.beaten.notified().await;
        }
    }

    /// E of a node of ours. `before`: the highest epoch that was known when its create was sent; the node may have
    /// waited since, so what is known now says nothing.
    ///
    /// # Errors
    /// The czxid gives no token, or ZooKeeper went back; then no byte leaves under this session any more, and it is
    /// given up.
    pub fn epoch(&self, czxid: i64, before: u64) -> Result<u64, NotGranted> {
        let epoch = epoch(self.base, czxid)?;
        match self.memory.saw(epoch, before) {
            Ok(()) => Ok(epoch),
            Err(why) => {
                self.proof.revoke();
                self.went_back.set(true);
                error!(code = "FG0503", %why, "lock.rolled_back");
                self.memory.alarm();
                Err(NotGranted::Lost)
            }
        }
    }
}

/// What the rest of the gateway sees of the session.
#[derive(Debug, Clone)]
pub enum View {
    /// No session; why.
    Away(Arc<str>),
    /// No session: nobody has made the installation yet; and how to.
    Unmade(Arc<str>),
    /// No session is made: ZooKeeper went back, and how that shows.
    RolledBack(Arc<str>),
    Live {
        connected: bool,
        proof: Arc<Proof>,
    },
}

impl View {
    /// Could a lock be granted now?
    pub fn is_ready(&self, clock: &SharedClock) -> bool {
        matches!(self, View::Live { connected: true, proof } if proof.holds(clock.now()))
    }
}

/// The session of the moment, on its own thread.
pub struct Current<L> {
    live: RefCell<Option<Rc<Live<L>>>>,
    made: Notify,
}

impl<L> Default for Current<L> {
    fn default() -> Self {
        Self { live: RefCell::new(None), made: Notify::new() }
    }
}

impl<L> Current<L> {
    pub fn live(&self) -> Option<Rc<Live<L>>> {
        self.live.borrow().clone()
    }

    /// Returns when there is another session than before.
    pub async fn changed(&self) {
        self.made.notified().await;
    }

    pub(super) fn set(&self, live: Option<Rc<Live<L>>>) -> Option<Rc<Live<L>>> {
        let before = self.live.replace(live);
        self.made.notify_waiters();
        before
    }
}
