//! The exchange that a connection is lent to, until it is given back or dropped.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::plan::Upstream;
use tokio::time::timeout;

use super::{address::Address, endpoint::Counted, fleet::Fleet, gate::Gate, idle::Idle};
use crate::upstream::pooled::Pooled;

/// A connection while it carries an exchange. Unless it is given back, it ends with the lend.
pub struct Lend {
    /// Not in here: a lend is handed from step to step with the answer.
    pooled: Option<Box<Pooled>>,
    fleet: Arc<Fleet>,
    idle: Rc<Idle>,
    /// How long the connection may lie idle afterwards.
    keep: Duration,
    _busy: Counted,
}

impl Lend {
    pub(super) fn new(pooled: Box<Pooled>, fleet: Arc<Fleet>, idle: Rc<Idle>) -> Self {
        let (keep, busy) = (fleet.upstream.idle, pooled.endpoint.busy());
        Self { pooled: Some(pooled), fleet, idle, keep, _busy: busy }
    }

    pub fn pooled(&mut self) -> &mut Pooled {
        self.pooled.as_mut().expect("taken only when the lend ends")
    }

    fn lent(&self) -> &Pooled {
        self.pooled.as_ref().expect("taken only when the lend ends")
    }

    pub fn gate(&self) -> &Rc<Gate> {
        &self.lent().gate
    }

    /// The process that has said who it is, and where it is.
    pub fn process(&self) -> Option<(&Address, &Arc<str>)> {
        let pooled = self.lent();
        Some((&pooled.address, pooled.process.as_ref()?))
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
        match self.pooled.take_if(|pooled| pooled.is_settled()) {
            Some(pooled) => {
                self.keep(pooled);
                Ok(())
            }
            None => Err(self),
        }
    }

    /// Waits until the exchange is over in both directions, and keeps the connection for another one. An upstream may
    /// answer before it has read the whole request: then the rest of the request is not worth the connection, and after
    /// `patience` no byte of it leaves any more.
    pub async fn give_back(mut self, patience: Duration) {
        let Some(mut pooled) = self.pooled.take() else { return };
        if !matches!(timeout(patience, pooled.settled()).await, Ok(true)) {
            return;
        }
        self.keep(pooled);
    }

    fn keep(&self, mut pooled: Box<Pooled>) {
        pooled.gate.disarm();
        pooled.reused = true;
        self.idle.keep(pooled, self.keep);
    }

    /// The upstream says how long it keeps an idle connection: never longer than that, or the next request would meet
    /// its end on the way.
    pub fn keep_at_most(&mut self, longest: Duration) {
        self.keep = self.keep.min(longest.saturating_sub(KEEP_MARGIN));
    }
}

/// Before the other side would close an idle connection, we do.
const KEEP_MARGIN: Duration = Duration::from_secs(1);
