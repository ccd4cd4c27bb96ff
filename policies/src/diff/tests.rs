//! Tests which difference is reported for a change of a small plan.

use super::*;
use crate::file::load;

const POLICY: &str = concat!(
    include_str!("../../tests/two_services.yaml"),
    r#"  - {name: read, upstream: a, match: {methods: [GET], path: "/{rest...}"}, fence: none}
"#
);

fn plan(changes: &[(&str, &str)]) -> GatewayPlan {
    let mut text = POLICY.to_owned();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    let loaded = load(&text);
    loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

fn difference(changes: &[(&str, &str)]) -> PlanDiff {
    PlanDiff::between(&plan(&[]), &plan(changes))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A plan does not differ from itself, and a comment in its file makes no difference.
#[test]
fn plan_equals_itself() {
    assert!(difference(&[]).is_empty());
    assert!(difference(&[("version: 1", "# a remark\nversion: 1")]).is_empty());
}

/// A change that affects no lock rekeys no route.
#[test]
fn unrelated_change_rekeys_no_route() {
    for change in [("wait: 2s", "wait: 3s"), ("wait: 2s", "hold: {mode: strict}"), ("wait: 2s", "queue: 7")] {
        let expected = PlanDiff { changed: names(&["pay"]), ..PlanDiff::default() };
        assert_eq!(difference(&[change]), expected, "{change:?}");
    }
}

/// A route whose requests take another lock is reported.
#[test]
fn changed_lock_rekeys_route() {
    for change in [
        ("order/{path.id}", "orders/{path.id}"),
        ("wait: 2s", "mode: shared"),
        ("/pay/{id}", "/pays/{id}"),
        ("methods: [POST]", "methods: [POST, PUT]"),
        ("name: pay, upstream: a", "name: pay, upstream: b"),
        ("fence: {key: \"order/{path.id}\", wait: 2s}", "fence: none"),
    ] {
        let expected = PlanDiff { changed: names(&["pay"]), rekeyed: names(&["pay"]), ..PlanDiff::default() };
        assert_eq!(difference(&[change]), expected, "{change:?}");
    }
}

/// A change of a route is reported even if it affects no lock.
#[test]
fn change_outside_locks_is_reported() {
    let switches = ("fence: none", "fence: none, upgrade: [websocket]");
    let expected = PlanDiff { changed: names(&["read"]), ..PlanDiff::default() };
    assert_eq!(difference(&[switches]), expected);
}

#[test]
fn renamed_route_is_another_route() {
    let renamed = difference(&[("name: pay", "name: charge"), ("name: read", "name: look")]);
    let expected = PlanDiff {
        added: names(&["charge", "look"]),
        removed: names(&["pay", "read"]),
        rekeyed: names(&["charge", "pay"]),
        ..PlanDiff::default()
    };
    assert_eq!(renamed, expected);
}

/// A changed route takes, under another lock, a request that an unchanged route took before. Both routes are
/// reported.
#[test]
fn routes_exchanging_requests_are_rekeyed() {
    let with = |matched: &str, above: &str| {
        let charge = format!(
            "  - {{name: charge, upstream: b, match: {{{matched}}}, fence: {{key: \"book/{{path.x}}\"}}}}\n{above}"
        );
        plan(&[(above, &charge)])
    };
    let pay = "  - {name: pay,";
    let read = "  - {name: read,";
    let without = plan(&[]);
    for (matched, above, rekeyed) in [
        ("methods: [POST], path: \"/pay/{x}\", headers: {a: b}", pay, &["charge", "pay"][..]),
        ("methods: [POST, PUT], path: \"/{x}/7\"", pay, &["charge", "pay"]),
        ("path: \"/{x}/7\"", pay, &["charge", "pay"]),
        ("methods: [PUT], path: \"/pay/{x}\"", pay, &["charge"]),
        ("methods: [POST], path: \"/book/{x}\"", pay, &["charge"]),
        // In both plans a route above `charge` takes the requests of `/pay/7` first, so `pay` is not affected.
        ("methods: [POST], path: \"/{x}/7\"", read, &["charge"]),
    ] {
        let with = with(matched, above);
        // The result is the same whether the route `charge` is added or removed.
        assert_eq!(PlanDiff::between(&without, &with).rekeyed, names(rekeyed), "{matched}");
        assert_eq!(PlanDiff::between(&with, &without).rekeyed, names(rekeyed), "{matched}");
    }
}

/// A route that stops to only observe is rekeyed, and one that begins to observe is not.
#[test]
fn leaving_observation_rekeys_route() {
    let observes = plan(&[("wait: 2s", "wait: 2s, enforce: observe")]);
    let refuses = plan(&[]);
    let expected = PlanDiff { changed: names(&["pay"]), ..PlanDiff::default() };
    assert_eq!(PlanDiff::between(&refuses, &observes), expected);
    let expected = PlanDiff { rekeyed: names(&["pay"]), ..expected };
    assert_eq!(PlanDiff::between(&observes, &refuses), expected);
}

/// A difference outside of routes and upstreams is reported with its field.
#[test]
fn other_settings_are_reported() {
    for (change, field) in [
        (("127.0.0.1:8080", "127.0.0.1:8080, hosts: [pay.example]"), "listeners"),
        (("127.0.0.1:8080", "127.0.0.1:8080, limits: {max_body: 1KiB}"), "listeners"),
        (("version: 1", "version: 1\nunmatched: {pass: a}"), "unmatched"),
        (("version: 1", "version: 1\nlog: {access: stdout}"), "log"),
    ] {
        let expected = PlanDiff { settings: names(&[field]), ..PlanDiff::default() };
        assert_eq!(difference(&[change]), expected, "{change:?}");
    }
}

/// A change of leases is taken over at a reload. To grant the first leases, or no more leases, needs a restart.
#[test]
fn only_first_or_last_leases_restart() {
    let leases = |most: usize| {
        format!(
            "version: 1\nleases: {{most: {most}, principals: [{{name: a, bearer: {{file: /a}}, keys: [\"a/*\"]}}]}}"
        )
    };
    let few = leases(1);
    let many = leases(2);
    let few = plan(&[("version: 1", &few)]);
    let many = plan(&[("version: 1", &many)]);
    let expected = PlanDiff { settings: names(&["leases"]), ..PlanDiff::default() };
    assert_eq!(PlanDiff::between(&few, &many), expected);
    let expected = PlanDiff { restart: names(&["leases"]), ..PlanDiff::default() };
    assert_eq!(PlanDiff::between(&plan(&[]), &few), expected);
    assert_eq!(PlanDiff::between(&few, &plan(&[])), expected);
}

/// A changed order of routes may give a request another lock, and is reported.
#[test]
fn reordered_routes_are_rekeyed() {
    let (pay, read) =
        POLICY.split_once("  - {name: pay").and_then(|(_, rest)| rest.split_once("\n")).expect("two");
    let turned = POLICY.split_once("  - {name: pay").expect("routes").0.to_owned()
        + read
        + "  - {name: pay"
        + pay
        + "\n";
    let turned = load(&turned).plan.expect("sound");
    let expected =
        PlanDiff { rekeyed: names(&["pay"]), settings: names(&["order of routes"]), ..PlanDiff::default() };
    assert_eq!(PlanDiff::between(&plan(&[]), &turned), expected);
}

/// A route whose recorded operations would not be recognised is reported.
#[test]
fn forgotten_operations_are_reported() {
    let operations = |once: &str| ("wait: 2s", format!("wait: 2s, once: {once}"));
    let forgets = |old: &str, new: &str, change: (&str, &str)| {
        let old = operations(old);
        let new = operations(new);
        let old = (old.0, &*old.1);
        let new = (new.0, &*new.1);
        PlanDiff::between(&plan(&[old]), &plan(&[new, change])).forgets
    };
    let same = ("version: 1", "version: 1");
    for forgotten in ["{scope: x}", "{key: \"{header.x-id}\"}", "{principal: \"{header.x-shop}\"}"] {
        assert_eq!(forgets("{}", forgotten, same), ["pay"], "{forgotten}");
        assert_eq!(forgets(forgotten, forgotten, same), [""; 0], "{forgotten}");
    }
    assert_eq!(forgets("{}", "{keep: 1h, final: [403], required: false}", same), [""; 0]);
    // A renamed upstream, and an upstream at another address, forget no operations.
    assert_eq!(
        forgets("{}", "{}", ("upstream: a, match: {methods: [POST]", "upstream: b, match: {methods: [POST]")),
        [""; 0]
    );
    assert_eq!(forgets("{}", "{}", ("http://a:80", "http://c:80")), [""; 0]);
    let left = PlanDiff::between(&plan(&[("wait: 2s", "wait: 2s, once: {}")]), &plan(&[]));
    assert_eq!(left.forgets, ["pay"]);
    let guard = |endpoint: &str| {
        let endpoints = format!("endpoints: [\"http://{endpoint}:80\"], fencing: guard");
        let once = operations("{}");
        plan(&[("endpoints: [\"http://a:80\"], fencing: upstream", &endpoints), (once.0, &once.1)])
    };
    assert_eq!(PlanDiff::between(&guard("a"), &guard("c")).forgets, ["pay"]);
    assert_eq!(PlanDiff::between(&guard("a"), &guard("a")).forgets, [""; 0]);
}

/// A change of the peer listener needs a restart, and a change of `forward` on a route does not.
#[test]
fn peer_listener_change_needs_restart() {
    let peer = ("version: 1", "version: 1\npeer: {address: 127.0.0.1:9910}");
    let expected = PlanDiff { restart: names(&["peer"]), ..PlanDiff::default() };
    assert_eq!(difference(&[peer]), expected);
    let elsewhere = (peer.0, "version: 1\npeer: {address: 127.0.0.1:9910, advertise: gw-1:9910}");
    assert_eq!(PlanDiff::between(&plan(&[peer]), &plan(&[elsewhere])), expected);
    let forwards = plan(&[peer, ("wait: 2s", "wait: 2s, forward: holder")]);
    let expected = PlanDiff { changed: names(&["pay"]), ..PlanDiff::default() };
    assert_eq!(PlanDiff::between(&plan(&[peer]), &forwards), expected);
}

/// Changed upstreams, and fields that need a restart, are reported.
#[test]
fn upstream_and_restart_changes_are_reported() {
    let changed = difference(&[("http://b:80", "http://c:80"), ("zk1:2181", "zk2:2181"), (":8080", ":8081")]);
    let expected = PlanDiff {
        upstreams: names(&["b"]),
        restart: names(&["listeners", "zookeeper"]),
        ..PlanDiff::default()
    };
    assert_eq!(changed, expected);
}

/// The fields that need a restart are compared with the settings that the process was started with.
#[test]
fn restart_is_judged_against_running_plan() {
    let started = plan(&[]);
    let other = plan(&[(":8080", ":8081")]);
    let there = PlanDiff::between(&started, &other).with_restarts_since(&started, &other);
    assert_eq!(there.restart, names(&["listeners"]));
    let still = PlanDiff::between(&other, &other).with_restarts_since(&started, &other);
    assert_eq!(still.restart, names(&["listeners"]));
    assert!(PlanDiff::between(&other, &started).with_restarts_since(&started, &started).is_empty());
}
