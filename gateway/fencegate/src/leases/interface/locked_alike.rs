//! Whether other gateways lock what is to be leased as we do: a lease and a request under two locks would be no lock. Of a key
//! without a route the pattern counts by which it is leased: others have published their routes, and know our patterns.

use std::time::Duration;

use fencegate_policies::{key::ResourceKey, published::FencedRoute};
use tokio::time::{Instant, sleep_until};

use super::setting::Interface;
use crate::{
    agreement::Standing,
    refusal::{Reason, Refusal},
};

/// ZooKeeper has this long to publish a changed plan.
const LATEST: Duration = Duration::from_secs(1);

impl Interface {
    /// Every route of ours that can give one of the keys is locked by all gateways as it is here, and none of theirs locks otherwise
    /// what we lease.
    ///
    /// # Errors
    /// One that was there before locks it otherwise, or may.
    pub(super) async fn agreed(&self, keys: &[ResourceKey]) -> Result<(), Refusal> {
        let gateway = self.in_force.plan();
        let plan = &gateway.serving;
        let fenced = plan.routes.routes().iter().filter_map(|route| Some((route, route.fence.as_ref()?)));
        let gives = fenced.clone().map(|(_, fence)| {
            keys.iter().any(|key| fence.templates().any(|template| template.may_give(key)))
        });
        let all: Vec<_> = fenced
            .map(|(route, fence)| FencedRoute::of(route, fence, plan.upstream(route.upstream)))
            .collect();
        let patterns = gateway.leases.iter().flat_map(|leases| &*leases.principals);
        let patterns = patterns.flat_map(|principal| &principal.keys);
        let patterns = patterns.filter(|pattern| keys.iter().any(|key| pattern.matches(key)));
        let leases = patterns.map(|pattern| FencedRoute::of_leases(&pattern.to_string(), &all));
        let routes = all.iter().zip(gives).filter(|(_, gives)| *gives).map(|(route, _)| route.clone());
        let routes: Vec<_> = routes.chain(leases).collect();
        let (deadline, mut news) = (Instant::now() + LATEST, self.agreement.hears());
        loop {
            // Where there is no session, whoever asks for the lock is told so.
            let Some(session) = self.leases.keeper.session_of(&keys[0]) else { return Ok(()) };
            let standing = routes.iter().map(|route| self.agreement.standing(session, route));
            match standing.into_iter().find(|standing| *standing != Standing::Agreed) {
                None => return Ok(()),
                Some(Standing::Refused(by)) => {
                    let why = format!("FG0550: {by} locks the resource otherwise, and was there before");
                    return Err(Refusal::new(Reason::ConfigMismatch, why));
                }
                Some(_) => {}
            }
            tokio::select! {
                _ = news.changed() => {}
                () = sleep_until(deadline) => {
                    let why = "FG0550: the route or the pattern is new, and other gateways do not know of it yet";
                    return Err(Refusal::new(Reason::ConfigMismatch, why));
                }
            }
        }
    }
}
