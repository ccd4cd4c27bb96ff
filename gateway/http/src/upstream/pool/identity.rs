//! Makes the introductions of an upstream, before anything is sent to one of its endpoints.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::{FutureExt, future::join_all};
use tokio::{task::spawn_local, time::timeout};

use super::{ConnectError, Pool};
use crate::{
    network::Network,
    upstream::{address::Address, endpoint::Endpoint, endpoint_set::EndpointSet, identity_check::CheckDue},
};

impl<N: Network> Pool<N> {
    /// Asks all addresses of an upstream, also if they have one name. If the answers contradict each other, all are
    /// asked again: an answer may be from before a restart. An address that does not answer contradicts nobody.
    ///
    /// # Errors
    /// The answers contradict each other, although all were asked just now; or an address could not be asked.
    pub(super) async fn check_all(&self, fleet: &Arc<EndpointSet>) -> Result<(), ConnectError> {
        let upstream = &fleet.upstream;
        if !self.identity_check.is_required(upstream) {
            return Ok(());
        }
        // There is only one address, which is asked on its own connection.
        if fleet.is_one_address() {
            return Ok(());
        }
        let asked = all_addresses(fleet).await;
        if asked.len() > 1 {
            let mut first = Vec::new();
            for (endpoint, address) in &asked {
                match self.identity_check.due(upstream, address) {
                    CheckDue::NotDue => {}
                    CheckDue::Before => first.push(self.check_one(fleet, endpoint, address)),
                    CheckDue::Background => self.check_in_background(fleet, endpoint, address),
                }
            }
            // All at once, so that a silent address does not hold up the others.
            for asked in join_all(first).await {
                asked?;
            }
        }
        self.identity_check.check_consistent(upstream).map_err(|why| {
            let endpoint = fleet.endpoints().first().map_or_else(Arc::default, |one| one.name.clone());
            ConnectError::Distrusted { endpoint, why }
        })
    }

    /// Asks one address, and notes its answer, or that there was none.
    ///
    /// # Errors
    /// It was not asked, because its endpoint had no free connection.
    async fn check_one(
        &self,
        fleet: &EndpointSet,
        endpoint: &Arc<Endpoint>,
        address: &Arc<Address>,
    ) -> Result<(), ConnectError> {
        let upstream = &fleet.upstream;
        // If all connections are in use, this wait makes workers close idle ones.
        let Ok(place) = timeout(upstream.connect_timeout, endpoint.clone().acquire()).await else {
            return match self.identity_check.due(upstream, address) {
                CheckDue::Before => Err(ConnectError::LimitReached),
                CheckDue::NotDue | CheckDue::Background => Ok(()),
            };
        };
        let asked = self.connect(fleet, endpoint, Some(address.clone()), place).boxed_local();
        if let Ok(pooled) = asked.await {
            self.idle.put(pooled, upstream.idle);
        }
        Ok(())
    }

    /// Asks in the background, while requests go to other addresses. The connection is not counted, like that of a
    /// health check, so that a silent address takes no place from a request.
    fn check_in_background(
        &self,
        fleet: &Arc<EndpointSet>,
        endpoint: &Arc<Endpoint>,
        address: &Arc<Address>,
    ) {
        let (pool, fleet) = (self.clone(), fleet.clone());
        let (endpoint, address) = (endpoint.clone(), address.clone());
        spawn_local(async move {
            drop(pool.connect(&fleet, &endpoint, Some(address), Endpoint::uncounted_permit()).await);
        });
    }
}

/// Every address of every endpoint. The wait for a first lookup is as long as that for a connection.
async fn all_addresses(fleet: &EndpointSet) -> Vec<(Arc<Endpoint>, Arc<Address>)> {
    let limit = fleet.upstream.connect_timeout;
    let of_one = |endpoint: &Arc<Endpoint>| {
        let endpoint = endpoint.clone();
        async move {
            let addresses = timeout(limit, endpoint.addresses.all()).await.unwrap_or_default();
            addresses.into_iter().map(move |address| (endpoint.clone(), address))
        }
    };
    join_all(fleet.endpoints().iter().map(of_one)).await.into_iter().flatten().collect()
}
