//! The state that all steps of one plan share at one worker.

use std::{rc::Rc, sync::Arc};

use fencegate_config::{active_config::ActiveConfig, process_context::ProcessContext};
use fencegate_guard_client::guard_identity::UpstreamGuardRegistry;
use fencegate_http::client_quota::ClientQuotas;
use fencegate_metrics::WorkerMetrics;
use tokio_util::task::TaskTracker;

/// The state of one plan at one worker.
pub struct WorkerPlanContext {
    pub process: Arc<ProcessContext>,
    /// The plan, its upstreams, and the counts of its requests, as all workers serve it.
    pub config: Arc<ActiveConfig>,
    pub metrics: Rc<WorkerMetrics>,
    /// The identities of the guards among the upstreams, as they were observed.
    pub guards: Arc<UpstreamGuardRegistry>,
    /// The number of requests of each client, over all workers.
    pub clients: ClientQuotas,
    /// Exchanges, answers and tunnels that no connection waits for. A stopping process waits for them.
    pub running: TaskTracker,
}
