//! Describes the changes from one plan to another, and the requests that take another lock after it.

mod reordered;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    path::PathTemplate,
    plan::{
        CommonServingPlan, Enforcement, GatewayPlan, IdempotencyStore, MatchConditions, Route,
        UnmatchedRequestPolicy, Upstream, UpstreamId,
    },
};

/// The changes from the plan in force to another plan. Names are in the order of the plan that has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Difference))]
pub struct PlanDiff {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// Routes that both plans have, with different settings.
    pub changed: Vec<String>,
    /// Routes by which a request would take another lock than before, or would begin or cease to take a lock. Some of
    /// these are unchanged themselves: a changed route above them takes some of their requests, or leaves them some
    /// of its own.
    pub rekeyed: Vec<String>,
    /// Upstreams that are not alike, new, or gone.
    pub upstreams: Vec<String>,
    /// Other fields that differ and are taken over at once, and the order of the routes.
    pub settings: Vec<String>,
    /// Routes in both plans that name their operations by another rule, or remember them elsewhere. After the change,
    /// the repeat of an operation that was done before is not recognised.
    #[serde(default)]
    pub forgets: Vec<String>,
    /// Fields that differ and can only change with a restart. A reload of such a plan changes nothing.
    pub restart: Vec<String>,
}

impl PlanDiff {
    pub fn between(old: &GatewayPlan, new: &GatewayPlan) -> Self {
        let before = &old.serving;
        let after = &new.serving;
        let pairs = pair_by_name(before, after);
        // The routes that both plans have, matched by name.
        let both: HashSet<&str> = pairs.iter().map(|(old, _)| &*old.name).collect();
        let lone = |route: &&Route| !both.contains(&*route.name);
        let removed: Vec<&Route> = before.routes.routes().iter().filter(lone).collect();
        let added: Vec<&Route> = after.routes.routes().iter().filter(lone).collect();
        let unlike = |(old, new): &&(&Route, &Route)| !same_settings(before, old, after, new);
        let moved = |(old, new): &&(&Route, &Route)| !same_locks(before, old, after, new);
        let names = |routes: &[&Route]| routes.iter().map(|route| route.name.to_string()).collect();
        let fenced = added.iter().chain(&removed).filter(|route| route.fence.is_some());
        // In another order, another route may be the first that matches. So each route may take requests of any
        // other.
        let reordered = !are_in_order(&pairs);
        let any_lock = |(_, new): &&(&Route, &Route)| reordered && new.fence.is_some();
        let moved = pairs.iter().filter(|pair| moved(pair) || any_lock(pair)).map(|(_, new)| new);
        let moved: Vec<&Route> = moved.chain(fenced).copied().collect();
        let moved_names: HashSet<&str> = moved.iter().map(|route| &*route.name).collect();
        let handed = reordered::affected_routes(before, after, &moved_names);
        Self {
            added: names(&added),
            removed: names(&removed),
            changed: pairs.iter().filter(unlike).map(|(_, new)| new.name.to_string()).collect(),
            rekeyed: [names(&moved), names(&handed)].concat(),
            upstreams: changed_upstreams(before, after),
            forgets: routes_forgetting_operations(&pairs, before, after),
            settings: changed_settings(old, new, reordered),
            restart: fields_for_restart(old, new),
        }
    }

