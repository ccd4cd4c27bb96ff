//! The published form of a gateway's plan, the plan that a session has published, and the evaluation of the peers' plans. In this crate a plan is just bytes
//! with a name.

use std::{cell::RefCell, fmt, sync::Arc};

use aws_lc_rs::digest::{SHA256, digest};
use fencegate_policies::hex;
use tracing::warn;

/// The bytes of a plan, named by their hash.
#[derive(Clone, PartialEq, Eq)]
pub struct PublishedPlanBytes {
    fingerprint: Arc<str>,
    bytes: Arc<[u8]>,
}

/// The plan of one session of another registered gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerPlanPublication {
    pub gateway: String,
    pub age: PeerPlanPublicationOrder,
    pub says: PeerPlanStatus,
}

/// Whether another gateway's plan was published before or after the plan of this gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerPlanPublicationOrder {
    /// The peer's plan was published before the plan of this gateway. The peer may not have seen the plan of this
    /// gateway, so this gateway has to give way.
    Older,
    /// The peer's plan was published after the plan of this gateway. The peer has seen the plan of this gateway, and
    /// gives way.
    Younger,
    /// The peer never gives way: its build neither publishes plans nor compares them.
    Legacy,
}

/// The published plan of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerPlanStatus {
    Published(PublishedPlanBytes),
    /// The peer's plan could not be read; the text is the error.
    Unreadable(String),
    /// The peer has published nothing, and its fingerprint means that it locks other keys. Older builds compare only
    /// fingerprints.
    Incompatible,
}

impl PeerPlanStatus {
    pub fn publication(&self) -> Option<&PublishedPlanBytes> {
        match self {
            Self::Published(publication) => Some(publication),
            Self::Unreadable(_) | Self::Incompatible => None,
        }
    }
}

/// Interprets the bytes of plans. Its methods run on the thread of the sessions, so they must not take long.
pub trait PlanConflictHandler: fmt::Debug + Send + Sync {
    /// `session` has published `ours`, and `others` have incompatible plans. From now on the session may lock only the
    /// keys that these plans leave to it.
    fn record_conflicting_plans(
        &self,
        session: i64,
        ours: &PublishedPlanBytes,
        others: &[PeerPlanPublication],
    );

    /// `session` is about to publish `next` in place of `ours`. From now on it may lock only the keys that it may lock
    /// under both plans.
    ///
    /// # Errors
    /// Returns an error if the session may not publish `next` now: its plan would become the youngest while it works on
    /// keys that a peer locks differently. The text is for the log.
    fn begin_plan_switch(
        &self,
        session: i64,
        ours: &PublishedPlanBytes,
        next: &PublishedPlanBytes,
        others: &[PeerPlanPublication],
    ) -> Result<(), String>;

    /// Records that the session is over; nothing may be locked under it.
    fn end_session(&self, session: i64);
}

impl PublishedPlanBytes {
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let hash = digest(&SHA256, &bytes);
        let mut digits = vec![0; 2 * hash.as_ref().len()];
        hex::write_digits(hash.as_ref(), &mut digits);
        let fingerprint = String::from_utf8(digits).expect("hex digits are ASCII");
        Self { fingerprint: fingerprint.into(), bytes: bytes.into() }
    }

    /// The name of the plan: 64 hex digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Shows the number of bytes in place of the bytes, because there may be very many.
impl fmt::Debug for PublishedPlanBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publication({}, {} bytes)", self.fingerprint, self.bytes.len())
    }
}

/// The published plan of one session.
#[derive(Debug)]
pub(super) struct PublishedPlanState {
    now: RefCell<PublishedPlanBytes>,
    /// The plan that is being published. After a lost answer it stays here until it is known whether this plan or the
    /// former one is published.
    pub(super) next: RefCell<Option<PublishedPlanBytes>>,
    /// The reason that was last logged for a delay of the publication.
    told: RefCell<String>,
}

impl PublishedPlanState {
    pub(super) fn new(publication: PublishedPlanBytes) -> Self {
        Self { now: RefCell::new(publication), next: RefCell::default(), told: RefCell::default() }
    }

    pub(super) fn current(&self) -> PublishedPlanBytes {
        self.now.borrow().clone()
    }

    pub(super) fn complete_plan_switch(&self) {
        if let Some(next) = self.next.take() {
            self.now.replace(next);
        }
        self.told.take();
    }

    pub(super) fn log_publication_delay(&self, why: String) {
        if *self.told.borrow() != why {
            warn!(code = "FG0550", why, "the new plan is not published yet: its new routes are refused");
            self.told.replace(why);
        }
    }
}
