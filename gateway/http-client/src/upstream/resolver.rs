//! Looks up the names of endpoints in the background, so that no request waits for a name server, and connects to the
//! addresses.

use std::{io, pin::pin, sync::Arc, time::Duration};

use fencegate_http::network::{ConnectTarget, Network};
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::{address::ResolvedEndpoint, endpoint::Endpoint, endpoint_set::EndpointSet};

/// After this time a lookup counts as having found nothing.
const LATE: Duration = Duration::from_secs(5);
/// The longest pause after a lookup that found nothing.
const AGAIN: Duration = Duration::from_secs(2);

/// Looks up the name of one endpoint periodically, without end. A literal address needs no lookup.
pub(crate) async fn run_resolver<N: Network>(network: &N, endpoint_set: &EndpointSet, endpoint: &Endpoint) {
    if endpoint.addresses.is_literal() {
        return;
    }
    let refresh = endpoint_set.upstream.sharing.dns.refresh;
    loop {
        let found = look_up(network, endpoint_set, endpoint).await;
        sleep(if found { refresh } else { refresh.min(AGAIN) }).await;
    }
}

/// Makes one lookup, and records its result. Returns true if it found an address, even late.
async fn look_up<N: Network>(network: &N, endpoint_set: &EndpointSet, endpoint: &Endpoint) -> bool {
    let mut lookup = pin!(resolve_endpoint(network, endpoint));
    let found = match timeout(LATE, &mut lookup).await {
        Ok(found) => found,
        Err(_) => {
            endpoint_set.record_lookup(endpoint, None);
            // A late lookup is still awaited: it cannot be cancelled, and a second one at the same time would only add
            // load.
            match lookup.await {
                None => return false,
                found => found,
            }
        }
    };
    let any = found.is_some();
    endpoint_set.record_lookup(endpoint, found);
    any
}

/// Returns the addresses of the endpoint; `None` if there are none.
async fn resolve_endpoint<N: Network>(network: &N, endpoint: &Endpoint) -> Option<Vec<ConnectTarget>> {
    match network.resolve(&endpoint.name).await {
        Ok(found) => Some(found).filter(|found| !found.is_empty()),
        Err(error) => {
            debug!(endpoint = %endpoint.name, %error, "name not found");
            None
        }
    }
}

/// Connects to the first address that can be reached, and calls `unreached` for each one before it. Each address gets
/// an equal part of the time, so that a silent one leaves time for the others.
///
/// # Errors
/// Returns the error of the last address. Nothing was sent.
pub async fn dial<N: Network>(
    network: &N,
    addresses: &[Arc<ResolvedEndpoint>],
    limit: Duration,
    unreached: impl Fn(&Arc<ResolvedEndpoint>),
) -> io::Result<(Arc<ResolvedEndpoint>, N::Stream)> {
    let part = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "no address is known for this name");
    for address in addresses {
        let reached = timeout(part, network.dial(&address.socket)).await;
        let reached = reached.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        address.record_connect(reached.is_ok());
        match reached {
            Ok(stream) => return Ok((address.clone(), stream)),
            Err(error) => failed = error,
        }
        unreached(address);
    }
    Err(failed)
}
