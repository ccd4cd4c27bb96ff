//! Tests which plans are compatible, and which routes make them incompatible.

use super::*;
use crate::{file::load, plan_digest::ParsePublishedRulesError};

const HEAD: &str = r#"version: 1
listeners: {public: {address: 127.0.0.1:8080}}
zookeeper: {servers: [zk1:2181]}
upstreams:
  a: {endpoints: ["http://a:80"], fencing: upstream}
  also-a: {endpoints: ["http://a:80"], fencing: upstream}
  b: {endpoints: ["http://b:80"], fencing: upstream}
routes:
"#;

fn publish_routes(routes: &[&str]) -> PublishedLockRules {
    let routes: String = routes.iter().map(|route| format!("  - {route}\n")).collect();
    let loaded = load(&format!("{HEAD}{routes}"));
    let plan = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    PublishedLockRules::from_plan(&plan.serving, plan.leases.as_ref())
}

/// The names of the routes of `ours` by which some request takes another lock than by `theirs`.
fn conflicting_route_names(ours: &[&str], theirs: &[&str]) -> Vec<String> {
    let ours = publish_routes(ours);
    let theirs = publish_routes(theirs);
    let compared = find_conflicts(&ours, &theirs);
    assert!(!compared.unfinished);
    // Incompatibility is symmetric, so the reverse comparison must find conflicts as well.
    assert_eq!(
        compared.ours.is_empty(),
        find_conflicts(&theirs, &ours).ours.is_empty(),
        "{ours:?} {theirs:?}"
    );
    compared.ours.iter().map(|at| ours.entries()[*at].name.clone()).collect()
}

const PAY: &str = r#"{name: pay, upstream: a, match: {methods: [POST], path: "/pay/{id}"}, fence: {key: "account/{path.id}"}}"#;
const OTHER_PAY: &str = r#"{name: pay, upstream: a, match: {methods: [POST], path: "/pay/{id}"}, fence: {key: "konto/{path.id}"}}"#;
const BOOK: &str = r#"{name: book, upstream: a, match: {methods: [POST], path: "/book/{id}"}, fence: {key: "book/{path.id}"}}"#;

/// Two routes have the same lock if their key templates differ only in the names of variables.
#[test]
fn equal_templates_are_one_lock() {
    let named = r#"{name: zahlen, upstream: a, match: {methods: [POST], path: "/pay/{account}"}, fence: {key: "account/{path.account}", mode: by-method, wait: 1s}}"#;
    assert_eq!(conflicting_route_names(&[PAY], &[named]), [""; 0]);
    assert_eq!(conflicting_route_names(&[PAY], &[OTHER_PAY]), ["pay"]);
    assert_eq!(conflicting_route_names(&[PAY, BOOK], &[OTHER_PAY, BOOK]), ["pay"]);
    assert_eq!(
        conflicting_route_names(&[PAY, BOOK], &[BOOK, PAY]),
        [""; 0],
        "their order counts for none of them"
    );
}

/// Two upstreams are one service if they share their name or an endpoint.
#[test]
fn services_match_by_name_or_endpoint() {
    let renamed = OTHER_PAY.replace("upstream: a", "upstream: also-a");
    assert_eq!(conflicting_route_names(&[PAY], &[&renamed]), ["pay"]);
    let elsewhere = OTHER_PAY.replace("upstream: a", "upstream: b");
    assert_eq!(conflicting_route_names(&[PAY], &[&elsewhere]), [""; 0]);
}

/// A route without a fence conflicts with no route.
#[test]
fn unfenced_routes_never_conflict() {
    let open = r#"{name: pay, upstream: a, match: {methods: [POST], path: "/pay/{id}"}, fence: none}"#;
    assert_eq!(conflicting_route_names(&[PAY, BOOK], &[open, BOOK]), [""; 0]);
    assert_eq!(conflicting_route_names(&[BOOK], &[PAY, BOOK]), [""; 0], "nobody here takes those requests");
}

