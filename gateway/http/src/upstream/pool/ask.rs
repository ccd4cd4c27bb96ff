//! Asks those of an upstream who have to be known who they are, before anything is sent to one of them.

use std::sync::Arc;

use futures_util::{FutureExt, future::join_all};
use tokio::time::timeout;

use super::{NotConnected, Pool};
use crate::{
    network::Network,
    upstream::{address::Address, endpoint::Endpoint, fleet::Fleet},
};

impl<N: Network> Pool<N> {
    /// Nothing is sent to one of several before all have been met. A name may stand for several, too. Where what
    /// they said does not agree, each is asked again: one that was restarted contradicts its own past at an address
    /// that nobody has connected to since, and one that is away contradicts nobody.
    ///
    /// # Errors
    /// They do not agree, although all of them were asked just now.
    pub(super) async fn ask_all(&self, fleet: &Fleet) -> Result<(), NotConnected> {
        let upstream = &fleet.upstream;
        if !self.introductions.are_needed(upstream) {
            return Ok(());
        }
        let asked = match fleet.endpoints() {
            // There is nobody else to be met.
            [one] if one.addresses.is_literal() => return Ok(()),
            _ => everywhere(fleet).await,
        };
        if asked.len() > 1 {
            // At once: one that is silent must not keep the others waiting.
            let asked =
                asked.iter().filter(|(_, address)| self.introductions.is_to_be_asked(upstream, address));
            join_all(asked.map(|(endpoint, address)| self.ask_one(fleet, endpoint, address))).await;
        }
        self.introductions.agree(upstream).map_err(|why| {
            let endpoint = fleet.endpoints().first().map_or_else(Arc::default, |one| one.name.clone());
            NotConnected::Distrusted { endpoint, why }
        })
    }

    /// What it says is noted, and so is that nobody is there.
    async fn ask_one(&self, fleet: &Fleet, endpoint: &Arc<Endpoint>, address: &Arc<Address>) {
        let upstream = &fleet.upstream;
        // Where all are taken, workers give up for this what lies idle with them.
        let Ok(place) = timeout(upstream.connect_timeout, endpoint.clone().next_place()).await else {
            return;
        };
        let asked = self.connect(fleet, endpoint, Some(address.clone()), place).boxed_local();
        if let Ok(link) = asked.await {
            self.idle.keep(link, upstream.idle);
        }
    }
}

/// Every address of every endpoint. A name that was not looked up yet is waited for, as long as for a connection.
async fn everywhere(fleet: &Fleet) -> Vec<(Arc<Endpoint>, Arc<Address>)> {
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
