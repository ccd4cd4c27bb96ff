//! Compares the committed documents with the types, and checks that every served path is described.
//!
//! After a change: `REWRITE=1 cargo test -p fencegate-admin --features openapi openapi`, then read the difference.

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use fencegate_guard::identity::ANNOUNCEMENT;
use serde_json::Value;

use super::*;

fn assert_current(file: &str, made: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../openapi").join(file);
    if env::var_os("REWRITE").is_some() {
        fs::write(&path, made).expect("the repository can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{file} is not what the types make: see the first lines of this file");
}

/// The shipped OpenAPI documents are what the types generate.
#[test]
fn documents_match_types() {
    assert_current("gateway-admin.json", &gateway_document());
    assert_current("guard-admin.json", &guard_document());
    assert_current("leases.json", &leases_document());
}

/// The paths and methods that a source registers with the router, in the form of a document.
fn routed_paths(sources: &[&str]) -> BTreeSet<(String, String)> {
    let routes = sources.iter().flat_map(|source| source.split(".route(").skip(1));
    let read = |route: &str| {
        let (path, rest) = route.trim_start().strip_prefix('"')?.split_once('"')?;
        // `get(one).post(another))`
        let (methods, _) = rest.split_once("))")?;
        let methods = methods.split([',', '.', ')']).filter_map(|called| called.trim().split_once('('));
        let named = methods.map(|(method, _)| (path.replace("{*", "{"), method.to_owned()));
        Some(named.collect::<Vec<_>>())
    };
    routes.flat_map(|route| read(route).unwrap_or_else(|| panic!("no path in {route}"))).collect()
}

fn described_paths(document: &str) -> BTreeSet<(String, String)> {
    let document: Value = serde_json::from_str(document).expect("JSON");
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().expect("paths").iter();
    let each = |(path, item): (&String, &Value)| {
        let methods = item.as_object().expect("operations").keys().cloned();
        let path = path.clone();
        methods.map(move |method| (path.clone(), method)).collect::<Vec<_>>()
    };
    paths.flat_map(each).collect()
}

/// Each path that an API serves to programs is in its OpenAPI document, and no other path is.
#[test]
fn documents_describe_exactly_served_paths() {
    let both = include_str!("../probes.rs");
    let of_admin = [both, include_str!("../lib.rs"), include_str!("../api.rs"), include_str!("../leases.rs")];
    let gateways = routed_paths(&of_admin);
    assert!(gateways.len() > 10, "{gateways:?}");
    assert_eq!(described_paths(&gateway_document()), gateways);
    let sources = [both, include_str!("../outcomes.rs"), include_str!("../backup_download.rs")];
    let mut guards = routed_paths(&sources);
    guards.insert((ANNOUNCEMENT.to_owned(), "get".to_owned()));
    assert_eq!(described_paths(&guard_document()), guards);
    let of_leases = routed_paths(&[include_str!("../../../leases/src/api.rs")]);
    let of_leases = of_leases.into_iter().map(|(path, method)| (format!("/.fencegate/v1{path}"), method));
    assert_eq!(described_paths(&leases_document()), of_leases.collect());
}
