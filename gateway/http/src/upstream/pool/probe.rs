//! Asks the processes at an upstream's addresses whether they are there, while they leave requests without an answer.
//! A frozen process keeps its connections open, and whatever is sent to it waits. So new requests go to the others.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::Pool;
use crate::{
    network::Network,
    upstream::{
        address::Address, endpoint::Endpoint, endpoint_set::EndpointSet, identity_check::IdentityError,
    },
};

/// How often to look whether an address has to be asked.
const TICK: Duration = Duration::from_millis(100);

/// New requests go elsewhere when a question is not answered within this time.
const SOON: Duration = Duration::from_millis(300);

/// A question that is not answered within this time has failed. The log tells it.
const LATE: Duration = Duration::from_secs(1);

impl<N: Network> Pool<N> {
    /// Asks the addresses of an endpoint for as long as it is polled. The requests that wait there go on waiting: they
    /// may be at work. Returns at once where nobody introduces himself, or where there is only one address.
    pub(in crate::upstream) async fn probe(&self, fleet: &Arc<EndpointSet>, endpoint: &Arc<Endpoint>) {
        if !self.identity_check.is_required(&fleet.upstream) || fleet.is_one_address() {
            return;
        }
        loop {
            sleep(TICK).await;
            let addresses = endpoint.addresses.known();
            let due = addresses.iter().filter(|address| address.liveness.is_due());
            join_all(due.map(|address| self.probe_address(fleet, endpoint, address))).await;
        }
    }

    /// Asks on a connection of its own, which is closed afterwards. It takes no place from a request.
    async fn probe_address(
        &self,
        fleet: &Arc<EndpointSet>,
        endpoint: &Arc<Endpoint>,
        address: &Arc<Address>,
    ) {
        let liveness = &address.liveness;
        liveness.record_probe();
        let asked = self.connect(fleet, endpoint, Some(address.clone()), Endpoint::uncounted_permit());
        let mut asked = pin!(asked.boxed_local());
        let (answered, news) = match timeout(SOON, &mut asked).await {
            Ok(answered) => (Some(answered), false),
            Err(_late) => {
                let news = liveness.record_probe_miss();
                (timeout(LATE - SOON, &mut asked).await.ok(), news)
            }
        };
        let (upstream, endpoint, socket) = (&fleet.upstream.name, &endpoint.name, &address.socket);
        match answered {
            // Whatever it says of itself, it is there.
            Some(
                Ok(_)
                | Err(
                    IdentityError::UnknownProcess(_)
                    | IdentityError::Contradicted(_)
                    | IdentityError::Distrusted(_),
                ),
            ) => {
                if liveness.record_probe_answer() && !news {
                    info!(%upstream, %endpoint, address = %socket, "endpoint.answers_again");
                }
            }
            Some(Err(IdentityError::Io(_))) | None => {
                if liveness.record_probe_miss() || news {
                    warn!(%upstream, %endpoint, address = %socket, "endpoint.silent: new requests go to the others");
                }
            }
        }
    }
}
