//! Asks those of an upstream who have to be known who they are, before anything is sent to one of them.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::{FutureExt, future::join_all};
use tokio::{task::spawn_local, time::timeout};

use super::{NotConnected, Pool};
use crate::{
    network::Network,
    upstream::{address::Address, endpoint::Endpoint, fleet::Fleet, introduce::Due},
};

impl<N: Network> Pool<N> {
    /// Nothing is sent to one of several before all have been met. A name may stand for several, too. Where what
    /// they said does not agree, each is asked again: one that was restarted contradicts its own past at an address
    /// that nobody has connected to since, and one that is away contradicts nobody.
    ///
    /// # Errors
    /// They do not agree, although all of them were asked just now; or one could not be asked.
    pub(super) async fn ask_all(&self, fleet: &Arc<Fleet>) -> Result<(), NotConnected> {
        let upstream = &fleet.upstream;
        if !self.introductions.are_needed(upstream) {
            return Ok(());
        }
        // There is nobody else to be met.
        if fleet.is_one_address() {
            return Ok(());
        }
        let asked = everywhere(fleet).await;
        if asked.len() > 1 {
            let mut first = Vec::new();
            for (endpoint, address) in &asked {
                match self.introductions.due(upstream, address) {
                    Due::Not => {}
                    Due::Before => first.push(self.ask_one(fleet, endpoint, address)),
                    Due::Beside => self.ask_beside(fleet, endpoint, address),
                }
            }
            // At once: one that is silent must not keep the others waiting.
            for asked in join_all(first).await {
                asked?;
            }
        }
        self.introductions.agree(upstream).map_err(|why| {
            let endpoint = fleet.endpoints().first().map_or_else(Arc::default, |one| one.name.clone());
            NotConnected::Distrusted { endpoint, why }
        })
    }

    /// What it says is noted, and so is that nobody is there.
    ///
    /// # Errors
    /// Nobody has asked it: its endpoint had no connection left for that.
    async fn ask_one(
        &self,
        fleet: &Fleet,
        endpoint: &Arc<Endpoint>,
        address: &Arc<Address>,
    ) -> Result<(), NotConnected> {
        let upstream = &fleet.upstream;
        // Where all are taken, workers give up for this what lies idle with them.
        let Ok(place) = timeout(upstream.connect_timeout, endpoint.clone().next_place()).await else {
            return match self.introductions.due(upstream, address) {
                Due::Before => Err(NotConnected::Full),
                Due::Not | Due::Beside => Ok(()),
            };
        };
        let asked = self.connect(fleet, endpoint, Some(address.clone()), place).boxed_local();
        if let Ok(pooled) = asked.await {
            self.idle.keep(pooled, upstream.idle);
        }
        Ok(())
    }

    /// The same while requests go to others. On a connection of its own, as a check of health: an address that is silent
    /// must not take the place of a request.
    fn ask_beside(&self, fleet: &Arc<Fleet>, endpoint: &Arc<Endpoint>, address: &Arc<Address>) {
        let (pool, fleet) = (self.clone(), fleet.clone());
        let (endpoint, address) = (endpoint.clone(), address.clone());
        spawn_local(async move {
            drop(pool.connect(&fleet, &endpoint, Some(address), Endpoint::place_beside()).await);
        });
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
