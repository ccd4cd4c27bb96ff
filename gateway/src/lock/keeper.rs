//! Gives out tenures: the workers' handle on the one thread that talks to ZooKeeper.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::key::ResourceKey;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    queues::{Full, Queues},
    recipe::{self, Grant, NotGranted, Order, Patience},
    tenure::Tenure,
};
use crate::session::{
    clock::SharedClock,
    link::Connect,
    supervise::{Current, Settings, View, supervise},
};

/// Asks for locks from any thread. Cheap to clone.
#[derive(Clone)]
pub struct Keeper {
    orders: mpsc::UnboundedSender<Order>,
    view: watch::Receiver<View>,
    queues: Arc<Queues>,
    clock: SharedClock,
}

/// How long, and behind how many.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Zero: only if it is free now.
    pub wait: Duration,
    /// Requests of this gateway that may wait behind the holder.
    pub queue: usize,
}

/// Why there is no tenure. Nothing was dispatched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("held by another and the wait is over")]
    Locked,
    #[error("too many requests wait for this key")]
    QueueFull,
    #[error("the key's queue in ZooKeeper has used up its numbers")]
    KeyLimit,
    #[error("no lock service: {0}")]
    Service(String),
}

impl Keeper {
    /// Takes the lock of `key`.
    ///
    /// While the connection to ZooKeeper is away for less than the proof lasts, requests wait for it to come back;
    /// beyond that they are refused at once, and nothing piles up.
    ///
    /// # Cancellation
    /// Dropping the future gives up the place in the queue; a node that exists is removed by its own task.
    pub async fn acquire(&self, key: &ResourceKey, limits: Limits) -> Result<Tenure, Refused> {
        let place = self.queues.enter(key, limits.queue).map_err(|Full| Refused::QueueFull)?;
        let patience = if limits.wait.is_zero() { Patience::Try } else { Patience::Wait };
        let deadline = Instant::now() + limits.wait.max(LEAST_WAIT);
        let mut view = self.view.clone();
        self.check(&view)?;
        loop {
            match timeout_at(deadline, self.order(key, patience)).await {
                Ok(Ok(grant)) => return Ok(Tenure::new(grant, place)),
                Ok(Err(NotGranted::Locked)) => return Err(Refused::Locked),
                Ok(Err(NotGranted::KeyLimit)) => return Err(Refused::KeyLimit),
                Ok(Err(NotGranted::Service(why))) => return Err(Refused::Service(why)),
                Ok(Err(NotGranted::Lost)) => self.next_session(&mut view, deadline).await?,
                Err(_elapsed) => return Err(self.why_not()),
            }
        }
    }

    /// Could a lock be granted now?
    pub fn is_ready(&self) -> bool {
        self.view.borrow().is_ready(&self.clock)
    }

    /// The session as last reported.
    pub fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// Keys with at least one request on this gateway.
    pub fn keys(&self) -> usize {
        self.queues.keys()
    }

    async fn order(&self, key: &ResourceKey, patience: Patience) -> Result<Grant, NotGranted> {
        let (caller, answer) = oneshot::channel();
        let gone = || NotGranted::Service("the gateway is stopping".into());
        self.orders.send(Order { key: key.clone(), patience, caller }).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    fn check(&self, view: &watch::Receiver<View>) -> Result<(), Refused> {
        match &*view.borrow() {
            View::Away(why) => Err(Refused::Service(why.to_string())),
            View::Live { connected: false, proof } if !proof.holds(self.clock.now()) => {
                Err(Refused::Service("the connection to ZooKeeper is lost".into()))
            }
            View::Live { .. } => Ok(()),
        }
    }

    /// A waiter whose session ended queues again under the next one, if that comes in time.
    async fn next_session(&self, view: &mut watch::Receiver<View>, deadline: Instant) -> Result<(), Refused> {
        let live = view.wait_for(|view| matches!(view, View::Live { proof, .. } if !proof.is_revoked()));
        match timeout_at(deadline, live).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(self.why_not()),
        }
    }

    /// The wait is over: because of another holder, or because nobody could have been granted anything?
    fn why_not(&self) -> Refused {
        match &*self.view.borrow() {
            View::Away(why) => Refused::Service(why.to_string()),
            View::Live { connected: false, .. } => {
                Refused::Service("the connection to ZooKeeper is lost".into())
            }
            View::Live { .. } => Refused::Locked,
        }
    }
}

/// Even a request that does not wait for another holder gives ZooKeeper the time for its answer.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// The other end of the keeper: runs on the session's thread until stopped.
pub struct Desk {
    orders: mpsc::UnboundedReceiver<Order>,
    view: watch::Sender<View>,
}

/// A keeper and its desk.
pub fn keeper(clock: SharedClock) -> (Keeper, Desk) {
    let (orders, ordered) = mpsc::unbounded_channel();
    let (seen, view) = watch::channel(View::Away("connecting to ZooKeeper".into()));
    (Keeper { orders, view, queues: Arc::default(), clock }, Desk { orders: ordered, view: seen })
}

impl Desk {
    /// Serves orders and keeps the session, until `stop`; then lets the nodes that are being removed go, and closes
    /// the session. Call it on a current-thread runtime inside a `LocalSet`.
    pub async fn run<C: Connect>(self, connect: C, settings: Settings, stop: CancellationToken) {
        let Self { mut orders, view } = self;
        let (settings, current) = (Rc::new(settings), Rc::new(Current::default()));
        let attempts = TaskTracker::new();
        let no_more = CancellationToken::new();
        let session = supervise(connect, settings.clone(), current.clone(), view, no_more.clone());
        let serving = async {
            while let Some(order) =
                tokio::select! { order = orders.recv() => order, () = stop.cancelled() => None }
            {
                let Some(live) = current.live() else {
                    drop(order.caller.send(Err(NotGranted::Lost)));
                    continue;
                };
                let randomness = settings.randomness.clone();
                attempts.spawn_local(async move { recipe::contend(live, order, &*randomness).await });
            }
            attempts.close();
            // The session stays until then: removing a node needs it.
            drop(tokio::time::timeout(LAST_NODES, attempts.wait()).await);
            no_more.cancel();
        };
        tokio::join!(session, serving);
    }
}

/// How long removals of lock nodes may take after everything else has stopped.
const LAST_NODES: Duration = Duration::from_secs(2);
