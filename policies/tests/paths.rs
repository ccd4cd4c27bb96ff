//! If the server behind the gateway takes two spellings of a path for the same resource, both have the same key here,
//! or one is refused.
//!
//! The routes of the test name every resource, and no other path passes. With a wide unfenced route in addition, this
//! would not hold for a server that ignores case or a trailing slash: `/orders/42/` would take another route than
//! `/orders/42`.

#[path = "paths/servers.rs"]
mod servers;

use fencegate_policies::{
    file::load,
    key::{RequestValues, join_keys},
    path::{CanonicalPath, PathParams},
    plan::{AlternateRequestReading, CommonServingPlan},
};
use proptest::prelude::*;

use servers::SERVERS;

const SPELLINGS: &str = include_str!("paths/spellings.txt");

const POLICY: &str = r#"
version: 1
listeners: {public: {address: "127.0.0.1:8080"}}
zookeeper: {servers: ["127.0.0.1:2181"]}
upstreams: {orders: {endpoints: ["http://127.0.0.1:8000"], fencing: upstream}}
routes:
  - {name: order, upstream: orders, match: {path: "/orders/{id}"}, fence: {key: "order/{path.id}"}}
  - {name: items, upstream: orders, match: {path: "/orders/{id}/items"}, fence: {key: "items/{path.id}"}}
"#;

struct FromPath<'a>(PathParams<'a>);

impl RequestValues for FromPath<'_> {
    fn path(&self, name: &str) -> Option<&str> {
        self.0.get(name)
    }
}

fn plan() -> CommonServingPlan {
    let loaded = load(POLICY);
    loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics)).serving
}

/// The forwarded path, and its key; `None` for a refused request.
fn forwarded_path_and_key(plan: &CommonServingPlan, target: &str) -> Option<(String, String)> {
    let raw = target.split(['?', '#']).next().unwrap_or_default();
    let path = CanonicalPath::parse(raw);
    let found = plan.routes.find("POST", &path, &()).ok()??;
    if path.ambiguity().is_some() {
        return None;
    }
    let fence = found.route.fence.as_ref().expect("every route has one");
    let keys = fence.expand_all(&FromPath(found.bound)).ok()?;
    Some((path.as_str().to_owned(), join_keys(&keys)))
}

/// The number of pairs of spellings with the same resource and key, and of pairs of which one spelling is refused.
#[derive(Debug, Default)]
struct SpellingCounts {
    one_key: usize,
    refused: usize,
}

fn check_spellings(plan: &CommonServingPlan, targets: &[String]) -> Result<SpellingCounts, String> {
    let mut seen = SpellingCounts::default();
    let decisions: Vec<_> = targets.iter().map(|target| forwarded_path_and_key(plan, target)).collect();
    for (server, read) in SERVERS {
        let read_raw: Vec<_> = targets.iter().map(|target| read(target)).collect();
        for ((target, decision), raw) in targets.iter().zip(&decisions).zip(&read_raw) {
            let Some((forwarded, _)) = decision else { continue };
            // The server must find the same resource in the forwarded path as in the original one.
            if raw.is_some() && read(forwarded) != *raw {
                return Err(format!("{server}: {target:?} is forwarded as {forwarded:?}, another resource"));
            }
        }
        for (at, one) in read_raw.iter().enumerate() {
            for other in (at + 1..targets.len()).filter(|other| one.is_some() && read_raw[*other] == *one) {
                match (&decisions[at], &decisions[other]) {
                    (Some((_, key)), Some((_, same))) if key == same => seen.one_key += 1,
                    (Some((_, key)), Some((_, another))) => {
                        let first = &targets[at];
                        let second = &targets[other];
                        return Err(format!(
                            "{server}: {first:?} and {second:?} are {one:?}, but {key} and {another}"
                        ));
                    }
                    _ => seen.refused += 1,
                }
            }
        }
    }
    Ok(seen)
}

/// All spellings of a resource have the same key, or are refused.
#[test]
fn spellings_have_one_key_or_refusal() {
    let lines = SPELLINGS.lines().skip(1);
    let targets: Vec<String> = lines.map(|line| line.replace("\\t", "\t")).collect();
    assert!(targets.len() >= 200, "{} spellings", targets.len());
    let seen = check_spellings(&plan(), &targets).unwrap_or_else(|error| panic!("{error}"));
    assert!(seen.one_key >= 50 && seen.refused >= 200, "{seen:?}: the spellings prove little");
}

