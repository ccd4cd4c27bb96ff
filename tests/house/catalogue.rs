//! The catalogue of the tests: a row for each module, with the first paragraph of its documentation.

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
documentation goes on there with the programs, the amounts and the controls of the tests. How to run one
test: [README.md](README.md).
";

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

/// The summaries of the modules of one folder by their names. The root module is called as its file: `main` or `lib`.
fn test_modules(sources: &SourceFiles) -> BTreeMap<&str, String> {
    let own_files = sources.iter().filter(|(path, _)| !path.contains('/'));
    own_files
        .map(|(path, source)| (path.split_once('.').map_or(path, |(name, _)| name), first_paragraph(source)))
        .collect()
}

/// The first paragraph of the documentation at the top of a file, on one line.
fn first_paragraph(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// One sentence for each module whose summary cannot stand in a table. Links of rustdoc lead nowhere in Markdown.
fn unfit_summaries(folder: &str, modules: &BTreeMap<&str, String>) -> Vec<String> {
    let mut unfit = Vec::new();
    for (name, summary) in modules {
        if summary.is_empty() {
            unfit.push(format!("{folder}/{name}: no documentation at the top"));
        } else if summary.contains(['[', '|']) {
            unfit.push(format!("{folder}/{name}: a link or `|` in the first paragraph"));
        }
    }
    unfit
}

/// The section of one folder: the summary of its root module, and a row for each other module.
fn section(folder: &str, heading: &str, mut modules: BTreeMap<&str, String>) -> String {
    let root = ["main", "lib"].into_iter().find_map(|name| modules.remove(name)).expect("a root module");
    let mut text = format!("\n## {heading}\n\n{root} Sources: [`{folder}`]({folder}).\n");
    if !modules.is_empty() {
        text.push_str("\n| module | summary |\n|---|---|\n");
    }
    for (name, summary) in modules {
        writeln!(text, "| [`{name}`]({folder}/{name}.rs) | {summary} |").expect("memory");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module has one row, with its first paragraph; modules below it have none.
    #[test]
    fn module_has_one_row() {
        let sources = SourceFiles::from_texts(&[
            ("main.rs", "//! Doors.\n\nmod door;\n"),
            ("door.rs", "//! A door opens\n//! inwards.\n//!\n//! Oak.\n\nmod lock;\n"),
            ("door/lock.rs", "//! A lock.\n"),
        ]);
        let written = "\n## Doors\n\nDoors. Sources: [`doors`](doors).\n\n\
                       | module | summary |\n|---|---|\n\
                       | [`door`](doors/door.rs) | A door opens inwards. |\n";
        assert_eq!(section("doors", "Doors", test_modules(&sources)), written);
    }

    /// A folder with nothing but its root module has no table.
    #[test]
    fn lone_root_module_has_no_table() {
        let sources = SourceFiles::from_texts(&[("lib.rs", "//! One door.\n")]);
        let written = "\n## Door\n\nOne door. Sources: [`door`](door).\n";
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
