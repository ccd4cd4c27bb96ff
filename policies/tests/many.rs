//! Ten thousand routes are checked, loaded and found, and compared with ten thousand others.

use std::fmt::Write;

use fencegate_policies::{
    diagnostics::DiagnosticCode,
    diff::PlanDiff,
    file::{LoadedPolicy, load},
    path::CanonicalPath,
    plan::{GatewayPlan, RouteId},
};

const MANY: usize = 10_000;

/// A generated policy: services of many tenants, with some routes with variables and some without a lock.
fn policy(routes: usize, key: &str) -> String {
    let mut text = String::from(
        "version: 1\nlisteners: {public: {address: 127.0.0.1:8080}}\nzookeeper: {servers: [zk1:2181]}\n\
         upstreams:\n  a: {endpoints: [\"http://a:80\"], fencing: upstream}\n  b: {endpoints: [\"http://b:80\"], fencing: upstream}\nroutes:\n",
    );
    for route in 0..routes {
        let written = match route % 4 {
            0 => format!("match: {{methods: [GET, HEAD], path: \"/t{route}/{{rest...}}\"}}, fence: none"),
            1 => format!(
                "match: {{methods: [POST], path: \"/{{tenant}}/s{route}/{{id}}\"}}, fence: {{key: \"{key}{route}/{{path.tenant}}/{{path.id}}\", wait: 2s, queue: 10}}"
            ),
            _ => format!(
                "match: {{methods: [POST, PUT], path: \"/t{route}/orders/{{id}}\", hosts: [\"*.shop.example\"]}}, fence: {{key: \"{key}{route}/{{path.id}}\", hold: {{mode: strict}}}}"
            ),
        };
        let upstream = if route % 3 == 0 { "a" } else { "b" };
        writeln!(text, "  - {{name: route-{route}, upstream: {upstream}, {written}}}").expect("memory");
    }
    text
}

fn load_plan(text: &str) -> GatewayPlan {
    let LoadedPolicy { plan, diagnostics, .. } = load(text);
    assert_eq!(diagnostics, [], "{:?}", diagnostics.first());
    plan.expect("sound")
}

/// A plan of ten thousand routes can be loaded, each route can be looked up by a request, and the plan can be compared with
/// another one.
#[test]
fn ten_thousand_routes_load_and_compare() {
    let plan = load_plan(&policy(MANY, "order"));
    for route in (0..MANY).step_by(97) {
        let (method, path) = match route % 4 {
            0 => ("GET", format!("/t{route}/a/b")),
            1 => ("POST", format!("/acme/s{route}/7")),
            _ => continue,
        };
        let path = CanonicalPath::parse(&path);
        let found = plan.serving.routes.find(method, &path, &()).expect("clear").expect("a route");
        assert_eq!(found.route.id, RouteId(route));
    }
    let other = load_plan(&policy(MANY, "konto"));
    assert!(PlanDiff::between(&plan, &plan.clone()).is_empty());
    let difference = PlanDiff::between(&plan, &other);
    assert_eq!((difference.changed.len(), difference.rekeyed.len()), (MANY / 4 * 3, MANY / 4 * 3));
    assert!(difference.added.is_empty() && difference.removed.is_empty());
}

/// A route that is never reached is reported, even as the last of many routes.
#[test]
fn last_unreachable_route_is_reported() {
    let text = policy(MANY / 10, "order")
        + "  - {name: late, upstream: a, match: {methods: [GET], path: /t0/x}, fence: none}\n";
    let diagnostics = load(&text).diagnostics;
    assert_eq!(diagnostics.iter().map(|one| one.code).collect::<Vec<_>>(), [DiagnosticCode::Unreachable]);
    assert!(diagnostics[0].remedy.as_deref().is_some_and(|remedy| remedy.contains("`route-0`")));
}
