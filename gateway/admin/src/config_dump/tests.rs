//! The dump shows every field that a policy can have.

use std::collections::{BTreeMap, BTreeSet};

use fencegate_policies::{file, schema::PolicySchema};
use serde_json::Value;

use super::EffectiveConfig;

/// A policy that sets every field except those of [`LIST`] and [`UNIX`].
const COMPLETE: &str = include_str!("../../../../policies/tests/complete.yaml");
const UNIX: &str = include_str!("../../../../policies/tests/unix.yaml");
const MINIMAL: &str = include_str!("../../../../policies/examples/minimal.yaml");
/// A fence with keys of list items, which need the length of the list or are of all items.
const LIST: &str = r#"fence: {keys: ["sku/{body:/items/0/sku}", "tag/{body:/tags/*}"], only: 1}"#;

/// The names of all fields of a document.
fn collect_fields(document: &Value, fields: &mut BTreeSet<String>) {
    match document {
        Value::Object(object) => {
            fields.extend(object.keys().cloned());
            object.values().for_each(|value| collect_fields(value, fields));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_fields(value, fields)),
        _ => {}
    }
}

/// The dump leaves out only the paths of files, which would tell where secrets are read from, and the names of
/// mappings whose fields are one level higher.
#[test]
fn dump_shows_every_field() {
    let hidden = BTreeMap::from([
        ("admin", vec!["bearer_file", "certificate_file", "client_ca_file", "key_file"]),
        ("jwt", vec!["jwks_ca_file", "jwks_file"]),
        ("leases", vec!["bearer", "certificate", "file"]),
        ("listeners", vec!["certificate_file", "client_ca_file", "key_file"]),
        ("peer", vec!["ca_file", "certificate_file", "key_file"]),
        ("routes", vec!["match"]),
        ("tickets", vec!["public_keys_file", "secret_file", "signing_key_file"]),
        ("unmatched", vec!["pass"]),
        ("upstreams", vec!["ca_file", "client_certificate_file", "client_key_file"]),
        ("zookeeper", vec!["ca_file", "client_certificate_file", "client_key_file", "password_file", "user"]),
    ]);
    let with_list = MINIMAL.replace(r#"fence: {key: "order/{path.order_id | int}"}"#, LIST);
    let dumps = [COMPLETE, UNIX, &with_list].map(|policy| {
        let plan = file::load(policy).plan.expect("a sound policy");
        serde_json::to_value(EffectiveConfig::new(&plan)).expect("JSON")
    });
    let table = PolicySchema::for_gateway();
    // The values of `defaults` are in the routes, so `defaults` itself is not in the dump.
    for part in table.names(&[]).into_iter().filter(|part| !["version", "defaults"].contains(part)) {
        let mut shown = BTreeSet::new();
        for dump in &dumps {
            collect_fields(dump.get(part).expect(part), &mut shown);
        }
        let missing: Vec<&str> =
            table.names_below(&[part]).into_iter().filter(|name| !shown.contains(*name)).collect();
        assert_eq!(missing, hidden.get(part).cloned().unwrap_or_default(), "{part}");
    }
}

/// A route may be chosen by a field that authenticates clients. The value of such a field is a secret, so the
/// dump leaves it out.
#[test]
fn credentials_in_conditions_are_hidden() {
    let fields = "headers: {authorization: canary, x-region: eu}";
    let policy = MINIMAL.replace("match: {", &format!("match: {{{fields}, "));
    let plan = file::load(&policy).plan.expect("a sound policy");
    let dump = serde_json::to_value(EffectiveConfig::new(&plan)).expect("JSON");
    let headers = serde_json::json!([{"name": "authorization"}, {"name": "x-region", "value": "eu"}]);
    assert_eq!(dump["routes"][0]["headers"], headers);
}
