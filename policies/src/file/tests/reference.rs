//! Compares the tables of README.md with the reader: every field has a row, every row is a field, and the defaults in
//! the rows are those of the reader.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    super::field_recorder::{RecordedFields, take_records},
    *,
};

const README: &str = include_str!("../../../README.md");
const COMPLETE: &str = include_str!("../../../tests/complete.yaml");
const UNIX: &str = include_str!("../../../tests/unix.yaml");
const COMPLETE_GUARD: &str = include_str!("../../../tests/complete.guard.yaml");
const SHARING_GUARD: &str = include_str!("../../../tests/sharing.guard.yaml");
const FILTER: &str = include_str!("../../../tests/filter.guard.yaml");

/// For each place in the policy of a gateway, the heading of the section that describes the fields below it.
const GATEWAY: [(&str, &str); 14] = [
    ("", "## Fields"),
    ("/listeners/*", "### `listeners.<name>`"),
    ("/jwt/*", "### `jwt[]`"),
    ("/admin", "### `admin`"),
    ("/peer", "### `peer`"),
    ("/zookeeper", "### `zookeeper`"),
    ("/leases", "### `leases`"),
    ("/leases/principals/*", "### `leases.principals[]`"),
    ("/upstreams/*", "### `upstreams.<name>`"),
    ("/routes/*", "### `routes[]`"),
    ("/routes/*/allow/*", "### `routes[].allow[]`"),
    ("/routes/*/fence", "### `routes[].fence`"),
    ("/routes/*/fence/hold", "### `routes[].fence.hold`"),
    ("/routes/*/fence/once", "### `routes[].fence.once`"),
];

/// For each place in the file of a guard, the heading of the section that describes the fields below it.
const GUARD_FILE: [(&str, &str); 2] = [("", "## The file of a guard"), ("/journal", "### `journal`")];

/// Places whose fields the reference describes at another place.
const ELSEWHERE: [&str; 4] = ["/defaults", "/admin/tls", "/listeners/*/tls/certificates/*", "/unmatched"];
const GUARD_ELSEWHERE: [&str; 4] = ["/listener", "/admin", "/upstream", "/log"];

/// One row of a table in the reference.
#[derive(Debug, Clone)]
struct ReferenceRow {
    names: Vec<String>,
    default: String,
}

/// The rows of the first table below a heading.
fn rows(heading: &str) -> Vec<ReferenceRow> {
    let section =
        README.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no section {heading}")).1;
    let lines = section.lines().skip_while(|line| !line.starts_with("| field |")).skip(2);
    let table = lines.take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [names, default, ..] = *cells else { panic!("no row: {line}") };
        let quoted = names.split('`').skip(1).step_by(2).map(str::to_owned);
        ReferenceRow { names: quoted.collect(), default: default.trim().to_owned() }
    };
    table.map(row).collect()
}

fn recorded_fields(texts: &[&str], kind: PolicyProcessKind) -> BTreeMap<String, RecordedFields> {
    take_records();
    for text in texts {
        match kind {
            PolicyProcessKind::Gateway => drop(load(text)),
            PolicyProcessKind::Guard => drop(load_guard(text)),
        }
    }
    take_records()
}

