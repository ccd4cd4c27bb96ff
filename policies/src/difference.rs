//! Says what another plan changes, and whose locks would mean something else.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::{
    path::PathTemplate,
    plan::{Conditions, Gateway, OnceStore, Plan, Route, Unmatched, Upstream, UpstreamId},
};

/// From the plan in force to another one. Names are in the order of the plan that has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// Routes that are in both and not alike.
    pub changed: Vec<String>,
    /// Those of the above by which a request would take another lock than before, or none, or one where it took none.
    pub rekeyed: Vec<String>,
    /// Upstreams that are not alike, new, or gone.
    pub upstreams: Vec<String>,
    /// What else differs and is taken over: fields of the file, or the order of its routes.
    pub settings: Vec<String>,
    /// Routes in both plans whose operations are named by another rule, or remembered elsewhere: what was done before
    /// the change is not recognised when it is repeated after it.
    #[serde(default)]
    pub forgets: Vec<String>,
    /// What differs and has no effect before the process is started anew.
    pub restart: Vec<String>,
}

impl Difference {
    pub fn between(old: &Gateway, new: &Gateway) -> Self {
        let (before, after) = (&old.serving, &new.serving);
        let pairs = pairs(before, after);
        // Routes of one name have it once in each plan.
        let both: HashSet<&str> = pairs.iter().map(|(old, _)| &*old.name).collect();
        let lone = |route: &&Route| !both.contains(&*route.name);
        let removed: Vec<&Route> = before.routes.routes().iter().filter(lone).collect();
        let added: Vec<&Route> = after.routes.routes().iter().filter(lone).collect();
        let unlike = |(old, new): &&(&Route, &Route)| !alike(before, old, after, new);
        let moved = |(old, new): &&(&Route, &Route)| !locks_alike(before, old, after, new);
        let names = |routes: &[&Route]| routes.iter().map(|route| route.name.to_string()).collect();
        let fenced = added.iter().chain(&removed).filter(|route| route.fence.is_some());
        // Another order is another first match, so any of them may take the requests of another.
        let reordered = !in_order(&pairs);
        let any_lock = |(_, new): &&(&Route, &Route)| reordered && new.fence.is_some();
        let moved =
            pairs.iter().filter(|pair| moved(pair) || any_lock(pair)).map(|(_, new)| new).chain(fenced);
        Self {
            added: names(&added),
            removed: names(&removed),
            changed: pairs.iter().filter(unlike).map(|(_, new)| new.name.to_string()).collect(),
            rekeyed: moved.map(|route| route.name.to_string()).collect(),
            upstreams: upstreams(before, after),
            forgets: forgetting(&pairs, before, after),
            settings: settings(before, after, reordered),
            restart: restart(old, new),
        }
    }

