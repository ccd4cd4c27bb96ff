//! Every `bad/*.yaml` is diagnosed exactly as the `.txt` beside it says, and the examples are diagnosed as sound.
//!
//! After a change of wording: `REWRITE=1 cargo test -p fencegate-policies --test bad`, then read the difference.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use fencegate_policies::{
    diagnose::{Code, Severity},
    file::{Loaded, load},
};

#[test]
fn every_bad_file_is_diagnosed_as_written_down() {
    let mut unlike = Vec::new();
    for path in yaml_files("tests/bad") {
        let (given, wanted) = (diagnosis(&path), path.with_extension("txt"));
        if env::var_os("REWRITE").is_some() {
            fs::write(&wanted, &given).expect("the folder can be written to");
        } else if given != fs::read_to_string(&wanted).unwrap_or_default() {
            unlike.push(format!("{}:\n{given}", path.display()));
        }
    }
    assert!(unlike.is_empty(), "{}", unlike.join("\n"));
}

#[test]
fn every_mistake_in_a_file_has_a_bad_file() {
    let seen: BTreeSet<Code> = yaml_files("tests/bad").iter().flat_map(|path| codes(path)).collect();
    // Codes from FG05 on are met at start, beyond the file.
    let missing: Vec<Code> =
        Code::ALL.iter().copied().filter(|code| code.number() < "FG05" && !seen.contains(code)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn there_is_a_plan_unless_something_is_an_error() {
    for path in yaml_files("tests/bad") {
        let Loaded { plan, diagnostics } = load(&read(&path));
        let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).count();
        assert_eq!(plan.is_some(), errors == 0, "{}", path.display());
    }
}

#[test]
fn the_examples_are_sound() {
    for path in yaml_files("examples") {
        assert_eq!(diagnosis(&path), "", "{}", path.display());
        assert!(load(&read(&path)).plan.is_some());
    }
}

#[test]
fn the_reference_lists_every_code() {
    let reference = read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")));
    for code in Code::ALL {
        let row = format!("| `{code}` | {} |", code.meaning());
        assert!(reference.contains(&row), "add to README.md: {row}");
    }
}

fn diagnosis(path: &Path) -> String {
    let source = read(path);
    let name = path.file_name().expect("a file").to_string_lossy();
    load(&source).diagnostics.iter().map(|diagnostic| diagnostic.render(&name, &source) + "\n").collect()
}

fn codes(path: &Path) -> Vec<Code> {
    load(&read(path)).diagnostics.iter().map(|diagnostic| diagnostic.code).collect()
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
