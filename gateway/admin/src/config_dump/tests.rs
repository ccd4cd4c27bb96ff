//! The dump shows every field that a route and an upstream can have in a policy.

use std::collections::BTreeSet;

use fencegate_policies::file;
use serde_json::Value;

use super::EffectiveConfig;

const SCHEMA: &str = include_str!("../../../../policies/schema.json");

/// Sets every field but [`LIST`].
const COMPLETE: &str = include_str!("../../../../policies/tests/complete.yaml");
const MINIMAL: &str = include_str!("../../../../policies/examples/minimal.yaml");
/// Keys of items of a list need its length.
const LIST: &str = r#"fence: {keys: ["sku/{body:/items/0/sku}"], only: 1}"#;

/// The names of all fields below a part of the schema.
fn collect_schema_fields(schema: &Value, fields: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Object(properties)) = object.get("properties") {
                fields.extend(properties.keys().cloned());
            }
            object.values().for_each(|value| collect_schema_fields(value, fields));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_schema_fields(value, fields)),
        _ => {}
    }
}

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

/// Fields of a policy that the dump of `part` does not show.
fn missing_fields(part: &str) -> Vec<String> {
    let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    let mut written = BTreeSet::new();
    collect_schema_fields(&schema["properties"][part], &mut written);
    assert!(written.len() > 10, "{part}: {written:?}");
    let mut shown = BTreeSet::new();
    let with_list = MINIMAL.replace(r#"fence: {key: "order/{path.order_id}"}"#, LIST);
    for policy in [COMPLETE, &with_list] {
        let plan = file::load(policy).plan.expect("a sound policy");
        let dump = serde_json::to_value(EffectiveConfig::new(&plan)).expect("JSON");
        collect_fields(&dump[part], &mut shown);
    }
    written.difference(&shown).cloned().collect()
}

/// What is in `match` stands in the route itself.
#[test]
fn dump_shows_every_route_field() {
    assert_eq!(missing_fields("routes"), ["match"]);
}

/// The paths of files are not shown: they would tell where secrets are read from.
#[test]
fn dump_shows_every_upstream_field() {
    assert_eq!(missing_fields("upstreams"), ["ca_file", "client_certificate_file", "client_key_file"]);
}

/// A route may be chosen by a field that authenticates clients, whose value is a secret.
#[test]
fn credentials_in_conditions_are_hidden() {
    let fields = "headers: {authorization: canary, x-region: eu}";
    let policy = MINIMAL.replace("match: {", &format!("match: {{{fields}, "));
    let plan = file::load(&policy).plan.expect("a sound policy");
    let dump = serde_json::to_value(EffectiveConfig::new(&plan)).expect("JSON");
    let headers = serde_json::json!([{"name": "authorization"}, {"name": "x-region", "value": "eu"}]);
    assert_eq!(dump["routes"][0]["headers"], headers);
}
