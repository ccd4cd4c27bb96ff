//! Looks up the names of endpoints in the background, so that no request waits for a name server, and connects to what
//! was found.

use std::{io, pin::pin, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tracing::debug;

use super::{address::Address, endpoint::Endpoint, fleet::Fleet};
use crate::network::{Network, remote::Remote};

/// After this long a lookup counts as one that found nothing.
const LATE: Duration = Duration::from_secs(5);
/// After a lookup that found nothing the next one does not wait for longer than this.
const AGAIN: Duration = Duration::from_secs(2);

/// One endpoint, for ever; one that is an address costs nothing.
pub async fn tend<N: Network>(network: &N, fleet: &Fleet, endpoint: &Endpoint) {
    if endpoint.addresses.is_literal() {
        return;
    }
    let refresh = fleet.upstream.sharing.dns.refresh;
    loop {
        let found = look_up(network, fleet, endpoint).await;
        sleep(if found { refresh } else { refresh.min(AGAIN) }).await;
    }
}

/// True when it found something, however late.
async fn look_up<N: Network>(network: &N, fleet: &Fleet, endpoint: &Endpoint) -> bool {
    let mut lookup = pin!(addresses(network, endpoint));
    let found = match timeout(LATE, &mut lookup).await {
        Ok(found) => found,
        Err(_) => {
            fleet.looked_up(endpoint, None);
            // Not given up: the system cannot be told to stop, and a second one beside it would only add to its load.
            match lookup.await {
                None => return false,
                found => found,
            }
        }
    };
    let any = found.is_some();
    fleet.looked_up(endpoint, found);
    any
}

/// `None` where there are none.
async fn addresses<N: Network>(network: &N, endpoint: &Endpoint) -> Option<Vec<Remote>> {
    match network.resolve(&endpoint.name).await {
        Ok(found) => Some(found).filter(|found| !found.is_empty()),
        Err(error) => {
            debug!(endpoint = %endpoint.name, %error, "name not found");
            None
        }
    }
}

/// Connects to the first of them that can be reached, and tells of each before it that cannot. Each has an equal part of
/// the time: one that is silent must not use up what the others need.
///
/// # Errors
/// That of the last one. Nothing was sent.
pub async fn dial<N: Network>(
    network: &N,
    addresses: &[Arc<Address>],
    limit: Duration,
    unreached: impl Fn(&Arc<Address>),
) -> io::Result<(Arc<Address>, N::Stream)> {
    let part = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "no address is known for this name");
    for address in addresses {
        let reached = timeout(part, network.dial(&address.socket)).await;
        let reached = reached.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        address.answered(reached.is_ok());
        match reached {
            Ok(stream) => return Ok((address.clone(), stream)),
            Err(error) => failed = error,
        }
        unreached(address);
    }
    Err(failed)
}
