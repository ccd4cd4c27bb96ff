//! Makes the identity checks of an upstream, before anything is sent to one of its endpoints.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use fencegate_http::network::Network;
use futures_util::{FutureExt, future::join_all};
use tokio::{task::spawn_local, time::timeout};

use super::{ConnectError, ConnectionPool};
use crate::upstream::{
    address::ResolvedEndpoint, endpoint::Endpoint, endpoint_set::EndpointSet,
    identity_check::IdentityCheckDue,
};

impl<N: Network> ConnectionPool<N> {
    /// Checks all addresses of an upstream, also those behind the same name. If the answers contradict each other,
    /// all are checked again: an answer may be from before a restart. An address that does not answer contradicts no
    /// other.
    ///
    /// # Errors
    /// Returns an error if the answers contradict each other, although all were checked just now, or if an address
    /// could not be checked.
    pub(super) async fn check_all_identities(
        &self,
        endpoint_set: &Arc<EndpointSet>,
    ) -> Result<(), ConnectError> {
        let upstream = &endpoint_set.upstream;
        if !self.identity_check.is_identity_check_required(upstream) {
            return Ok(());
        }
        // The only address is checked on each new connection to it, so there is nothing to compare.
        if endpoint_set.is_one_address() {
            return Ok(());
        }
        let addresses = all_addresses(endpoint_set).await;
        if addresses.len() > 1 {
            let mut first = Vec::new();
            for (endpoint, address) in &addresses {
                match self.identity_check.check_due(upstream, address) {
                    IdentityCheckDue::NotDue => {}
                    IdentityCheckDue::Before => {
                        first.push(self.check_address_identity(endpoint_set, endpoint, address))
                    }
                    IdentityCheckDue::Background => {
                        self.check_identity_in_background(endpoint_set, endpoint, address)
                    }
                }
            }
            // The checks run at the same time, so that a silent address does not delay the others.
            for result in join_all(first).await {
                result?;
            }
        }
        self.identity_check.check_identities_consistent(upstream).map_err(|why| {
            let endpoint = endpoint_set.endpoints().first().map_or_else(Arc::default, |one| one.name.clone());
            ConnectError::Distrusted { endpoint, why }
        })
    }

    /// Checks one address, and records its answer, or that it did not answer.
    ///
    /// # Errors
    /// Returns an error if the address was not checked because its endpoint had no free connection.
    async fn check_address_identity(
        &self,
        endpoint_set: &EndpointSet,
        endpoint: &Arc<Endpoint>,
        address: &Arc<ResolvedEndpoint>,
    ) -> Result<(), ConnectError> {
        let upstream = &endpoint_set.upstream;
        // If all connections of the endpoint are in use, this wait makes workers close idle ones.
        let Ok(permit) = timeout(upstream.connect_timeout, endpoint.clone().acquire()).await else {
            return match self.identity_check.check_due(upstream, address) {
                IdentityCheckDue::Before => Err(ConnectError::LimitReached),
                IdentityCheckDue::NotDue | IdentityCheckDue::Background => Ok(()),
            };
        };
        let connecting = self.connect(endpoint_set, endpoint, Some(address.clone()), permit).boxed_local();
        if let Ok(pooled) = connecting.await {
            self.idle.put(pooled, upstream.idle);
        }
        Ok(())
    }

    /// Checks an address in the background, while requests go to other addresses. As for a health check, the
    /// connection is not counted, so that a silent address takes no permit from a request.
    fn check_identity_in_background(
        &self,
        endpoint_set: &Arc<EndpointSet>,
        endpoint: &Arc<Endpoint>,
        address: &Arc<ResolvedEndpoint>,
    ) {
        let pool = self.clone();
        let endpoint_set = endpoint_set.clone();
        let endpoint = endpoint.clone();
        let address = address.clone();
        spawn_local(async move {
            drop(pool.connect(&endpoint_set, &endpoint, Some(address), Endpoint::uncounted_permit()).await);
        });
    }
}

/// Returns every address of every endpoint. It waits for a first lookup for at most the connect timeout.
async fn all_addresses(endpoint_set: &EndpointSet) -> Vec<(Arc<Endpoint>, Arc<ResolvedEndpoint>)> {
    let limit = endpoint_set.upstream.connect_timeout;
    let of_one = |endpoint: &Arc<Endpoint>| {
        let endpoint = endpoint.clone();
        async move {
            let addresses = timeout(limit, endpoint.addresses.all()).await.unwrap_or_default();
            addresses.into_iter().map(move |address| (endpoint.clone(), address))
        }
    };
    join_all(endpoint_set.endpoints().iter().map(of_one)).await.into_iter().flatten().collect()
}
