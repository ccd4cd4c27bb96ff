//! Probes the processes at an upstream's addresses while they leave requests without a response. A frozen process
//! keeps its connections open, and requests that are sent to it wait. So new requests have to go to the other
//! processes.

use std::{pin::pin, sync::Arc, time::Duration};

use fencegate_http::network::Network;
use futures_util::{FutureExt, future::join_all};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::ConnectionPool;
use crate::upstream::{
    address::ResolvedEndpoint, endpoint::Endpoint, endpoint_set::EndpointSet,
    identity_check::IdentityCheckError,
};

/// The interval in which it is checked whether an address has to be probed.
const TICK: Duration = Duration::from_millis(100);

/// New requests go elsewhere when a probe is not answered within this time.
const SOON: Duration = Duration::from_millis(300);

/// A probe that is not answered within this time has failed, which is logged.
const LATE: Duration = Duration::from_secs(1);

impl<N: Network> ConnectionPool<N> {
    /// Probes the addresses of an endpoint for as long as it is polled. Requests that wait at a silent address are
    /// not ended, because the process may be working on them. Returns at once if the upstream has no identity
    /// checks, or only one address.
    pub(in crate::upstream) async fn probe_addresses(
        &self,
        endpoint_set: &Arc<EndpointSet>,
        endpoint: &Arc<Endpoint>,
    ) {
        if !self.identity_check.is_identity_check_required(&endpoint_set.upstream)
            || endpoint_set.is_one_address()
        {
            return;
        }
        loop {
            sleep(TICK).await;
            let addresses = endpoint.addresses.current_addresses();
            let due = addresses.iter().filter(|address| address.liveness.is_probe_due());
            join_all(due.map(|address| self.probe_address(endpoint_set, endpoint, address))).await;
        }
    }

    /// Probes an address on a connection of its own, which is closed afterwards and takes no permit from a request.
    async fn probe_address(
        &self,
        endpoint_set: &Arc<EndpointSet>,
        endpoint: &Arc<Endpoint>,
        address: &Arc<ResolvedEndpoint>,
    ) {
        let liveness = &address.liveness;
        liveness.record_probe();
        let probe = self.connect(endpoint_set, endpoint, Some(address.clone()), Endpoint::uncounted_permit());
        let mut probe = pin!(probe.boxed_local());
        let (answered, news) = match timeout(SOON, &mut probe).await {
            Ok(answered) => (Some(answered), false),
            Err(_late) => {
                let news = liveness.mark_silent();
                (timeout(LATE - SOON, &mut probe).await.ok(), news)
            }
        };
        let upstream = &endpoint_set.upstream.name;
        let endpoint = &endpoint.name;
        let socket = &address.socket;
        match answered {
            // Any answer shows that the process is running.
            Some(
                Ok(_)
                | Err(
                    IdentityCheckError::UnknownProcess(_)
                    | IdentityCheckError::Contradicted(_)
                    | IdentityCheckError::Distrusted(_),
                ),
            ) => {
                if liveness.record_probe_answer() && !news {
                    info!(%upstream, %endpoint, address = %socket, "endpoint.answers_again");
                }
            }
            Some(Err(IdentityCheckError::Io(_))) | None => {
                if liveness.mark_silent() || news {
                    warn!(%upstream, %endpoint, address = %socket, "endpoint.silent: new requests go to the others");
                }
            }
        }
    }
}