    /// The same, told by a process that was started with `started`: whatever the files in between said, that is what it
    /// still uses of what needs a restart.
    #[must_use]
    pub fn since(self, started: &Gateway, new: &Gateway) -> Self {
        Self { restart: restart(started, new), ..self }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Routes of one name.
fn pairs<'a>(before: &'a Plan, after: &'a Plan) -> Vec<(&'a Route, &'a Route)> {
    let known: HashMap<&str, &Route> =
        before.routes.routes().iter().map(|route| (&*route.name, route)).collect();
    let pair = |new: &'a Route| known.get(&*new.name).map(|old| (*old, new));
    after.routes.routes().iter().filter_map(pair).collect()
}

/// `pairs` are in the order of the new plan.
fn in_order(pairs: &[(&Route, &Route)]) -> bool {
    pairs.is_sorted_by_key(|(old, _)| old.id.0)
}

fn settings(before: &Plan, after: &Plan, reordered: bool) -> Vec<String> {
    let passed = |plan: &Plan| match plan.unmatched {
        Unmatched::Reject => None,
        Unmatched::Pass(id) => Some(named(plan, id).to_owned()),
    };
    let (old, new) = (&before.listener, &after.listener);
    let fields = [
        ("listeners", *old == old.taken_over(new)),
        ("unmatched", passed(before) == passed(after)),
        ("log", before.log == after.log),
        ("order of routes", !reordered),
    ];
    fields.into_iter().filter(|(_, same)| !same).map(|(field, _)| field.to_owned()).collect()
}

fn forgetting(pairs: &[(&Route, &Route)], before: &Plan, after: &Plan) -> Vec<String> {
    let forgets = |(old, new): &&(&Route, &Route)| {
        let once = |route: &Route| route.fence.as_ref()?.once.clone();
        let (Some(old_once), new_once) = (once(old), once(new)) else { return false };
        let ours = |plan: &Plan, route: &Route| plan.upstream(route.upstream).endpoints.clone();
        let (here, there) = (ours(before, old), ours(after, new));
        // A guard remembers for itself; one that stays among the endpoints goes on.
        let elsewhere = old_once.store == OnceStore::Guard && !here.iter().any(|one| there.contains(one));
        elsewhere || new_once.is_none_or(|new_once| new_once.identity() != old_once.identity())
    };
    pairs.iter().filter(forgets).map(|(_, new)| new.name.to_string()).collect()
}

fn alike(before: &Plan, old: &Route, after: &Plan, new: &Route) -> bool {
    named(before, old.upstream) == named(after, new.upstream)
        && taken(old) == taken(new)
        && old.fence == new.fence
}

/// Every request that either of them takes has the same lock with both.
fn locks_alike(before: &Plan, old: &Route, after: &Plan, new: &Route) -> bool {
    let lock = |route: &Route| route.fence.as_ref().map(|fence| (fence.keys.clone(), fence.mode));
    (lock(old).is_none() && lock(new).is_none())
        || named(before, old.upstream) == named(after, new.upstream)
            && (taken(old), lock(old)) == (taken(new), lock(new))
}

/// Which requests a route takes, where no other does.
fn taken(route: &Route) -> (&[String], &PathTemplate, &Conditions) {
    (&route.methods, &route.path, &route.conditions)
}

fn named(plan: &Plan, id: UpstreamId) -> &str {
    &plan.upstream(id).name
}

fn upstreams(before: &Plan, after: &Plan) -> Vec<String> {
    let other = |plan: &Plan, name: &str| plan.upstreams.iter().position(|upstream| &*upstream.name == name);
    let alike = |old: &Upstream, new: &Upstream| {
        // What the routes make of it is told with the routes.
        *old == Upstream { has_fenced_routes: old.has_fenced_routes, service: old.service, ..new.clone() }
    };
    let unlike = after
        .upstreams
        .iter()
        .filter(|new| other(before, &new.name).is_none_or(|at| !alike(&before.upstreams[at], new)));
    let gone = before.upstreams.iter().filter(|old| other(after, &old.name).is_none());
    unlike.chain(gone).map(|upstream| upstream.name.to_string()).collect()
}

/// Sockets that are open, and sessions that hold locks.
fn restart(old: &Gateway, new: &Gateway) -> Vec<String> {
    let (before, after) = (&old.serving, &new.serving);
    let fields = [
        ("name", before.name == after.name),
        ("listeners", before.listener.taken_over(&after.listener) == after.listener),
        ("admin", before.admin == after.admin),
        ("zookeeper", old.zookeeper == new.zookeeper),
        ("peer", old.peer == new.peer),
        ("state_dir", old.state_dir == new.state_dir),
        ("tickets", old.tickets == new.tickets),
    ];
    fields.into_iter().filter(|(_, same)| !same).map(|(field, _)| field.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::load;

    const POLICY: &str = r#"version: 1
listeners: {public: {address: 127.0.0.1:8080}}
zookeeper: {servers: [zk1:2181]}
upstreams:
  a: {endpoints: ["http://a:80"], fencing: upstream}
  b: {endpoints: ["http://b:80"], fencing: upstream}
routes:
  - {name: pay, upstream: a, match: {methods: [POST], path: "/pay/{id}"}, fence: {key: "order/{path.id}", wait: 2s}}
  - {name: read, upstream: a, match: {methods: [GET], path: "/{rest...}"}, fence: none}
"#;

    fn plan(changes: &[(&str, &str)]) -> Gateway {
        let mut text = POLICY.to_owned();
        for (old, new) in changes {
            assert!(text.contains(old), "{old}");
            text = text.replace(old, new);
        }
        let loaded = load(&text);
        loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
    }

    fn difference(changes: &[(&str, &str)]) -> Difference {
        Difference::between(&plan(&[]), &plan(changes))
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_plan_does_not_differ_from_itself() {
        assert!(difference(&[]).is_empty());
        assert!(difference(&[("version: 1", "# a remark\nversion: 1")]).is_empty());
    }

    #[test]
    fn a_change_that_leaves_every_lock_alone_moves_no_key() {
        for change in
            [("wait: 2s", "wait: 3s"), ("wait: 2s", "hold: {mode: strict}"), ("wait: 2s", "queue: 7")]
        {
            let expected = Difference { changed: names(&["pay"]), ..Difference::default() };
            assert_eq!(difference(&[change]), expected, "{change:?}");
        }
    }

    #[test]
    fn whose_requests_take_another_lock_is_told() {
        for change in [
            ("order/{path.id}", "orders/{path.id}"),
            ("wait: 2s", "mode: shared"),
            ("/pay/{id}", "/pays/{id}"),
            ("methods: [POST]", "methods: [POST, PUT]"),
            ("name: pay, upstream: a", "name: pay, upstream: b"),
            ("fence: {key: \"order/{path.id}\", wait: 2s}", "fence: none"),
        ] {
            let expected =
                Difference { changed: names(&["pay"]), rekeyed: names(&["pay"]), ..Difference::default() };
            assert_eq!(difference(&[change]), expected, "{change:?}");
        }
    }

    #[test]
    fn a_route_with_another_name_is_another_route() {
        let renamed = difference(&[("name: pay", "name: charge"), ("name: read", "name: look")]);
        let expected = Difference {
            added: names(&["charge", "look"]),
            removed: names(&["pay", "read"]),
            rekeyed: names(&["charge", "pay"]),
            ..Difference::default()
        };
        assert_eq!(renamed, expected);
    }

    #[test]
    fn what_is_no_route_and_no_upstream_is_a_difference_too() {
        for (change, field) in [
            (("127.0.0.1:8080", "127.0.0.1:8080, hosts: [pay.example]"), "listeners"),
            (("127.0.0.1:8080", "127.0.0.1:8080, limits: {max_body: 1KiB}"), "listeners"),
            (("version: 1", "version: 1\nunmatched: {pass: a}"), "unmatched"),
            (("version: 1", "version: 1\nlog: {access: stdout}"), "log"),
        ] {
            let expected = Difference { settings: names(&[field]), ..Difference::default() };
            assert_eq!(difference(&[change]), expected, "{change:?}");
        }
    }

    #[test]
    fn another_order_of_routes_may_give_a_request_another_lock() {
        let (pay, read) =
            POLICY.split_once("  - {name: pay").and_then(|(_, rest)| rest.split_once("\n")).expect("two");
        let turned = POLICY.split_once("  - {name: pay").expect("routes").0.to_owned()
            + read
            + "  - {name: pay"
            + pay
            + "\n";
        let turned = load(&turned).plan.expect("sound");
        let expected = Difference {
            rekeyed: names(&["pay"]),
            settings: names(&["order of routes"]),
            ..Difference::default()
        };
        assert_eq!(Difference::between(&plan(&[]), &turned), expected);
    }

    #[test]
    fn whose_operations_would_not_be_recognised_is_told() {
        let operations = |once: &str| ("wait: 2s", format!("wait: 2s, once: {once}"));
        let told = |old: &str, new: &str, change: (&str, &str)| {
            let (old, new) = (operations(old), operations(new));
            let (old, new) = ((old.0, &*old.1), (new.0, &*new.1));
            Difference::between(&plan(&[old]), &plan(&[new, change])).forgets
        };
        let same = ("version: 1", "version: 1");
        for forgotten in ["{scope: x}", "{key: \"{header.x-id}\"}", "{principal: \"{header.x-shop}\"}"] {
            assert_eq!(told("{}", forgotten, same), ["pay"], "{forgotten}");
            assert_eq!(told(forgotten, forgotten, same), [""; 0], "{forgotten}");
        }
        assert_eq!(told("{}", "{keep: 1h, final: [403], required: false}", same), [""; 0]);
        // The upstream by another name, or at another place.
        assert_eq!(
            told(
                "{}",
                "{}",
                ("upstream: a, match: {methods: [POST]", "upstream: b, match: {methods: [POST]")
            ),
            [""; 0]
        );
        assert_eq!(told("{}", "{}", ("http://a:80", "http://c:80")), [""; 0]);
        let left = Difference::between(&plan(&[("wait: 2s", "wait: 2s, once: {}")]), &plan(&[]));
        assert_eq!(left.forgets, ["pay"]);
        let guard = |endpoint: &str| {
            let endpoints = format!("endpoints: [\"http://{endpoint}:80\"], fencing: guard");
            let once = operations("{}");
            plan(&[("endpoints: [\"http://a:80\"], fencing: upstream", &endpoints), (once.0, &once.1)])
        };
        assert_eq!(Difference::between(&guard("a"), &guard("c")).forgets, ["pay"]);
        assert_eq!(Difference::between(&guard("a"), &guard("a")).forgets, [""; 0]);
    }

    #[test]
    fn where_gateways_reach_each_other_needs_a_restart_and_who_is_sent_on_does_not() {
        let peer = ("version: 1", "version: 1\npeer: {address: 127.0.0.1:9910}");
        let expected = Difference { restart: names(&["peer"]), ..Difference::default() };
        assert_eq!(difference(&[peer]), expected);
        let elsewhere = (peer.0, "version: 1\npeer: {address: 127.0.0.1:9910, advertise: gw-1:9910}");
        assert_eq!(Difference::between(&plan(&[peer]), &plan(&[elsewhere])), expected);
        let forwards = plan(&[peer, ("wait: 2s", "wait: 2s, forward: holder")]);
        let expected = Difference { changed: names(&["pay"]), ..Difference::default() };
        assert_eq!(Difference::between(&plan(&[peer]), &forwards), expected);
    }

    #[test]
    fn upstreams_and_what_needs_a_restart_are_told() {
        let changed =
            difference(&[("http://b:80", "http://c:80"), ("zk1:2181", "zk2:2181"), (":8080", ":8081")]);
        let expected = Difference {
            upstreams: names(&["b"]),
            restart: names(&["listeners", "zookeeper"]),
            ..Difference::default()
        };
        assert_eq!(changed, expected);
    }

    #[test]
    fn what_needs_a_restart_is_told_by_what_is_in_use() {
        let (started, other) = (plan(&[]), plan(&[(":8080", ":8081")]));
        let there = Difference::between(&started, &other).since(&started, &other);
        assert_eq!(there.restart, names(&["listeners"]));
        let still = Difference::between(&other, &other).since(&started, &other);
        assert_eq!(still.restart, names(&["listeners"]));
        assert!(Difference::between(&other, &started).since(&started, &started).is_empty());
    }
}
