//! Compares the diagnostics of every `bad/*.yaml` and `bad/guard/*.yaml` with the `.txt` beside it, and checks
//! that the examples have no errors.
//!
//! After a change of wording: `REWRITE=1 cargo test -p fencegate-policies --test bad`, then read the difference.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode, Severity},
    file::{self, PolicyProcessKind, load, load_guard},
};

const GATEWAYS: &str = "tests/bad";
const GUARDS: &str = "tests/bad/guard";

/// Each bad file has the diagnostics that are recorded beside it.
#[test]
fn bad_files_have_recorded_diagnostics() {
    let mut unlike = Vec::new();
    for (path, kind) in bad_files() {
        let given = diagnosis(&path, kind);
        let wanted = path.with_extension("txt");
        if env::var_os("REWRITE").is_some() {
            fs::write(&wanted, &given).expect("the folder can be written to");
        } else if given != fs::read_to_string(&wanted).unwrap_or_default() {
            unlike.push(format!("{}:\n{given}", path.display()));
        }
    }
    assert!(unlike.is_empty(), "{}", unlike.join("\n"));
}

/// Each mistake that a file can have occurs in a bad file.
#[test]
fn each_code_has_bad_file() {
    let codes = |(path, kind): (PathBuf, PolicyProcessKind)| {
        outcome(&read(&path), kind).1.into_iter().map(|diagnostic| diagnostic.code)
    };
    let hints =
        load("{version: 1, routes: [{name: a, match: {path: '/{id}'}, fence: {key: 'a/{path.id}'}}]}").hints;
    let seen: BTreeSet<DiagnosticCode> =
        bad_files().into_iter().flat_map(codes).chain(hints.iter().map(|hint| hint.code)).collect();
    // Codes from FG05 on are reported at start, for reasons outside of the file.
    let missing: Vec<DiagnosticCode> = DiagnosticCode::ALL
        .iter()
        .copied()
        .filter(|code| code.number() < "FG05" && !seen.contains(code))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Each diagnostic has the place of the mistake and a remedy.
#[test]
fn each_mistake_has_place_and_remedy() {
    let mut without = Vec::new();
    for (path, kind) in bad_files() {
        for diagnostic in outcome(&read(&path), kind).1 {
            if diagnostic.place.is_none() || diagnostic.remedy.is_none() {
                without.push(format!("{}: {}: {}", path.display(), diagnostic.code, diagnostic.message));
            }
        }
    }
    assert!(without.is_empty(), "{without:#?}");
}

/// A file has a plan unless one of its diagnostics is an error.
#[test]
fn plan_exists_unless_error() {
    for (path, kind) in bad_files() {
        let (planned, diagnostics) = outcome(&read(&path), kind);
        let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).count();
        assert_eq!(planned, errors == 0, "{}", path.display());
    }
}

#[test]
fn examples_are_sound() {
    for path in yaml_files("examples") {
        let kind = file::detect_file_kind(&read(&path));
        let is_guards = path.ends_with("guard.yaml") || path.ends_with("filter.yaml");
        assert_eq!(kind == PolicyProcessKind::Guard, is_guards, "{}", path.display());
        assert_eq!(diagnosis(&path, kind), "", "{}", path.display());
        assert!(outcome(&read(&path), kind).0);
    }
}

#[test]
fn reference_lists_every_code() {
    let reference = read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")));
    for code in DiagnosticCode::ALL {
        let row = format!("| `{code}` | {} |", code.meaning());
        assert!(reference.contains(&row), "add to README.md: {row}");
    }
}

fn diagnosis(path: &Path, kind: PolicyProcessKind) -> String {
    let source = read(path);
    let name = path.file_name().expect("a file").to_string_lossy();
    let (_, diagnostics) = outcome(&source, kind);
    diagnostics.iter().map(|diagnostic| diagnostic.render(&name, &source) + "\n").collect()
}

/// Whether the file has a plan, and its diagnostics.
fn outcome(text: &str, kind: PolicyProcessKind) -> (bool, Vec<Diagnostic>) {
    match kind {
        PolicyProcessKind::Gateway => {
            let loaded = load(text);
            (loaded.plan.is_some(), loaded.diagnostics)
        }
        PolicyProcessKind::Guard => {
            let loaded = load_guard(text);
            (loaded.plan.is_some(), loaded.diagnostics)
        }
    }
}

fn bad_files() -> Vec<(PathBuf, PolicyProcessKind)> {
    let of = |folder, kind| yaml_files(folder).into_iter().map(move |path| (path, kind));
    of(GATEWAYS, PolicyProcessKind::Gateway).chain(of(GUARDS, PolicyProcessKind::Guard)).collect()
}

fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("the folder is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    assert!(!paths.is_empty(), "no files in {folder}");
    paths
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("readable")
}

/// A key that takes any text gets a hint, and a key with restricted values gets none.
#[test]
fn free_text_gets_hint() {
    let hints = |key: &str| {
        let file = format!(
            "{{version: 1, routes: [{{name: a, match: {{path: '/{{id}}'}}, fence: {{key: \"{key}\"}}}}]}}"
        );
        let hints = load(&file).hints;
        assert!(hints.iter().all(|hint| hint.severity == Severity::Hint && hint.remedy.is_some()));
        hints.len()
    };
    assert_eq!(hints("a/{path.id}"), 1);
    assert_eq!(hints("a/{path.id | lower}/{body:/x | without('.json')}"), 2);
    for bounded in [
        "{host}",
        "a",
        "a/{path.id | int}",
        "a/{query.id | uuid}",
        "a/{path.id | trim | match('[a-z]{1,9}')}",
    ] {
        assert_eq!(hints(bounded), 0, "{bounded}");
    }
}