/// The server models accept as many spellings as the comparison assumes.
#[test]
fn server_models_are_lax() {
    for (server, one, other) in [
        (0, "/orders/42", "/x/..%2forders//42"),
        (0, "/orders/42", "/orders/%34%32"),
        (1, "/orders/42", "/ORDERS/x\\..\\42/"),
        (1, "/orders/42", "//host/orders/%2e/42"),
        (2, "/orders/%ff", "/orders/%fe/"),
    ] {
        let (name, read) = SERVERS[server];
        assert!(read(one).is_some() && read(one) == read(other), "{name}: {one} {other}");
    }
    for refused in ["/orders/42;v=1", "/orders/%2e%2e/42", "/orders//42", "/orders/a%2fb"] {
        assert_eq!(SERVERS[2].1(refused), None, "{refused}");
    }
}

proptest! {
    /// Two random spellings of the same resource never have different keys.
    #[test]
    fn random_spellings_have_one_key(
        targets in proptest::collection::vec(
            "/(orders|ORDERS|%6frders|\\.\\.|\\.)(/|//|%2f|\\\\|/\\./|/x/\\.\\./|;/)(4|%34|a|%61|%C3%A9){1,2}(/|/items|%2Fitems|;v|\\.|%2e|)",
            2..24,
        )
    ) {
        let seen = check_spellings(&plan(), &targets);
        prop_assert!(seen.is_ok(), "{:?}", seen);
    }
}

/// A request without a lock is refused if some server reads its path as one that a route of the same service fences.
#[test]
fn suffix_leads_round_no_fence() {
    let loaded = load(
        r#"
version: 1
listeners: {public: {address: "127.0.0.1:8080"}}
zookeeper: {servers: ["127.0.0.1:2181"]}
upstreams:
  orders: {endpoints: ["http://127.0.0.1:8000"], fencing: upstream}
  files: {endpoints: ["http://127.0.0.1:8001"], fencing: upstream}
routes:
  - {name: cancel, upstream: orders, match: {methods: [POST], path: "/orders/{id}/cancel"}, fence: {key: "order/{path.id | int}"}}
  - {name: order, upstream: orders, match: {methods: [POST], path: "/orders/{id}"}, fence: {key: "order/{path.id | int}"}}
  - {name: print, upstream: orders, match: {methods: [POST], path: "/prints/{id}.pdf"}, fence: none}
  - {name: prints, upstream: orders, match: {methods: [POST], path: "/prints/{id}"}, fence: {key: "print/{path.id | int}"}}
  - {name: batch, upstream: orders, match: {methods: [PUT], path: "/orders/batch"}, fence: {key: "orders"}}
  - {name: refund, upstream: orders, match: {methods: [PUT], path: "/orders/{id}:refund"}, fence: {key: "order/{path.id}"}}
  - {name: sheet, upstream: orders, match: {methods: [PUT], path: "/orders/{id}.csv"}, fence: {key: "order/{path.id}"}}
  - {name: draft, upstream: orders, match: {methods: [PUT], path: "/orders/{id}{.format?}"}, fence: {key: "order/{path.id}"}}
  - {name: drafts, upstream: orders, match: {methods: [PUT], path: "/orders/{id}"}, fence: {key: "order/{path.id}"}}
  - {name: files, upstream: files, match: {path: "/files/{rest...}"}, fence: none}
  - {name: rest, upstream: orders, match: {path: "/{rest...}"}, fence: none}
"#,
    );
    let plan = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics)).serving;
    let refused = |method: &str, target: &str| {
        let path = CanonicalPath::parse(target);
        assert_eq!(path.ambiguity(), None, "{target}");
        let found = plan.routes.find(method, &path, &()).expect("no conditions").expect("a route");
        plan.find_alternate_reading(method, &path, &(), Some(&found), found.route.upstream).is_some()
    };
    for target in [
        "/orders/42/cancel.json",
        "/orders/42/cancel%2Ejson",
        "/orders/42/cancel.",
        "/orders/42/cancel.json.",
        "/orders/42./cancel.xml",
        "/orders./42/cancel",
        "/orders/42/cancel...",
        // For Spring the suffix begins at any dot.
        "/orders/42/cancel.v2.json",
        "/orders/42/cancel.a.b.c.d",
    ] {
        assert!(refused("POST", target), "{target}");
    }
    // A fenced route whose variable takes the text that another route writes out, or the suffix of that route.
    for target in [
        "/orders/batch.json",
        "/orders/batch.v2.json",
        "/orders/batch.",
        "/orders/batch%2Ejson",
        "/orders/batch.csv",
        "/orders/42:refund.json",
        "/orders/42:refund.",
        "/orders/42..json",
        "/orders/42.tar.gz",
    ] {
        assert!(refused("PUT", target), "{target}");
    }
    let dots = ".x".repeat(40);
    assert!(refused("POST", &format!("/orders/42/cancel{dots}")));
    assert!(refused("POST", &format!("/orders/42{dots}")), "another route of the service fences");
    assert!(!refused("POST", &format!("/files/42{dots}")));
    for (method, target) in [
        ("GET", "/orders/42/cancel.json"),
        ("POST", "/orders/42/refund.json"),
        ("POST", "/orders/42/cancel/x.json"),
        // The fenced route takes these requests itself, and its filter refuses them.
        ("POST", "/orders/42.json"),
        ("POST", "/prints/7.pdf"),
        ("POST", "/files/orders/42/cancel.json"),
        ("POST", "/static/app.js"),
        ("POST", "/"),
        ("PUT", "/orders/batch"),
        ("PUT", "/orders/42.json"),
        ("PUT", "/orders/42.csv"),
        ("PUT", "/orders/42.x.csv"),
        ("PUT", "/orders/42:refund"),
    ] {
        assert!(!refused(method, target), "{method} {target}");
    }
}

