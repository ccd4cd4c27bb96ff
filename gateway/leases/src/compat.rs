//! Checks whether peers lock the keys of a new lease as this gateway does: a lease and a request under two different
//! locks would exclude nothing. For a key without a route the lease pattern of the key counts: peers have published
//! their routes, and have received our patterns.

use std::{sync::Arc, time::Duration};

use fencegate_peers::plan_compat::RouteCompatibility;
use fencegate_policies::{key::ResourceKey, plan::GatewayPlan, plan_digest::PublishedFencedRoute};
use fencegate_refusal::{Refusal, RefusalReason};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{context::LeaseContext, lease_table::LeaseTable};

/// The time limit for ZooKeeper to publish a changed plan, and for requests under the keys of the last plan to end.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(1);

impl LeaseTable {
    /// Succeeds if all gateways lock every route of `gateway` that can produce one of the keys as this plan does, and
    /// no route of a peer locks the leased keys otherwise. Returns the session for which this holds.
    ///
    /// It also holds then that no request still runs under other keys of an earlier plan.
    ///
    /// # Errors
    /// Returns an error if a gateway that was registered earlier locks a key otherwise, or may do so, or if a
    /// request under an earlier plan still runs.
    pub(super) async fn check_plan_compat(
        &self,
        gateway: &Arc<GatewayPlan>,
        keys: &[ResourceKey],
    ) -> Result<i64, Refusal> {
        let deadline = Instant::now() + PUBLISH_TIMEOUT;
        match timeout_at(deadline, self.config().wait_older_key_rules_drained(gateway, keys)).await {
            Ok(true) => {}
            Ok(false) => {
                return Err(Refusal::new(RefusalReason::LockService, "another plan is being taken over"));
            }
            Err(_) => {
                let why = "requests under the keys of the last plan still run";
                return Err(Refusal::new(RefusalReason::Locked, why));
            }
        }
        let plan = &gateway.serving;
        let fenced = plan.routes.routes().iter().filter_map(|route| Some((route, route.fence.as_ref()?)));
        let gives = fenced.clone().map(|(_, fence)| {
            keys.iter().any(|key| fence.templates().any(|template| template.may_produce(key)))
        });
        let all: Vec<_> = fenced
            .map(|(route, fence)| PublishedFencedRoute::new(route, fence, plan.upstream(route.upstream)))
            .collect();
        // The patterns in force are used, not those of the policy file: a file without leases withdraws no
        // pattern before a restart.
        let settings = self.settings();
        let patterns = settings.bounds.iter().flat_map(|leases| &*leases.principals);
        let patterns = patterns.flat_map(|principal| &principal.keys);
        let patterns = patterns.filter(|pattern| keys.iter().any(|key| pattern.matches(key)));
        let leases =
            patterns.map(|pattern| PublishedFencedRoute::for_lease_pattern(&pattern.to_string(), &all));
        let routes = all.iter().zip(gives).filter(|(_, gives)| *gives).map(|(route, _)| route.clone());
        let routes: Vec<_> = routes.chain(leases).collect();
        let LeaseContext { locks, compat, .. } = &self.context;
        let mut changes = compat.subscribe();
        loop {
            let session = locks.session_id_for(&keys[0]).ok_or_else(|| {
                Refusal::new(
                    RefusalReason::LockService,
                    "there is no session that the lock could be taken by",
                )
            })?;
            let statuses = routes.iter().map(|route| compat.route_compatibility(session, route));
            match statuses.into_iter().find(|status| *status != RouteCompatibility::Compatible) {
                None => return Ok(session),
                Some(RouteCompatibility::Incompatible(by)) => {
                    let why = format!("FG0550: {by} locks the resource otherwise, and was there before");
                    return Err(Refusal::new(RefusalReason::ConfigMismatch, why));
                }
                Some(_) => {}
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(deadline) => {
                    let why = "FG0550: the route or the pattern is new, and other gateways do not know of it yet";
                    return Err(Refusal::new(RefusalReason::ConfigMismatch, why));
                }
            }
        }
    }
}
