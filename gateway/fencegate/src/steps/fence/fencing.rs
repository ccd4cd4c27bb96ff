//! What the step works with.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_http::{buffered::Budget, share::Shares};
use fencegate_lock::tenures::keeper::Keeper;
use fencegate_process::clock::SharedClock;
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::courier::Courier;
use crate::{
    agreement::Accord,
    edition::Edition,
    metrics::{WorkerMetrics, hot::Hot},
    ticketing::Ticketing,
    trust::Guards,
};

/// Keeps the keys of requests, for one worker and one plan.
#[derive(Clone)]
pub struct Fencing<N> {
    pub keeper: Keeper,
    /// Sends requests on to the gateways that keep their keys.
    pub courier: Option<Rc<Courier<N>>>,
    pub edition: Arc<Edition>,
    /// Whether other gateways lock what we lock.
    pub accord: Accord,
    pub guards: Arc<Guards>,
    /// Where tickets are signed.
    pub tickets: Option<Arc<Ticketing>>,
    /// What each client waits for or holds.
    pub shares: Shares,
    pub clock: SharedClock,
    /// Answers too large to be taken in full, still on their way.
    pub running: TaskTracker,
    pub drain: CancellationToken,
    pub metrics: Rc<WorkerMetrics>,
    /// For answers that are here in full.
    pub budget: Budget,
    /// Which keys are waited for.
    pub hot: Hot,
}

impl<N> Fencing<N> {
    /// A request that waits for a lock may go on for a part of the drain; then it is better told to go elsewhere.
    pub(super) async fn drained(&self, patience: Duration) {
        self.drain.cancelled().await;
        sleep(patience).await;
    }
}