/// A route with an `allow` is protected in the same way as one with a fence.
#[test]
fn suffix_does_not_pass_by_access_rules() {
    let loaded = load(
        r#"
version: 1
listeners:
  public:
    address: "127.0.0.1:8080"
    tls: {certificates: [{certificate_file: /a.crt, key_file: /a.key}], client_ca_file: /ca.crt, client_auth: optional, client_name: uri}
zookeeper: {servers: ["127.0.0.1:2181"]}
upstreams: {orders: {endpoints: ["http://127.0.0.1:8000"], fencing: upstream}}
routes:
  - {name: admin, upstream: orders, match: {path: "/admin"}, allow: [{client_name: "*"}], fence: none}
  - {name: open, upstream: orders, match: {path: "/open"}, fence: none}
  - {name: rest, upstream: orders, match: {path: "/{rest...}"}, fence: none}
"#,
    );
    let plan = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics)).serving;
    assert!(plan.upstreams[0].service.is_protected && !plan.upstreams[0].has_fenced_routes);
    for (target, refused) in [
        ("/admin.json", true),
        ("/admin.", true),
        ("/admin.v2.json", true),
        (&format!("/x{}", ".x".repeat(40)), true),
        ("/admin", false),
        ("/open.json", false),
        ("/x.json", false),
    ] {
        let path = CanonicalPath::parse(target);
        let found = plan.routes.find("GET", &path, &()).expect("no conditions").expect("a route");
        let second = plan.find_alternate_reading("GET", &path, &(), Some(&found), found.route.upstream);
        assert_eq!(second, refused.then_some(AlternateRequestReading::Suffix), "{target}");
    }
}

