//! The exchange that a connection is lent to, until it is given back or dropped.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::plan::Upstream;
use tokio::time::timeout;

use super::{address::Address, endpoint::Counted, fleet::Fleet, gate::Gate, idle::Idle, link::Link};

/// A connection while it carries an exchange. Unless it is given back, it ends with the lend.
pub struct Lend {
    /// Not in here: a lend is handed from step to step with the answer.
    link: Option<Box<Link>>,
    fleet: Arc<Fleet>,
    idle: Rc<Idle>,
    /// How long the connection may lie idle afterwards.
    keep: Duration,
    _busy: Counted,
}

impl Lend {
    pub(super) fn new(link: Box<Link>, fleet: Arc<Fleet>, idle: Rc<Idle>) -> Self {
        let (keep, busy) = (fleet.upstream.idle, link.endpoint.busy());
        Self { link: Some(link), fleet, idle, keep, _busy: busy }
    }

    pub fn link(&mut self) -> &mut Link {
        self.link.as_mut().expect("taken only when the lend ends")
    }

    fn lent(&self) -> &Link {
        self.link.as_ref().expect("taken only when the lend ends")
    }

    pub fn gate(&self) -> &Rc<Gate> {
        &self.lent().gate
    }

    /// The process that has said who it is, and where it is.
    pub fn process(&self) -> Option<(&Address, &Arc<str>)> {
        let link = self.lent();
        Some((&link.address, link.process.as_ref()?))
    }

    pub fn endpoint(&self) -> &Arc<str> {
        &self.lent().endpoint.name
    }

    pub fn upstream(&self) -> &Upstream {
        &self.fleet.upstream
    }

    /// The endpoint has answered.
    pub fn worked(&self) {
        self.lent().endpoint.worked();
    }

    /// The exchange failed, and that was the endpoint's own fault.
    pub fn failed(&self) {
        self.fleet.failed(&self.lent().endpoint);
    }

    /// Keeps the connection for another exchange, where this one is over already, as most are when the last byte of their
    /// answer is here. Else the lend goes on.
    pub fn give_back_if_over(mut self) -> Result<(), Self> {
        match self.link.take_if(|link| link.is_settled()) {
            Some(link) => {
                self.keep(link);
                Ok(())
            }
            None => Err(self),
        }
    }

    /// Waits until the exchange is over in both directions, and keeps the connection for another one. An upstream may
    /// answer before it has read the whole request: then the rest of the request is not worth the connection, and after
    /// `patience` no byte of it leaves any more.
    pub async fn give_back(mut self, patience: Duration) {
        let Some(mut link) = self.link.take() else { return };
        if !matches!(timeout(patience, link.settled()).await, Ok(true)) {
            return;
        }
        self.keep(link);
    }

    fn keep(&self, mut link: Box<Link>) {
        link.gate.disarm();
        link.reused = true;
        self.idle.keep(link, self.keep);
    }

    /// The upstream says how long it keeps an idle connection: never longer than that, or the next request would meet
    /// its end on the way.
    pub fn keep_at_most(&mut self, longest: Duration) {
        self.keep = self.keep.min(longest.saturating_sub(KEEP_MARGIN));
    }
}

/// Before the other side would close an idle connection, we do.
const KEEP_MARGIN: Duration = Duration::from_secs(1);
