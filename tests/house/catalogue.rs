//! The catalogue of the tests: a row for each module, with the first paragraph of its documentation and the number of
//! its tests.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use crate::sources::SourceFiles;

/// The folders of `tests` that the catalogue lists, each with its heading.
const SECTIONS: [(&str, &str); 11] = [
    ("promises", "Promises"),
    ("faults", "Faults"),
    ("sim", "Simulation"),
    ("models", "Models"),
    ("duel", "Duel"),
    ("versions", "Versions"),
    ("packages", "Packages"),
    ("mutants", "Mutants"),
    ("house", "House"),
    ("src", "Harness"),
    ("testkit/src", "Test kit"),
];

const INTRODUCTION: &str = "\
# Catalogue of the tests

<!-- `REWRITE=1 cargo test -p fencegate-tests --test house` writes this file from the sources. -->

Each row is a module. Its summary is the first paragraph of the documentation at the top of its file. The
documentation goes on there with the programs, the amounts and the controls of the tests. The last column
counts the functions with a test attribute in all files of the module. A function that a macro repeats
counts once, and so does a function that plays a list of cases. How to run one test: [README.md](README.md).
";

/// A module with everything below it.
#[derive(Default)]
struct TestModule {
    /// The first paragraph of its documentation, on one line.
    summary: String,
    tests: usize,
}

/// The text of `tests/CATALOGUE.md`, or one sentence for each module whose first paragraph cannot stand in it.
/// `tests`: the folder with the sources of all tests.
pub(crate) fn render(tests: &Path) -> Result<String, Vec<String>> {
    let mut text = INTRODUCTION.to_owned();
    let mut unfit = Vec::new();
    for (folder, heading) in SECTIONS {
        let sources = SourceFiles::read(&tests.join(folder));
        let modules = test_modules(&sources);
        unfit.extend(unfit_summaries(folder, &modules));
        text += &section(folder, heading, modules);
    }
    if unfit.is_empty() { Ok(text) } else { Err(unfit) }
}

/// The modules of one folder by their names. The root module is called as its file: `main` or `lib`.
fn test_modules(sources: &SourceFiles) -> BTreeMap<&str, TestModule> {
    let mut modules = BTreeMap::<&str, TestModule>::new();
    for (path, source) in sources.iter() {
        let name = path.split_once(['/', '.']).map_or(path, |(name, _)| name);
        let module = modules.entry(name).or_default();
        module.tests += count_tests(source);
        if !path.contains('/') {
            module.summary = first_paragraph(source);
        }
    }
    modules
}

/// The first paragraph of the documentation at the top of a file, on one line.
fn first_paragraph(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The number of functions with a test attribute. Lines are enough: `syn` does not look into macros.
fn count_tests(source: &str) -> usize {
    let attributes = source.lines().map(str::trim_start);
    attributes.filter(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")).count()
}

/// One sentence for each module whose summary cannot stand in a table. Links of rustdoc lead nowhere in Markdown.
fn unfit_summaries(folder: &str, modules: &BTreeMap<&str, TestModule>) -> Vec<String> {
    let mut unfit = Vec::new();
    for (name, module) in modules {
        if module.summary.is_empty() {
            unfit.push(format!("{folder}/{name}: no documentation at the top"));
        } else if module.summary.contains(['[', '|']) {
            unfit.push(format!("{folder}/{name}: a link or `|` in the first paragraph"));
        }
    }
    unfit
}

/// The section of one folder: the summary of its root module, and a row for each other module.
fn section(folder: &str, heading: &str, mut modules: BTreeMap<&str, TestModule>) -> String {
    let all: usize = modules.values().map(|module| module.tests).sum();
    let root = ["main", "lib"].into_iter().find_map(|name| modules.remove(name)).expect("a root module");
    let mut text = format!("\n## {heading}\n\n{} Tests in [`{folder}`]({folder}): {all}", root.summary);
    if root.tests > 0 && !modules.is_empty() {
        write!(text, ", {} of them in the root module", root.tests).expect("memory");
    }
    text.push_str(".\n");
    if !modules.is_empty() {
        text.push_str("\n| module | summary | tests |\n|---|---|---|\n");
    }
    for (name, TestModule { summary, tests }) in modules {
        writeln!(text, "| [`{name}`]({folder}/{name}.rs) | {summary} | {tests} |").expect("memory");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module has one row, with its first paragraph and the tests of all its files.
    #[test]
    fn module_has_one_row() {
        let sources = SourceFiles::from_texts(&[
            ("main.rs", "//! Doors.\n\nmod door;\n\n#[test]\nfn door_is_there() {}\n"),
            ("door.rs", "//! A door opens\n//! inwards.\n//!\n//! Oak.\n\n#[tokio::test]\nasync fn a() {}"),
            ("door/lock.rs", "//! A lock.\n\nmod tests {\n    #[test]\n    fn b() {}\n}\n"),
        ]);
        let written = "\n## Doors\n\nDoors. Tests in [`doors`](doors): 3, 1 of them in the root module.\n\n\
                       | module | summary | tests |\n|---|---|---|\n\
                       | [`door`](doors/door.rs) | A door opens inwards. | 2 |\n";
        assert_eq!(section("doors", "Doors", test_modules(&sources)), written);
    }

    /// A folder with nothing but its root module has no table.
    #[test]
    fn lone_root_module_has_no_table() {
        let sources = SourceFiles::from_texts(&[("lib.rs", "//! One door.\n#[test]\nfn a() {}\n")]);
        let written = "\n## Door\n\nOne door. Tests in [`door`](door): 1.\n";
        assert_eq!(section("door", "Door", test_modules(&sources)), written);
    }

    /// A module without documentation is reported, and so is a first paragraph that a table cannot show.
    #[test]
    fn unfit_summary_is_reported() {
        let sources = SourceFiles::from_texts(&[
            ("bare.rs", "fn a() {}\n"),
            ("good.rs", "//! Good.\n//!\n//! With a [`link`].\n"),
            ("linked.rs", "//! See [`good`].\n"),
        ]);
        let reported = unfit_summaries("house", &test_modules(&sources));
        assert_eq!(
            reported,
            ["house/bare: no documentation at the top", "house/linked: a link or `|` in the first paragraph"]
        );
    }
}