/// A request that some services read as one of a route with an `allow` is not taken by a route that every client may
/// use, whether a spelling or the method makes the difference. A route that writes the other path out, or names `HEAD`,
/// is taken for intended.
#[test]
fn second_reading_does_not_pass_by_access_rules() {
    let loaded = load(
        r#"
version: 1
listeners:
  public:
    address: "127.0.0.1:8080"
    tls: {certificates: [{certificate_file: /a.crt, key_file: /a.key}], client_ca_file: /ca.crt, client_auth: optional, client_name: uri}
zookeeper: {servers: ["127.0.0.1:2181"]}
upstreams:
  orders: {endpoints: ["http://127.0.0.1:8000"], fencing: upstream}
  files: {endpoints: ["http://127.0.0.1:8001"], fencing: upstream}
routes:
  - {name: health, upstream: orders, match: {path: "/health"}, fence: none}
  - {name: public, upstream: orders, match: {methods: [GET, HEAD], path: "/Admin/public"}, fence: none}
  - {name: secret, upstream: orders, match: {methods: [GET], path: "/reports/secret"}, allow: [{client_name: "spiffe://a/root"}], fence: none}
  - {name: report, upstream: orders, match: {methods: [GET, HEAD], path: "/reports/{id}"}, allow: [{client_name: "*"}], fence: none}
  - {name: admin, upstream: orders, match: {methods: [GET], path: "/admin/{id}"}, allow: [{client_name: "*"}], fence: none}
  - {name: cancel, upstream: orders, match: {methods: [POST], path: "/Orders/{id}:cancel"}, allow: [{client_name: "*"}], fence: none}
  - {name: order, upstream: orders, match: {methods: [POST], path: "/Orders/{id}"}, fence: none}
  - {name: state, upstream: orders, match: {methods: [GET], path: "/state"}, allow: [{client_name: "*"}], fence: none}
  - {name: head, upstream: orders, match: {methods: [HEAD], path: "/state"}, fence: none}
  - {name: below, upstream: orders, match: {path: "/below/{rest...}"}, allow: [{client_name: "*"}], fence: none}
  - {name: files, upstream: files, match: {path: "/files/{rest...}"}, fence: none}
  - {name: rest, upstream: orders, match: {path: "/{rest...}"}, fence: none}
"#,
    );
    let plan = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics)).serving;
    let second = |method: &str, target: &str| {
        let path = CanonicalPath::parse(target);
        let found = plan.routes.find(method, &path, &()).expect("no conditions").expect("a route");
        let upstream = found.route.upstream;
        let unmatched = plan.find_alternate_reading(method, &path, &(), None, upstream);
        (plan.find_alternate_reading(method, &path, &(), Some(&found), upstream), unmatched)
    };
    for (method, target, reading) in [
        ("HEAD", "/admin/7", AlternateRequestReading::Get),
        ("HEAD", "/reports/secret", AlternateRequestReading::Get),
        ("HEAD", "/ADMIN/7", AlternateRequestReading::Get),
        ("GET", "/Admin/7", AlternateRequestReading::Spelling),
        ("GET", "/%41dmin/7", AlternateRequestReading::Spelling),
        ("GET", "/admin/7/", AlternateRequestReading::Spelling),
        ("GET", "/aDmIn/x/", AlternateRequestReading::Spelling),
        ("GET", "/STATE", AlternateRequestReading::Spelling),
        ("GET", "/state/", AlternateRequestReading::Spelling),
        // Some case-insensitive comparisons take these letters for ASCII letters.
        ("GET", "/%C5%BFtate", AlternateRequestReading::Spelling),
        ("GET", "/adm%C4%B1n/7", AlternateRequestReading::Spelling),
        ("GET", "/State.json", AlternateRequestReading::Suffix),
        ("GET", "/state.json/", AlternateRequestReading::Suffix),
        ("HEAD", "/STATE.", AlternateRequestReading::Suffix),
        ("PUT", "/below", AlternateRequestReading::Spelling),
        ("PUT", "/Below/x", AlternateRequestReading::Spelling),
        ("POST", "/orders/7:cancel", AlternateRequestReading::Spelling),
        ("POST", "/Orders/7:Cancel", AlternateRequestReading::Spelling),
        // Clients that may use `/reports/` must not get this report.
        ("GET", "/reports/Secret", AlternateRequestReading::Spelling),
        ("GET", "/reports/secret/", AlternateRequestReading::Spelling),
    ] {
        assert_eq!(second(method, target).0, Some(reading), "{method} {target}");
        assert!(second(method, target).1.is_some(), "{method} {target} by `unmatched`");
    }
    for (method, target) in [
        ("GET", "/health"),
        ("GET", "/HEALTH/"),
        ("HEAD", "/health"),
        ("GET", "/Admin/public"),
        ("HEAD", "/Admin/public"),
        ("HEAD", "/state"),
        ("HEAD", "/reports/7"),
        ("GET", "/REPORTS"),
        ("POST", "/admin/7"),
        ("POST", "/STATE"),
        ("PUT", "/BELOWX/"),
        ("GET", "/"),
        ("GET", "/admin"),
        ("GET", "/files/admin/7/"),
        ("HEAD", "/files/admin/7"),
        ("POST", "/Orders/7"),
    ] {
        assert_eq!(second(method, target).0, None, "{method} {target}");
    }
}

/// A resource has the same key whatever text is after or around its name.
#[test]
fn text_around_variable_is_no_part_of_key() {
    let loaded = load(
        r#"
version: 1
listeners: {public: {address: "127.0.0.1:8080"}}
zookeeper: {servers: ["127.0.0.1:2181"]}
upstreams: {orders: {endpoints: ["http://127.0.0.1:8000"], fencing: upstream}}
routes:
  - {name: cancel, upstream: orders, match: {path: "/orders/{id}:cancel"}, fence: {key: "order/{path.id}"}}
  - {name: odata, upstream: orders, match: {path: "/Orders({id})/lines"}, fence: {key: "order/{path.id}"}}
  - {name: rails, upstream: orders, match: {path: "/orders/{id}{.format?}"}, fence: {key: "order/{path.id}"}}
  - {name: old, upstream: orders, match: {path: "/old/{id}"}, fence: {key: "order/{path.id | without('.json', '.xml')}"}}
"#,
    );
    let plan = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics)).serving;
    for target in [
        "/orders/42",
        "/orders/42:cancel",
        "/orders/42%3acancel",
        "/orders/42.json",
        "/orders/42%2ehtml",
        "/Orders(42)/lines",
        "/Orders%2842%29/lines",
        "/old/42",
        "/old/42.json",
        "/old/42.XML",
    ] {
        let (_, key) = forwarded_path_and_key(&plan, target).unwrap_or_else(|| panic!("{target} is refused"));
        assert_eq!(key, "order/42", "{target}");
    }
    for target in ["/orders/42.", "/orders/42.tar.gz", "/orders/.json", "/orders/:cancel.", "/Orders()/lines"]
    {
        assert_eq!(forwarded_path_and_key(&plan, target), None, "{target}");
    }
}
