//! Makes the JSON Schemas from the fields that the reader reads, and compares them with the committed ones.
//!
//! After a change of fields: `REWRITE=1 cargo test -p fencegate-policies schema`, then read the difference.

use std::{collections::BTreeMap, collections::BTreeSet, env, fs};

use serde_json::{Map, Value, json};

use super::{
    super::field_recorder::{FieldValueKind, RecordedFields, take_records},
    *,
};

const COMPLETE: &str = include_str!("../../../tests/complete.yaml");
const UNIX: &str = include_str!("../../../tests/unix.yaml");
const COMPLETE_GUARD: &str = include_str!("../../../tests/complete.guard.yaml");
const SHARING_GUARD: &str = include_str!("../../../tests/sharing.guard.yaml");
const FILTER: &str = include_str!("../../../tests/filter.guard.yaml");

/// The schema of a value that the function `reader` reads. The test fails for a function that is not listed here.
fn single(reader: &str) -> Value {
    let number = r"^[0-9]+(\.[0-9]+)?";
    let duration = json!({
        "type": "string",
        "pattern": r"^\s*[0-9]+\s*[A-Za-z]+(\s*[0-9]+\s*[A-Za-z]+)*\s*$",
        "description": "a number and its unit: 250ms, 5s, 2m",
    });
    let size = json!({
        "type": "string",
        "pattern": format!(r"{number}\s*[A-Za-z]+$"),
        "description": "a number and its unit: 64KiB, 1MiB",
    });
    let count = json!({
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+$"}],
        "description": "a whole number",
    });
    let text = json!({"type": ["string", "number", "boolean"]});
    let one_of = |statuses: &[u16]| {
        let words = statuses.iter().map(ToString::to_string);
        let both = statuses.iter().map(|status| json!(status)).chain(words.map(Value::from));
        json!({"enum": both.collect::<Vec<_>>()})
    };
    match reader {
        "scalar::duration" | "scalar::time_limit" | "scalar::keep" => duration,
        "scalar::size" | "scalar::memory" | "scalar::head_size" => size,
        "scalar::count"
        | "scalar::limit"
        | "hold::max_local"
        | "fence::queue"
        | "holders::permits"
        | "lists::parse_keys_per_request"
        | "zookeeper::sessions" => count,
        "listener::protocol" => json!({"enum": ["http1", "http2"]}),
        "conflicts::source" => json!({"enum": ["path", "query", "form", "json", "xml", "cookie", "wrapped"]}),
        "fence::locked_status" => one_of(&[423, 409, 429, 503]),
        "once::final_status" | "probe::parse_probe_status" | "upstream::inconclusive_status" => count,
        "balancing::statuses" => json!({
            "anyOf": [count, {"type": "string", "pattern": "^[0-9]{3}-[0-9]{3}$"}],
            "description": "a status, or the first and last of several: 200-399",
        }),
        "journal::parse_stored_body_limit" => json!({"anyOf": [size, {"const": "none"}]}),
        "version::version::{{closure}}" => json!({"enum": [1, "1"]}),
        "fence::fence::{{closure}}" => json!({"const": "none"}),
        "gateway::unmatched::{{closure}}" => json!({"const": "reject"}),
        "scalar::endpoint" | "upstream::parse_guard_upstream::{{closure}}::{{closure}}" => {
            json!({"type": "string", "pattern": r"^(https?://[^/]+|unix:/.+)$", "description": "https://host:port, or unix:/path"})
        }
        "scalar::root" | "scalar::file" | "probe::path" | "balancing::path" => {
            json!({"type": "string", "pattern": "^/"})
        }
        "route::parse_upgrade_protocol" => json!({"type": "string"}),
        "scalar::method" => json!({"type": "string", "pattern": "^[^a-z]+$"}),
        "log::collector" => {
            json!({"type": "string", "pattern": "^http://[^/]+$", "description": "http://host:port"})
        }
        "zookeeper::parse_acl_identity" => {
            json!({"type": "string", "pattern": "^(x509|digest|sasl|ip):.", "description": "scheme:id"})
        }
        "tickets::url" => json!({"type": "string", "pattern": "^http://"}),
        "tickets::key_set_url" => json!({"type": "string", "pattern": "^https?://"}),
        "jwt::algorithm" => json!({
            "enum": ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
        }),
        "bind::address" => {
            json!({"type": "string", "pattern": ":[0-9]+$|^unix:/", "description": "IP address and port, or unix:/path"})
        }
        // Some YAML readers take `0660` without quotes for a number.
        "bind::mode" => json!({"type": ["string", "integer"]}),
        "scalar::address" | "scalar::server" | "peer_listener::advertised" => {
            json!({"type": "string", "pattern": ":[0-9]+$"})
        }
        "listener::network" => json!({"type": "string", "pattern": "^[0-9a-fA-F:.]+(/[0-9]+)?$"}),
        "cors::origin" => json!({"type": "string", "pattern": r"^(\*|[a-z][a-z0-9+.-]*://[^/]+)$"}),
        "cors::header_name" => json!({"type": "string", "pattern": r"^[^\s*:]+$"}),
        "listener::served" => json!({"type": "string", "pattern": "^[^/]+$"}),
        "text"
        | "access::rule::{{closure}}"
        | "jwt::name"
        | "principals::keys::{{closure}}"
        | "principals::certificate_name"
        | "scalar::name"
        | "tls::server_name"
        | "upstream::parse_identity_header"
        | "upstream::field_name"
        | "upstream::parse_operation_header" => text,
        // Reads the name of an upstream.
        name if name.starts_with("upstream::") && name.ends_with("::named::{{closure}}") => text,
        other => panic!("say in `single` what `{other}` takes"),
    }
}

