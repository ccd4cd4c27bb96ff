//! Checks the JSON Schemas with a validator of another project: they accept every good file, and refuse the mistakes
//! that a schema can see.

use std::{fs, path::Path};

use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode},
    file::{self, PolicyProcessKind},
    schema::{GATEWAY, GUARD},
};
use serde_json::Value;

/// The codes of mistakes in the mere form of a file, which a schema sees. All others depend on the meaning of words.
const SEEN: [DiagnosticCode; 9] = [
    DiagnosticCode::UnknownField,
    DiagnosticCode::UnknownValue,
    DiagnosticCode::MissingField,
    DiagnosticCode::WrongShape,
    DiagnosticCode::BadDuration,
    DiagnosticCode::BadSize,
    DiagnosticCode::BadCount,
    DiagnosticCode::Version,
    DiagnosticCode::LockedStatus,
];

/// Names of bad files whose mistakes have one of these codes and are not seen by a schema: empty lists, merge keys
/// (which the YAML reader of this test resolves), and fields that are needed only beside another field.
const BEYOND: [&str; 8] = [
    "delay",
    "empty_lists",
    "forward_without_peer",
    "jwt_missing",
    "key_and_keys",
    "merge_key",
    "peer_not_advertised",
    "zookeeper_closed",
];

fn validator(schema: &str) -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    jsonschema::draft202012::meta::validate(&schema).expect("a schema of draft 2020-12");
    jsonschema::draft202012::new(&schema).expect("a schema")
}

fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths =
        fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("readable").path());
    let yaml = paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let named = |path: &Path| path.file_stem().expect("a file").to_string_lossy().into_owned();
    yaml.map(|path| (named(&path), fs::read_to_string(&path).expect("readable"))).collect()
}

/// Each good file fits its schema.
#[test]
fn good_files_fit_schema() {
    let gateways = validator(GATEWAY);
    let guards = validator(GUARD);
    let complete = files("tests").into_iter().chain(files("examples"));
    let mut count = 0;
    for (name, text) in complete {
        let validator =
            if file::detect_file_kind(&text) == PolicyProcessKind::Guard { &guards } else { &gateways };
        let value: Value = serde_saphyr::from_str(&text).expect("YAML");
        let wrong: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
        count += 1;
    }
    assert!(count >= 5, "{count} files");
}

/// The schema rejects bad files whose form is wrong, and accepts those that are wrong only by their meaning.
#[test]
fn schema_rejects_malformed_file() {
    let mut refused = 0;
    let mut fit = Vec::new();
    for (folder, schema, kind) in [
        ("tests/bad", GATEWAY, PolicyProcessKind::Gateway),
        ("tests/bad/guard", GUARD, PolicyProcessKind::Guard),
    ] {
        let validator = validator(schema);
        for (name, text) in files(folder) {
            let diagnostics: Vec<Diagnostic> = match kind {
                PolicyProcessKind::Gateway => file::load(&text).diagnostics,
                PolicyProcessKind::Guard => file::load_guard(&text).diagnostics,
            };
            let seen = diagnostics.iter().any(|one| SEEN.contains(&one.code));
            // Repeated fields and similar mistakes are refused by the YAML reader already.
            let Ok(value) = serde_saphyr::from_str::<Value>(&text) else { continue };
            match (seen, validator.is_valid(&value)) {
                (true, true) => fit.push(name),
                (true, false) => refused += 1,
                (false, _) => {}
            }
        }
    }
    fit.sort_unstable();
    assert_eq!(fit, BEYOND);
    assert!(refused >= 15, "only {refused} files were refused");
}