/// A set of keys is compatible only with the same set, in any order.
#[test]
fn key_set_matches_same_set_only() {
    let set = |keys: &str| {
        format!(
            r#"{{name: move, upstream: a, match: {{methods: [POST], path: "/move/{{x}}/{{y}}"}}, fence: {{keys: [{keys}]}}}}"#
        )
    };
    let two = set(r#""a/{path.x}", "a/{path.y}""#);
    let swapped = set(r#""a/{path.y}", "a/{path.x}""#);
    let one = set(r#""a/{path.x}""#);
    assert_eq!(conflicting_route_names(&[&two], &[&swapped]), [""; 0]);
    assert_eq!(conflicting_route_names(&[&two], &[&one]), ["move"]);
    // A set of one key is the same lock as that key alone.
    let plain = one.replace("keys: [\"a/{path.x}\"]", "key: \"a/{path.x}\"");
    assert_eq!(conflicting_route_names(&[&one], &[&plain]), [""; 0]);
}

/// A route that takes requests of another route under another lock is found.
#[test]
fn overlapping_route_conflicts() {
    let wide = r#"{name: wide, upstream: a, match: {path: "/pay/{rest...}"}, fence: {key: "all-payments"}}"#;
    assert_eq!(conflicting_route_names(&[PAY], &[wide]), ["pay"]);
    assert_eq!(conflicting_route_names(&[PAY, wide], &[wide]), ["pay"]);
    assert_eq!(conflicting_route_names(&[wide], &[PAY, wide]), ["wide"]);
    // This route stands below `pay`, which both plans have. Requests that it takes are therefore none that
    // either plan gives to `pay`, so there is no conflict.
    let get = r#"{name: get, upstream: a, match: {methods: [GET], path: "/pay/{id}"}, fence: {key: "look/{path.id}"}}"#;
    assert_eq!(conflicting_route_names(&[PAY], &[PAY, get]), [""; 0]);
    assert_eq!(conflicting_route_names(&[PAY, BOOK], &[PAY, wide, BOOK]), [""; 0]);
    let some = r#"{name: some, upstream: a, match: {path: "/{rest...}", headers: {X-Tenant: acme}}, fence: {key: "acme"}}"#;
    assert_eq!(conflicting_route_names(&[PAY, BOOK], &[some, PAY, BOOK]), ["pay", "book"]);
}

/// The order of two routes matters if one request matches both.
#[test]
fn order_of_overlapping_routes_counts() {
    let special = r#"{name: special, upstream: a, match: {methods: [POST], path: "/{what}/7"}, fence: {key: "seven/{path.what}"}}"#;
    assert_eq!(conflicting_route_names(&[PAY, special], &[PAY, special]), [""; 0]);
    assert_eq!(conflicting_route_names(&[PAY, special], &[special, PAY]), ["pay"]);
    assert_eq!(conflicting_route_names(&[special, PAY], &[PAY, special]), ["special"]);
}

/// Routes do not conflict if no request meets the conditions of both.
#[test]
fn disjoint_conditions_separate_routes() {
    let of = |host: &str, key: &str| {
        let route = PAY.replace("match: {", &format!("match: {{hosts: [{host}], "));
        route.replace("name: pay", &format!("name: pay-{key}")).replace("account/", &format!("{key}/"))
    };
    let one = of("a.example", "a");
    let two = of("b.example", "b");
    assert_eq!(conflicting_route_names(&[&one], &[&two, &one]), [""; 0]);
    assert_eq!(conflicting_route_names(&[&one], &[&two]), [""; 0]);
    assert_eq!(conflicting_route_names(&[&one], &[&of("\"*.example\"", "c")]), ["pay-a"]);
}

/// A route that takes two locks is compatible with a route that takes one of them.
#[test]
fn two_locks_match_either_one() {
    let old = publish_routes(&[OTHER_PAY]);
    let new = publish_routes(&[PAY]);
    let mut both = new.clone();
    both.routes[0].locks.extend(old.routes[0].locks.clone());
    for plain in [&old, &new] {
        assert_eq!((find_conflicts(&both, plain), find_conflicts(plain, &both)), Default::default());
    }
    assert_eq!(find_conflicts(&old, &new).ours, [0]);
    let mut elsewhere = new.clone();
    elsewhere.routes[0].locks[0].layout = Some("kazoo".to_owned());
    assert_eq!(find_conflicts(&new, &elsewhere).ours, [0]);
    let mut late = new.clone();
    late.routes[0].locks[0].delay = true;
    assert_eq!(find_conflicts(&new, &late).ours, [0]);
}

/// A plan with permits is incompatible with a plan without them or with another number of them, also for a
/// build that does not know permits.
#[test]
fn permit_count_is_part_of_lock() {
    let of =
        |permits: &str| PAY.replace("\"account/{path.id}\"", &format!("\"account/{{path.id}}\"{permits}"));
    let three = of(", permits: 3");
    let four = of(", permits: 4");
    assert_eq!(conflicting_route_names(&[&three], &[&three]), [""; 0]);
    assert_eq!(conflicting_route_names(&[&three], &[&four]), ["pay"]);
    assert_eq!(conflicting_route_names(&[&three], &[PAY]), ["pay"]);
    let lock = publish_routes(&[&three]).routes.remove(0).locks.remove(0);
    assert_eq!(lock.layout.as_deref(), Some("permits 3"), "in a field that every build compares");
}

/// Whether a lock has a delay is part of the lock. The length of the delay is not: the record in ZooKeeper
/// tells the next holder how long to wait.
#[test]
fn delay_is_part_of_lock() {
    let of = |fencing: &str| {
        let text = format!("{HEAD}  - {PAY}\n").replacen("fencing: upstream", fencing, 1);
        PublishedLockRules::from_plan(&load(&text).plan.expect("a plan").serving, None)
    };
    let delayed = of("fencing: delay, delay: 30s");
    let none = of("fencing: none");
    assert_eq!(find_conflicts(&delayed, &none).ours, [0]);
    assert_eq!(find_conflicts(&delayed, &of("fencing: delay, delay: 31s")), PlanConflictReport::default());
}

/// While requests of the old plan run, a plan is published with the old locks and the new endpoints of its
/// services.
#[test]
fn switch_keeps_locks_and_moves_endpoints() {
    let mut old = publish_routes(&[PAY, BOOK]);
    let mut new = publish_routes(&[OTHER_PAY, BOOK]);
    let elsewhere = vec!["c:80".to_owned()];
    new.routes[1].endpoints = elsewhere.clone();
    new.routes[0].endpoints = elsewhere.clone();
    let until = old.merge_for_switch_to(&new);
    old.routes[1].endpoints = elsewhere;
    assert_eq!(until, old);
    assert_eq!(until.merge_for_switch_to(&until), until);
}

/// During a change of plans, a lease pattern of the old plan stays published beside the new ones until no key
/// of it is held.
#[test]
fn old_pattern_is_published_while_held() {
    let leasing = |patterns: &[&str]| PublishedLockRules {
        leases: patterns.iter().map(ToString::to_string).collect(),
        ..publish_routes(&[PAY])
    };
    let old = leasing(&["account/*", "job/*"]);
    let new = leasing(&["job/*", "order/7"]);
    let both = new.with_leases_of(&old);
    assert_eq!((&both.routes, both.leases.join(" ")), (&new.routes, "account/* job/* order/7".to_owned()));
    let key = |text| ResourceKey::parse(text).expect("a key");
    for (held, left) in [
        (vec![key("job/1"), key("account/7")], &both),
        (vec![key("job/1"), key("accounts")], &new),
        (vec![], &new),
    ] {
        assert_eq!(both.without_leases_gone_in(&new, &held), *left, "{held:?}");
    }
    // A held key that no pattern covers is published as a pattern of its own.
    let one = new.without_leases_gone_in(&leasing(&[]), &[key("order/7")]);
    assert_eq!(one.leases, ["order/7"]);
    assert!(new.without_leases_gone_in(&leasing(&[]), &[key("order/77")]).leases.is_empty());
}

/// Plans that are too large and too different to compare count as incompatible in all routes.
#[test]
fn oversized_different_plans_conflict_everywhere() {
    let many = |key: &str| -> PublishedLockRules {
        let mut plan = publish_routes(&[PAY]);
        let one = plan.routes.remove(0);
        plan.routes = (0..2000)
            .map(|n| PublishedFencedRoute {
                path: vec![PublishedPathSegment::Is(format!("{key}{n}"))],
                ..one.clone()
            })
            .collect();
        plan
    };
    let compared = find_conflicts(&many("a"), &many("b"));
    assert!(compared.unfinished && compared.ours.len() == 2000);
    assert_eq!(find_conflicts(&many("a"), &many("a")), PlanConflictReport::default());
}

/// Two large plans with leases are compared if they differ in one line only, as during an update of the
/// gateways.
#[test]
fn large_leasing_plans_compare_changes_only() {
    let permits = PAY.replace("fence: {", "fence: {permits: 3, ");
    let many = |locks: &str, own: &[&str]| -> PublishedLockRules {
        let mut plan = publish_routes(&[&permits]);
        let one = publish_routes(&[PAY]).routes.remove(0);
        let route = |n: usize| {
            let mut route =
                PublishedFencedRoute { path: vec![PublishedPathSegment::Is(format!("a{n}"))], ..one.clone() };
            route.locks[0].keys = vec![format!("{locks}{n}/{{0}}")];
            route
        };
        plan.routes.extend((0..3000).map(route));
        plan.routes.extend(publish_routes(own).routes);
        plan.leases = (0..400).map(|n| format!("item{n}/*")).chain(["account/*".to_owned()]).collect();
        plan
    };
    let ours = many("item", &[]);
    let theirs = many("item", &[BOOK]);
    assert_eq!(find_conflicts(&ours, &theirs), PlanConflictReport::default());
    assert_eq!(find_conflicts(&theirs, &ours), PlanConflictReport::default());
    // Entries that both plans have are equal, and therefore no conflict, even if the comparison is
    // unfinished.
    let other = find_conflicts(&many("item", &[]), &many("thing", &[]));
    assert!(other.unfinished && !other.ours.contains(&0) && other.ours.contains(&1), "{other:?}");
    // If all locks have the native layout, leases have it too, so every conflict is found without comparing
    // each pair.
    let [ours, theirs] = ["item", "thing"].map(|key| {
        let mut plan = many(key, &[]);
        plan.routes.remove(0);
        plan
    });
    let other = find_conflicts(&ours, &theirs);
    assert!(!other.unfinished && other.ours == (0..3000).collect::<Vec<_>>(), "{other:?}");
}

/// A published plan is read back as it was written, and a newer format is rejected.
#[test]
fn digest_round_trips_rejects_newer_format() {
    let ours = publish_routes(&[PAY, BOOK]);
    assert_eq!(PublishedLockRules::parse(&ours.to_bytes()), Ok(ours.clone()));
    let newer = br#"{"format": 2, "routes": "elsewhere"}"#;
    assert_eq!(
        PublishedLockRules::parse(newer),
        Err(ParsePublishedRulesError::UnsupportedFormat { found: 2 })
    );
    assert!(matches!(PublishedLockRules::parse(b"{}"), Err(ParsePublishedRulesError::Malformed(_))));
    let more = String::from_utf8(ours.to_bytes()).expect("text").replacen('{', r#"{"more": 1, "#, 1);
    assert_eq!(PublishedLockRules::parse(more.as_bytes()), Ok(ours));
}

/// Like [`conflicting_route_names`], in both directions, for two plans of which `theirs` grants leases of
/// `job/*` and `stock/*`.
fn conflicts_with_leases(ours: &[&str], theirs: &[&str]) -> [Vec<String>; 2] {
    let leases = ["job/*", "stock/*"].map(str::to_owned);
    let ours = publish_routes(ours);
    let theirs = PublishedLockRules { leases: leases.into(), ..publish_routes(theirs) };
    let names = |one: &PublishedLockRules, other: &PublishedLockRules| -> Vec<String> {
        find_conflicts(one, other).ours.iter().map(|at| one.entries()[*at].name.clone()).collect()
    };
    [names(&ours, &theirs), names(&theirs, &ours)]
}

/// A plan publishes another entry for a lease pattern if it loses a route that locks keys of the pattern in
/// another way.
#[test]
fn lost_lock_of_leased_key_is_published() {
    let leases = |routes: &[&str]| {
        let plan = PublishedLockRules { leases: vec!["account/*".to_owned()], ..publish_routes(routes) };
        plan.entries().pop().expect("the pattern")
    };
    let permits = PAY.replace("fence: {", "fence: {permits: 3, ");
    assert_ne!(leases(&[&permits]), leases(&[]));
    let elsewhere = permits.replace("account/", "shelf/");
    assert_eq!(leases(&[&elsewhere]), leases(&[]), "a lease has nothing to do with it");
    assert_eq!(leases(&[PAY]), leases(&[]), "a key without a route is locked in the same way");
}

/// A leased key has the same lock in both plans, even if only the other plan has a route for it.
#[test]
fn leased_key_has_one_lock() {
    let route = |key: &str, more: &str| {
        format!(
            r#"{{name: take, upstream: a, match: {{methods: [POST], path: "/x/y/{{id}}"}}, fence: {{key: "{key}", {more}}}}}"#
        )
    };
    let native = route("stock/{path.id}", "wait: 1s");
    let permits = route("stock/{path.id}", "permits: 3");
    let four = route("stock/{path.id}", "permits: 4");
    let foreign = route(
        "stock/{path.id}",
        r#"layout: curator-mutex, lock_path: "/locks/{path.id}", hold: {mode: strict}"#,
    );
    let elsewhere = foreign.replace("stock/", "shelf/");
    let deeper = foreign.replace("stock/{path.id}", "stock/room/{path.id}");
    let nobody = [Vec::<String>::new(), Vec::new()];
    let both = [vec!["take".to_owned()], vec!["leases of stock/*".to_owned()]];
    for (ours, theirs, clash) in [
        (vec![&*native], vec![], &nobody),
        (vec![&*foreign], vec![], &both),
        (vec![&*permits], vec![], &both),
        (vec![&*elsewhere], vec![], &nobody),
        (vec![&*deeper], vec![], &both),
        (vec![], vec![&*foreign], &nobody),
    ] {
        assert_eq!(conflicts_with_leases(&ours, &theirs), *clash, "{ours:?} {theirs:?}");
    }
    // If the leasing gateway has the same route, its leases take the locks of its requests.
    assert_eq!(conflicts_with_leases(&[&permits], &[&permits]), nobody);
    let unlike = [vec!["take".to_owned()], vec!["take".to_owned(), "leases of stock/*".to_owned()]];
    assert_eq!(conflicts_with_leases(&[&four], &[&permits]), unlike);
    assert_eq!(conflicts_with_leases(&[&native], &[&permits]), unlike);
    // A route of another form, with the same lock.
    let otherwise = permits.replace("/x/y/{id}", "/{room}/{id}");
    assert!(conflicts_with_leases(&[&permits], &[&otherwise]).concat().is_empty());
}