fn strip_module_path(name: &'static str) -> &'static str {
    let name = name.strip_prefix("fencegate_policies::file::").unwrap_or(name);
    // The type name of a method contains the lifetimes of its type, so it is replaced as a whole.
    if name.contains("Upstreams") && name.contains("named") {
        "upstream::named::named::{{closure}}"
    } else {
        name
    }
}

struct SchemaBuilder<'a> {
    asked: &'a BTreeMap<String, RecordedFields>,
}

impl SchemaBuilder<'_> {
    fn mapping(&self, path: &str) -> Value {
        let record = self.asked.get(path).unwrap_or_else(|| panic!("nothing was read at `{path}`"));
        let required: Vec<&str> = record
            .required
            .iter()
            .filter(|(_, times)| **times == record.reads)
            .map(|(name, _)| *name)
            .collect();
        let mut properties = Map::new();
        for (name, how) in &record.fields {
            assert!(!how.is_empty(), "nothing reads `{path}/{name}`: add it to complete.yaml");
            let mut shapes = self.shapes(&format!("{path}/{name}"), how);
            if !required.contains(name) {
                // A field without a value (`null`) counts as absent, so only an optional field may be null.
                shapes.push(json!({"type": "null"}));
            }
            let filled =
                |how: &FieldValueKind| matches!(how, FieldValueKind::Value(_) | FieldValueKind::Word(_));
            if how.iter().any(filled) {
                shapes.push(variable_schema());
            }
            let shape = if shapes.len() == 1 { shapes.remove(0) } else { json!({"anyOf": shapes}) };
            properties.insert((*name).to_owned(), shape);
        }
        let mut schema = json!({"type": "object", "additionalProperties": false, "properties": properties});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        if let Some(names) = &record.one_of {
            let present =
                |name: &&str| json!({"required": [name], "properties": {*name: {"not": {"type": "null"}}}});
            schema["oneOf"] = names.iter().map(present).collect();
        }
        schema
    }

    fn shapes(&self, path: &str, how: &BTreeSet<FieldValueKind>) -> Vec<Value> {
        let each = |how: &FieldValueKind| match how {
            FieldValueKind::Value(name) => single(strip_module_path(name)),
            FieldValueKind::Word(words) => {
                json!({"enum": words.iter().flat_map(|word| spellings(word)).collect::<Vec<_>>()})
            }
            FieldValueKind::Values(name) => {
                json!({"type": "array", "items": {"anyOf": [single(strip_module_path(name)), variable_schema()]}})
            }
            FieldValueKind::List => json!({"type": "array", "items": self.item(path)}),
            FieldValueKind::Entries => {
                json!({"type": "object", "additionalProperties": self.mapping(&format!("{path}/*"))})
            }
            FieldValueKind::Texts => json!({"type": "object", "additionalProperties": single("text")}),
            FieldValueKind::TextLists => {
                let values = json!({"type": "array", "minItems": 1, "items": single("text")});
                json!({"type": "object", "additionalProperties": {"anyOf": [single("text"), values]}})
            }
            FieldValueKind::Mapping => self.mapping(path),
        };
        how.iter().map(each).collect()
    }

    /// The schema of a list item: a mapping if mappings were read at this path, else a single value.
    fn item(&self, path: &str) -> Value {
        let item = format!("{path}/*");
        if self.asked.contains_key(&item) { self.mapping(&item) } else { single("text") }
    }
}

/// The schema of a value with a variable of the environment, whose content is not known.
fn variable_schema() -> Value {
    json!({"$ref": "#/$defs/variable"})
}

/// The JSON values for a word of the file. In YAML, `true` without quotes is a boolean.
fn spellings(word: &str) -> Vec<Value> {
    let truth = word.parse::<bool>().ok().map(Value::from);
    [Value::from(word)].into_iter().chain(truth).collect()
}

fn schema(title: &str, texts: &[&str], kind: PolicyProcessKind) -> String {
    take_records();
    for text in texts {
        let diagnostics = match kind {
            PolicyProcessKind::Gateway => load(text).diagnostics,
            PolicyProcessKind::Guard => load_guard(text).diagnostics,
        };
        assert!(diagnostics.iter().all(|one| one.severity == Severity::Warning), "{diagnostics:?}");
    }
    let recorded = take_records();
    let mut schema = SchemaBuilder { asked: &recorded }.mapping("");
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(title);
    schema["$defs"] = json!({"variable": {"type": "string", "pattern": r"\$\{[A-Za-z_][^}]*\}"}});
    format!("{schema:#}\n")
}

fn keep_current(file: &str, made: &str) {
    let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
    if env::var_os("REWRITE").is_some() {
        fs::write(path, made).expect("the folder can be written to");
    } else {
        let kept = fs::read_to_string(path).unwrap_or_default();
        assert!(kept == made, "{file} is not what the reader asks for: see the first lines of this file");
    }
}

/// The committed schema of policies describes what the reader accepts.
#[test]
fn policy_schema_matches_reader() {
    let texts = [COMPLETE, UNIX, MINIMAL, PAYMENTS, INVENTORY];
    keep_current(
        "schema.json",
        &schema("The policy of a Fencegate gateway", &texts, PolicyProcessKind::Gateway),
    );
}

/// The committed schema of guards' files describes what the reader accepts.
#[test]
fn guard_schema_matches_reader() {
    keep_current(
        "schema.guard.json",
        &schema(
            "The file of a Fencegate guard",
            &[GUARD, COMPLETE_GUARD, SHARING_GUARD, FILTER],
            PolicyProcessKind::Guard,
        ),
    );
}