    /// The same changes for a process that was started with `started`. The process still uses the values of `started`
    /// for fields that need a restart, whatever the plans since then had, so `restart` is compared with `started`.
    #[must_use]
    pub fn with_restarts_since(self, started: &GatewayPlan, new: &GatewayPlan) -> Self {
        Self { restart: fields_for_restart(started, new), ..self }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Pairs the routes of both plans that have the same name, in the order of `after`.
fn pair_by_name<'a>(
    before: &'a CommonServingPlan,
    after: &'a CommonServingPlan,
) -> Vec<(&'a Route, &'a Route)> {
    let known: HashMap<&str, &Route> =
        before.routes.routes().iter().map(|route| (&*route.name, route)).collect();
    let pair = |new: &'a Route| known.get(&*new.name).map(|old| (*old, new));
    after.routes.routes().iter().filter_map(pair).collect()
}

/// Whether the old plan has the routes in the same order. `pairs`: in the order of the new plan.
fn are_in_order(pairs: &[(&Route, &Route)]) -> bool {
    pairs.is_sorted_by_key(|(old, _)| old.id.0)
}

fn changed_settings(old: &GatewayPlan, new: &GatewayPlan, reordered: bool) -> Vec<String> {
    let before = &old.serving;
    let after = &new.serving;
    let passed = |plan: &CommonServingPlan| match plan.unmatched {
        UnmatchedRequestPolicy::Reject => None,
        UnmatchedRequestPolicy::Pass(id) => Some(upstream_name(plan, id).to_owned()),
    };
    let listens = &before.listener;
    let will_listen = &after.listener;
    let fields = [
        ("listeners", *listens == listens.with_reloaded_settings(will_listen)),
        ("jwt", before.jwt == after.jwt),
        ("unmatched", passed(before) == passed(after)),
        ("log", before.log == after.log),
        ("allow_mixed", old.mixed == new.mixed),
        // Granting leases for the first time, or no longer, needs a restart, and is reported there.
        ("leases", old.leases == new.leases || old.leases.is_some() != new.leases.is_some()),
        ("order of routes", !reordered),
    ];
    fields.into_iter().filter(|(_, same)| !same).map(|(field, _)| field.to_owned()).collect()
}

fn routes_forgetting_operations(
    pairs: &[(&Route, &Route)],
    before: &CommonServingPlan,
    after: &CommonServingPlan,
) -> Vec<String> {
    let forgets = |(old, new): &&(&Route, &Route)| {
        let once = |route: &Route| route.fence.as_ref()?.once.clone();
        let (Some(old_once), new_once) = (once(old), once(new)) else { return false };
        let ours = |plan: &CommonServingPlan, route: &Route| plan.upstream(route.upstream).endpoints.clone();
        let here = ours(before, old);
        let there = ours(after, new);
        // Each guard keeps a journal of its own. If at least one guard stays among the endpoints, recorded operations
        // are still recognised.
        let elsewhere =
            old_once.store == IdempotencyStore::Guard && !here.iter().any(|one| there.contains(one));
        elsewhere || new_once.is_none_or(|new_once| new_once.identity() != old_once.identity())
    };
    pairs.iter().filter(forgets).map(|(_, new)| new.name.to_string()).collect()
}

/// Whether the settings of two routes are equal. The ids of routes and upstreams differ between plans, so they are
/// not compared.
fn same_settings(before: &CommonServingPlan, old: &Route, after: &CommonServingPlan, new: &Route) -> bool {
    upstream_name(before, old.upstream) == upstream_name(after, new.upstream)
        && *old == Route { id: old.id, upstream: old.upstream, ..new.clone() }
}

/// Whether every request takes the same lock by both routes. False if the old route may let a request pass without a
/// lock and the new one does not.
fn same_locks(before: &CommonServingPlan, old: &Route, after: &CommonServingPlan, new: &Route) -> bool {
    let lock = |route: &Route| {
        route
            .fence
            .as_ref()
            .map(|fence| (fence.keys.clone(), fence.placing.clone(), fence.former.clone(), fence.mode))
    };
    (lock(old).is_none() && lock(new).is_none())
        || upstream_name(before, old.upstream) == upstream_name(after, new.upstream)
            && upstream_delay(before, old) == upstream_delay(after, new)
            && (match_criteria(old), lock(old)) == (match_criteria(new), lock(new))
            && (only_observes(new) || !only_observes(old))
}

/// The delay of the route's upstream. It is compared because a holder that began with another delay leaves a record
/// with a time that is too short, or no record.
fn upstream_delay(plan: &CommonServingPlan, route: &Route) -> Option<Duration> {
    plan.upstream(route.upstream).fencing.handover_delay()
}

/// Whether the route only observes, so that requests may pass without a lock.
fn only_observes(route: &Route) -> bool {
    route.fence.as_ref().is_some_and(|fence| fence.enforce == Enforcement::Observe)
}

/// The part of a route that decides which requests it takes, when no other route takes them first.
fn match_criteria(route: &Route) -> (&[String], &PathTemplate, &MatchConditions) {
    (&route.methods, &route.path, &route.conditions)
}

fn upstream_name(plan: &CommonServingPlan, id: UpstreamId) -> &str {
    &plan.upstream(id).name
}

fn changed_upstreams(before: &CommonServingPlan, after: &CommonServingPlan) -> Vec<String> {
    let other = |plan: &CommonServingPlan, name: &str| {
        plan.upstreams.iter().position(|upstream| &*upstream.name == name)
    };
    let alike = |old: &Upstream, new: &Upstream| {
        // These two fields follow from the routes, whose changes are listed by themselves.
        *old == Upstream { has_fenced_routes: old.has_fenced_routes, service: old.service, ..new.clone() }
    };
    let unlike = after
        .upstreams
        .iter()
        .filter(|new| other(before, &new.name).is_none_or(|at| !alike(&before.upstreams[at], new)));
    let gone = before.upstreams.iter().filter(|old| other(after, &old.name).is_none());
    unlike.chain(gone).map(|upstream| upstream.name.to_string()).collect()
}

/// The changed sections that hold open sockets or sessions with locks, so that they need a restart.
fn fields_for_restart(old: &GatewayPlan, new: &GatewayPlan) -> Vec<String> {
    let before = &old.serving;
    let after = &new.serving;
    let fields = [
        ("name", before.name == after.name),
        ("listeners", before.listener.with_reloaded_settings(&after.listener) == after.listener),
        ("admin", before.admin == after.admin),
        ("zookeeper", old.zookeeper == new.zookeeper),
        ("peer", old.peer == new.peer),
        ("leases", old.leases.is_some() == new.leases.is_some()),
        ("state_dir", old.state_dir == new.state_dir),
        ("tickets", old.tickets == new.tickets && old.siblings == new.siblings),
    ];
    fields.into_iter().filter(|(_, same)| !same).map(|(field, _)| field.to_owned()).collect()
}

#[cfg(test)]
mod tests;
