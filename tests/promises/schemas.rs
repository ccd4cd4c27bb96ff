//! The JSON Schemas mean the same to an external validator as to Fencegate: every example is valid, and a mistake that
//! a schema can express is not.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode},
    file,
};
use tokio::task::spawn_blocking;

use super::clients::python_with_package;

const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../policies");

/// The errors that a schema can express, because they concern the form of a file.
const SEEN: [DiagnosticCode; 7] = [
    DiagnosticCode::UnknownField,
    DiagnosticCode::UnknownValue,
    DiagnosticCode::BadDuration,
    DiagnosticCode::BadSize,
    DiagnosticCode::BadCount,
    DiagnosticCode::Version,
    DiagnosticCode::LockedStatus,
];

/// Files that the validator's YAML reader refuses or reads differently, because of merge keys.
const BEYOND: [&str; 1] = ["merge_key"];

fn files(folder: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(Path::new(POLICIES).join(folder)).expect("the folder is there");
    let mut paths: Vec<PathBuf> = all.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    paths
}

/// True if all files are valid, and the output of the validator.
async fn validate_files(python: &str, schema: &str, files: &[PathBuf]) -> (bool, String) {
    let mut command = Command::new("timeout");
    let schema = format!("{POLICIES}/{schema}");
    command.args(["120", python, "-m", "check_jsonschema", "--schemafile", &schema]).args(files);
    let output = spawn_blocking(move || command.output()).await.expect("no panic").expect("started");
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    (output.status.success(), said)
}

fn has_form_error(path: &Path, load: fn(&str) -> Vec<Diagnostic>) -> bool {
    let text = fs::read_to_string(path).expect("readable");
    load(&text).iter().any(|one| SEEN.contains(&one.code))
}

/// Another validator accepts the examples, and refuses each file with a mistake that the schema can express.
#[tokio::test]
async fn external_validator_agrees_with_schemas() {
    let python = python_with_package("check-jsonschema", "check-jsonschema").await;
    let examples = [files("examples"), files("tests")].concat();
    let (guards, gateways): (Vec<PathBuf>, Vec<PathBuf>) = examples.into_iter().partition(|path| {
        ["guard.yaml", "filter.yaml"].iter().any(|name| path.to_string_lossy().ends_with(name))
    });
    assert!(gateways.len() >= 5 && guards.len() >= 2, "{gateways:?} {guards:?}");
    for (schema, good) in [("schema.json", &gateways), ("schema.guard.json", &guards)] {
        let (fit, said) = validate_files(&python, schema, good).await;
        assert!(fit, "{said}");
    }
    type LoadFn = fn(&str) -> Vec<Diagnostic>;
    let loads: [(&str, &str, LoadFn); 2] = [
        ("tests/bad", "schema.json", |text| file::load(text).diagnostics),
        ("tests/bad/guard", "schema.guard.json", |text| file::load_guard(text).diagnostics),
    ];
    let mut refused = 0;
    for (folder, schema, load) in loads {
        let mut bad = files(folder);
        bad.retain(|path| {
            let known = path.file_stem().is_some_and(|name| BEYOND.iter().any(|beyond| name == *beyond));
            !known && has_form_error(path, load)
        });
        // One run checks all of these files, and names each invalid one.
        let (fit, said) = validate_files(&python, schema, &bad).await;
        assert!(!fit, "{said}");
        for path in &bad {
            let name = path.file_name().expect("a file").to_string_lossy();
            assert!(said.contains(&*name), "{name} fits:\n{said}");
        }
        refused += bad.len();
    }
    assert!(refused >= 15, "{refused}");
}