/// The section that describes a place, and the prefix of its fields there, such as `limits.`.
fn section<'s>(place: &str, sections: &'s [(&str, &'static str)]) -> (&'s str, &'static str, String) {
    let within = |(root, _): &&(&str, &str)| place == *root || place.starts_with(&format!("{root}/"));
    let (root, heading) =
        sections.iter().filter(within).max_by_key(|(root, _)| root.len()).expect("the root");
    let prefix = place[root.len()..].trim_start_matches('/').replace('/', ".");
    (root, heading, if prefix.is_empty() { prefix } else { prefix + "." })
}

fn compare_with_reference(
    texts: &[&str],
    kind: PolicyProcessKind,
    sections: &[(&str, &'static str)],
    elsewhere: &[&str],
) {
    let recorded = recorded_fields(texts, kind);
    let mut wanted: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut mappings: BTreeSet<(&str, String)> = BTreeSet::new();
    for (place, fields) in &recorded {
        let (_, heading, prefix) = section(place, sections);
        let within = |other: &&str| place == *other || place.starts_with(&format!("{other}/"));
        if elsewhere.iter().any(within) {
            // Such a field may still have a row, if it has a meaning of its own at this place.
            mappings.extend(fields.fields.keys().map(|field| (heading, format!("{prefix}{field}"))));
            continue;
        }
        let known = wanted.entry(heading).or_default();
        for field in fields.fields.keys() {
            let below = format!("{place}/{field}");
            let name = format!("{prefix}{field}");
            // A mapping is described by its fields, and may also have a row of its own.
            let is_mapping = recorded.contains_key(&below) || recorded.contains_key(&format!("{below}/*"));
            if is_mapping {
                mappings.insert((heading, name));
            } else {
                known.insert(name);
            }
        }
    }
    for (_, heading) in sections {
        let rows = rows(heading);
        let written: BTreeSet<String> = rows.iter().flat_map(|row| row.names.clone()).collect();
        let wanted = wanted.remove(heading).unwrap_or_default();
        let missing: Vec<&String> = wanted.difference(&written).collect();
        assert!(missing.is_empty(), "{heading} of README.md has no row for {missing:?}");
        let is_field = |name: &&String| {
            !wanted.contains(*name)
                && !mappings.contains(&(*heading, (*name).clone()))
                && !name.ends_with("...")
        };
        let unknown: Vec<&String> = written.iter().filter(is_field).collect();
        assert!(unknown.is_empty(), "{heading} of README.md describes what nobody asks for: {unknown:?}");
    }
}

/// Each field of a policy has a row in the reference, and each row is a field.
#[test]
fn policy_fields_match_reference() {
    compare_with_reference(&[COMPLETE, UNIX], PolicyProcessKind::Gateway, &GATEWAY, &ELSEWHERE);
}

/// Each field of the file of a guard has a row in the reference, and each row is a field.
#[test]
fn guard_fields_match_reference() {
    compare_with_reference(
        &[COMPLETE_GUARD, SHARING_GUARD, FILTER, GUARD],
        PolicyProcessKind::Guard,
        &GUARD_FILE,
        &GUARD_ELSEWHERE,
    );
}

/// The shortest policy that contains a place for every field with a default.
fn shortest_policy() -> Value {
    json!({
        "version": 1,
        "listeners": {"one": {"address": "127.0.0.1:8080", "cors": {"allow_origins": ["https://a"]}, "tls": {"certificates": [{"certificate_file": "/a", "key_file": "/b"}]}}},
        "zookeeper": {"servers": ["zk1:2181"]},
        "leases": {"principals": [{"name": "one", "bearer": {"file": "/a"}, "keys": ["*"]}]},
        "log": {"traces": {"endpoint": "http://a:1"}},
        "jwt": [{"issuer": "a", "audiences": ["b"], "algorithms": ["ES256"], "jwks_url": "https://a/b"}],
        "upstreams": {"one": {"endpoints": ["https://a:1"], "fencing": "upstream", "health": {"path": "/"}}},
        "routes": [{"name": "one", "upstream": "one", "match": {"path": "/{x}"}, "fence": {"key": "{path.x}", "once": {}}}],
    })
}

fn shortest_guard_file() -> Value {
    json!({
        "version": 1,
        "listener": {"address": "127.0.0.1:8080"},
        "upstream": {"endpoint": "http://a:1"},
        "store": {"redb": "/a"},
        "tickets": {"secret_file": "/b"},
        "journal": {"probe": {"path": "/{operation}", "done": [200]}},
    })
}

/// The default in backquotes at the beginning of a cell; `None` if the cell begins in another way.
fn written_default(cell: &str) -> Option<Value> {
    let text = cell.strip_prefix('`')?.split('`').next()?;
    // The default is a list, or a single value as a user would write it.
    Some(match text.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
        Some(list) => json!(list.split(", ").collect::<Vec<_>>()),
        None => json!(text),
    })
}

fn set_at_path(value: &mut Value, way: &str, to: Value) {
    let mut place = value;
    for step in way.split('/').skip(1) {
        place = match place {
            Value::Array(items) => &mut items[0],
            members => {
                let name = if step == "*" { "one" } else { step };
                &mut members[name]
            }
        };
    }
    *place = to;
}

fn assert_defaults_hold(
    sections: &[(&str, &str)],
    least: &Value,
    plan: impl Fn(&str) -> Option<String>,
) -> usize {
    let before = plan(&least.to_string()).expect("sound");
    let mut compared = 0;
    for (root, heading) in sections {
        for row in rows(heading) {
            let Some(default) = written_default(&row.default) else { continue };
            for name in &row.names {
                // These fields are an error unless another field is present, so their defaults cannot be tested
                // alone.
                if name.ends_with("...")
                    || [
                        "store",
                        "direct",
                        "upstream.direct",
                        "not_after",
                        "upload_timeout",
                        "body_type",
                        "exact_numbers",
                        "socket_mode",
                    ]
                    .contains(&name.as_str())
                {
                    continue;
                }
                let mut written = least.clone();
                let way = format!("{root}/{}", name.replace('.', "/"));
                set_at_path(&mut written, &way, default_for_name(&row, name, &default));
                let after = plan(&written.to_string());
                assert_eq!(
                    after.as_ref(),
                    Some(&before),
                    "{heading}: the default of `{name}` is not {default}"
                );
                compared += 1;
            }
        }
    }
    compared
}

/// The default of one name in a row with several names, such as `a.x`, `a.y` with the defaults `1`, `2`.
fn default_for_name(row: &ReferenceRow, name: &str, first: &Value) -> Value {
    let at = row.names.iter().position(|other| other == name).unwrap_or_default();
    let all: Vec<&str> = row.default.split('`').skip(1).step_by(2).collect();
    match all.get(at) {
        Some(own) if row.names.len() == all.len() && row.names.len() > 1 => json!(own),
        _ => first.clone(),
    }
}

/// The defaults of a policy are those that the reference documents.
#[test]
fn documented_policy_defaults_hold() {
    let plan = |text: &str| load(text).plan.map(|plan| format!("{plan:?}"));
    let compared = assert_defaults_hold(&GATEWAY, &shortest_policy(), plan);
    assert!(compared > 40, "{compared}");
}

/// The defaults of a guard are those that the reference documents.
#[test]
fn documented_guard_defaults_hold() {
    let plan = |text: &str| load_guard(text).plan.map(|plan| format!("{plan:?}"));
    let compared = assert_defaults_hold(&GUARD_FILE, &shortest_guard_file(), plan);
    assert!(compared > 7, "{compared}");
}

/// Each YAML block of the reference is valid below a policy that has the rest.
#[test]
fn yaml_blocks_of_reference_are_sound() {
    const POLICY: &str = include_str!("../../../tests/two_services.yaml");
    let blocks: Vec<&str> =
        README.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        let loaded = load(&format!("{POLICY}{block}"));
        assert!(loaded.diagnostics.is_empty(), "{block}: {:?}", loaded.diagnostics);
        assert!(loaded.plan.is_some());
    }
}
