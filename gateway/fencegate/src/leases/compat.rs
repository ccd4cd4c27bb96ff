//! Whether other gateways lock what is to be leased as we do: a lease and a request under two locks would be no lock. Of a key
//! without a route the pattern counts by which it is leased: others have published their routes, and know our patterns.

use std::{sync::Arc, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::GatewayPlan, plan_digest::FencedRoute};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::lease_table::LeaseTable;
use crate::{
    plan_compat::RouteStatus,
    refusal::{Reason, Refusal},
};

/// ZooKeeper has this long to publish a changed plan, and requests under the keys of the last one have it to end.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(1);

impl LeaseTable {
    /// Every route of `gateway` that can give one of the keys is locked by all gateways as it is there, and none of theirs locks
    /// otherwise what we lease: beside which session.
    ///
    /// Nothing is at work any more under other keys of a plan before either.
    ///
    /// # Errors
    /// One that was there before locks it otherwise, or may; or something is still at work.
    pub(super) async fn check_plan_compat(
        &self,
        gateway: &Arc<GatewayPlan>,
        keys: &[ResourceKey],
    ) -> Result<i64, Refusal> {
        let deadline = Instant::now() + PUBLISH_TIMEOUT;
        match timeout_at(deadline, self.in_force.wait_open(gateway, keys)).await {
            Ok(true) => {}
            Ok(false) => {
                return Err(Refusal::new(Reason::LockService, "another plan is being taken over"));
            }
            Err(_) => {
                let why = "requests under the keys of the last plan still run";
                return Err(Refusal::new(Reason::Locked, why));
            }
        }
        let plan = &gateway.serving;
        let fenced = plan.routes.routes().iter().filter_map(|route| Some((route, route.fence.as_ref()?)));
        let gives = fenced.clone().map(|(_, fence)| {
            keys.iter().any(|key| fence.templates().any(|template| template.may_produce(key)))
        });
        let all: Vec<_> = fenced
            .map(|(route, fence)| FencedRoute::new(route, fence, plan.upstream(route.upstream)))
            .collect();
        // Not those of the file: one without leases takes none away before a restart.
        let terms = self.settings();
        let patterns = terms.bounds.iter().flat_map(|leases| &*leases.principals);
        let patterns = patterns.flat_map(|principal| &principal.keys);
        let patterns = patterns.filter(|pattern| keys.iter().any(|key| pattern.matches(key)));
        let leases = patterns.map(|pattern| FencedRoute::for_lease_pattern(&pattern.to_string(), &all));
        let routes = all.iter().zip(gives).filter(|(_, gives)| *gives).map(|(route, _)| route.clone());
        let routes: Vec<_> = routes.chain(leases).collect();
        let mut news = self.agreement.subscribe();
        loop {
            let session = self.keeper.session_id_for(&keys[0]).ok_or_else(|| {
                Refusal::new(Reason::LockService, "there is no session that the lock could be taken by")
            })?;
            let standing = routes.iter().map(|route| self.agreement.route_status(session, route));
            match standing.into_iter().find(|standing| *standing != RouteStatus::Compatible) {
                None => return Ok(session),
                Some(RouteStatus::Incompatible(by)) => {
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
