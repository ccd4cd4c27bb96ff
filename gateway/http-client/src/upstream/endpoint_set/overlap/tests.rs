//! Tests with lookups that find addresses, find nothing, or get no answer. The test sets their results.

use std::sync::Arc;

use fencegate_http::network::ConnectTarget;
use fencegate_policies::file::load;
use fencegate_process::registry::MetricRegistry;

use super::*;
use crate::upstream::{metrics::EndpointMetrics, same_listener::own_address};

const OPEN: UpstreamId = UpstreamId(0);

/// The result of a lookup.
enum FakeDnsLookup {
    Silent,
    InVain,
    Found(&'static str),
}

fn open_and_fenced_upstreams(open: &[&str], fenced: &[&str]) -> Arc<UpstreamSet> {
    let urls = |hosts: &[&str]| {
        let urls: Vec<String> = hosts.iter().map(|host| format!("\"http://{host}\"")).collect();
        urls.join(", ")
    };
    let text = format!(
        r#"version: 1
listeners: {{public: {{address: 127.0.0.1:8080}}}}
zookeeper: {{servers: [zk1:2181]}}
upstreams:
  open: {{endpoints: [{}], fencing: upstream, connect_timeout: 20ms}}
  shut: {{endpoints: [{}], fencing: upstream, connect_timeout: 20ms}}
routes:
  - {{name: look, upstream: open, match: {{path: "/look"}}, fence: none}}
  - {{name: pay, upstream: shut, match: {{methods: [POST], path: "/pay/{{id}}"}}, fence: {{key: "{{path.id}}"}}}}
"#,
        urls(open),
        urls(fenced)
    );
    let loaded = load(&text);
    let gateway = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    UpstreamSet::new(&gateway.serving, &EndpointMetrics::register(&MetricRegistry::new())).expect("no files")
}

fn look_up(upstreams: &UpstreamSet, lookups: &[(&str, FakeDnsLookup)]) {
    for endpoint in upstreams.all.iter().flat_map(|endpoint_set| &endpoint_set.endpoints) {
        let lookup = lookups.iter().find(|(name, _)| *name == &*endpoint.name).map(|(_, lookup)| lookup);
        match lookup {
            None | Some(FakeDnsLookup::Silent) => {}
            Some(FakeDnsLookup::InVain) => {
                endpoint.addresses.record_failed_lookup();
            }
            Some(FakeDnsLookup::Found(socket)) => {
                endpoint.addresses.update(vec![ConnectTarget::parse_literal(socket).expect("an address")]);
            }
        }
    }
}

/// Upstreams overlap if lookups found a common address; a name that was not found counts as an overlap.
#[tokio::test]
async fn unresolved_name_counts_as_overlap() {
    use FakeDnsLookup::{Found, InVain, Silent};
    let other = &["10.0.0.2:8000"][..];
    let name = &["open.example:80"][..];
    let fenced = &["10.0.0.1:8000"][..];
    for (told, open, fenced, lookups, meets) in [
        ("two addresses", other, fenced, vec![], false),
        ("a name of another one", name, fenced, vec![("open.example:80", Found("10.0.0.2:8000"))], false),
        ("a name of the same", name, fenced, vec![("open.example:80", Found("10.0.0.1:8000"))], true),
        ("a silent name server", name, fenced, vec![("open.example:80", Silent)], true),
        ("a name that is none", name, fenced, vec![("open.example:80", InVain)], true),
        (
            "an address of the same beside a silent name",
            &["silent.example:80", "open.example:80"],
            fenced,
            vec![("open.example:80", Found("10.0.0.1:8000"))],
            true,
        ),
        (
            "the fenced one has a name that is none",
            other,
            &["10.0.0.1:8000", "shut.example:80"],
            vec![("shut.example:80", InVain)],
            true,
        ),
        ("the fenced one has a silent name", other, &["10.0.0.1:8000", "shut.example:80"], vec![], true),
        (
            "all names are found, elsewhere",
            &["10.0.0.2:8000", "open.example:80"],
            &["10.0.0.1:8000", "shut.example:80"],
            vec![("shut.example:80", Found("10.0.0.3:80")), ("open.example:80", Found("10.0.0.4:80"))],
            false,
        ),
    ] {
        let upstreams = open_and_fenced_upstreams(open, fenced);
        look_up(&upstreams, &lookups);
        assert_eq!(upstreams.overlaps_protected(OPEN).await, meets, "{told}");
    }
}

/// A name that was found once keeps its addresses after a failed lookup.
#[tokio::test]
async fn failed_lookup_keeps_former_addresses() {
    let upstreams = open_and_fenced_upstreams(&["open.example:80"], &["10.0.0.1:8000"]);
    look_up(&upstreams, &[("open.example:80", FakeDnsLookup::Found("10.0.0.2:80"))]);
    look_up(&upstreams, &[("open.example:80", FakeDnsLookup::InVain)]);
    assert!(!upstreams.overlaps_protected(OPEN).await);
}

#[tokio::test]
async fn own_address_overlaps_loopback() {
    // A machine without a network has only loopback addresses.
    let own = own_address().map_or("127.0.0.2:8000".to_owned(), |own| format!("{own}:8000"));
    let upstreams = open_and_fenced_upstreams(&["open.example:80"], &["127.0.0.1:8000"]);
    upstreams.get(OPEN).endpoints[0]
        .addresses
        .update(vec![ConnectTarget::parse_literal(&own).expect("an address")]);
    assert!(upstreams.overlaps_protected(OPEN).await, "{own}");
}

/// Names with changing addresses overlap if they had a common one recently; old addresses are forgotten.
#[tokio::test]
async fn recent_addresses_count_for_overlap() {
    let upstreams = open_and_fenced_upstreams(&["open.example:80"], &["shut.example:80"]);
    let told = |open: &'static str, shut: &'static str| {
        let lookups = [
            ("open.example:80", FakeDnsLookup::Found(open)),
            ("shut.example:80", FakeDnsLookup::Found(shut)),
        ];
        look_up(&upstreams, &lookups);
    };
    told("10.0.0.1:80", "10.0.0.2:80");
    assert!(!upstreams.overlaps_protected(OPEN).await, "nothing says so yet");
    told("10.0.0.2:80", "10.0.0.3:80");
    assert!(upstreams.overlaps_protected(OPEN).await, "one of them led there before");
    // An address that is no longer found may get another owner, so it is forgotten after a time.
    for _ in 0..3 {
        for endpoint in upstreams.all.iter().flat_map(|endpoint_set| &endpoint_set.endpoints) {
            endpoint.addresses.make_older(Duration::from_secs(300));
        }
        told("10.0.0.4:80", "10.0.0.3:80");
    }
    assert!(!upstreams.overlaps_protected(OPEN).await);
}
