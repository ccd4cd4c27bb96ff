//! The structure of the sources: the dependencies between crates, no cycles between modules or folders, the picture of
//! the layers, and the catalogue of the tests.
//!
//! `REWRITE=1 cargo test -p fencegate-tests --test house` writes picture and catalogue anew.
//!
//! A crate depends only on the crates that `gateway/ARCHITECTURE.md` lists for it. No two modules of a crate, of the
//! harness, or of one kind of tests need each other. An edge leads from the module that uses an item to the module
//! that defines it, whoever exports it again; code that is built for tests alone has no edges. A cycle is printed as
//! a list of `a uses X of b`.
//!
//! Links, headings and names of source files in documents exist, and so do the test modules and the metrics that
//! documents name. `README.zh-CN.md` has the commands, links and figures of `README.md`, section by section.

mod catalogue;
mod changed;
mod crate_layers;
mod documents;
mod folder_cycles;
mod module_cycles;
mod module_items;
mod modules;
mod mutants;
mod picture;
mod sources;
mod translation;

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use fencegate_tests::mutants::MutantList;

use self::{
    crate_layers::CrateLayers,
    modules::{ModuleEdges, ModuleTree},
    sources::SourceFiles,
    translation::Document,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn documented_layers() -> CrateLayers {
    let text = fs::read_to_string(root().join("gateway/ARCHITECTURE.md")).expect("the document");
    CrateLayers::parse(&text).expect("a block of floors")
}

/// The crates depend on each other as `gateway/ARCHITECTURE.md` states, and only downwards.
#[test]
fn crate_dependencies_match_document() {
    let written = documented_layers();
    let built = CrateLayers::from_workspace(&root());
    assert_eq!(written.upward_dependencies(), Vec::<String>::new(), "whoever is known stands below");
    let differing: Vec<_> = written.differences(&built);
    assert!(
        differing.is_empty(),
        "gateway/ARCHITECTURE.md and the manifests differ:\n{}",
        differing.join("\n")
    );
}

/// Tests run the binary as a program and do not import its crate, so a change of a subcommand rebuilds no test.
#[test]
fn tests_import_no_binary_crate() {
    let sample =
        [("a.rs", "fencegate::cli::run();"), ("b.rs", "use fencegate_lock::x; // \"fencegate::cli\"")];
    assert_eq!(SourceFiles::from_texts(&sample).files_using("fencegate"), ["a.rs"], "the search itself");
    let sources = SourceFiles::read(&root().join("tests"));
    assert!(sources.files() > 100, "nothing was read");
    assert_eq!(sources.files_using("fencegate"), Vec::<&str>::new());
}

/// The root file of a library, and of a test target.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// The modules of each compilation unit, by the folder of its sources.
fn compiled_modules() -> impl Iterator<Item = (String, ModuleTree)> {
    let folders = CrateLayers::from_workspace(&root()).crates.into_iter().map(|one| one.folder);
    let places = folders.flat_map(|folder| {
        let places = match folder.as_str() {
            "tests" => &[
                "src", "promises", "sim", "faults", "models", "packages", "mutants", "bench", "duel", "house",
            ][..],
            _ => &["src"],
        };
        places.iter().map(move |place| format!("{folder}/{place}"))
    });
    places.map(|place| {
        let sources = SourceFiles::read(&root().join(&place));
        let start = ROOTS.into_iter().find(|start| sources.get(start).is_some());
        let modules = ModuleTree::from_sources(&sources, start.expect("a library, or tests"));
        (place, modules)
    })
}

/// The uses between the modules of each compilation unit.
fn module_edges() -> impl Iterator<Item = (String, ModuleEdges)> {
    compiled_modules().map(|(place, modules)| {
        let edges = modules.edges();
        assert!(!edges.is_empty() || !place.ends_with("/src"), "{place}: nothing was found");
        (place, edges)
    })
}

/// True if users run the code or build upon it.
fn is_shipped(place: &str) -> bool {
    place.starts_with("policies/") || place.starts_with("gateway/")
}

#[test]
fn modules_form_no_cycle() {
    let mut told = String::new();
    for (place, edges) in module_edges() {
        for circle in module_cycles::shortest_cycles(&edges) {
            told.push_str(&format!("{place}, of {} modules:\n{}", circle.modules, circle));
        }
    }
    assert!(told.is_empty(), "modules use each other in a circle\n{told}");
}

#[test]
fn folders_form_no_cycle() {
    let mut told = String::new();
    for (place, edges) in module_edges().filter(|(place, _)| is_shipped(place)) {
        for breach in folder_cycles::folder_cycles(&edges) {
            told.push_str(&format!("{place}:\n{breach}"));
        }
    }
    assert!(told.is_empty(), "no wall stands between\n{told}");
}

#[test]
fn layer_picture_is_current() {
    let floors = CrateLayers::from_workspace(&root());
    let drawn = picture::draw(&floors, &root());
    let file = root().join("gateway/floors.svg");
    if env::var_os("REWRITE").is_some() {
        fs::write(&file, &drawn).expect("the repository can be written");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        picture::shows_same(&kept, &drawn),
        "gateway/floors.svg is of another house: REWRITE=1 draws it anew"
    );
}

/// `tests/CATALOGUE.md` has a row for each module, with the first paragraph of its documentation.
#[test]
fn catalogue_of_tests_is_current() {
    let written = catalogue::render(&root().join("tests"));
    let written = written.unwrap_or_else(|unfit| panic!("tests/CATALOGUE.md:\n{}", unfit.join("\n")));
    let file = root().join("tests/CATALOGUE.md");
    if env::var_os("REWRITE").is_some() {
        fs::write(&file, &written).expect("the repository can be written");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let lines: BTreeSet<&str> = kept.lines().collect();
    let missing: Vec<&str> = written.lines().filter(|line| !lines.contains(line)).collect();
    assert!(
        kept == written,
        "tests/CATALOGUE.md is not of these sources: REWRITE=1 writes it anew\n{}",
        missing.join("\n")
    );
}

#[test]
fn files_named_in_documents_exist() {
    let missing = documents::missing_files(&root());
    assert!(missing.is_empty(), "documents name what is not there:\n{}", missing.join("\n"));
}

fn read(document: &str) -> String {
    fs::read_to_string(root().join(document)).expect("a document")
}

/// The documents that new readers read first.
const READ_BY_STRANGERS: [&str; 27] = [
    "README.md",
    "policies/README.md",
    "policies/REFERENCE.md",
    "policies/guide/checking.md",
    "policies/guide/guards.md",
    "policies/guide/keys.md",
    "policies/guide/levels.md",
    "policies/guide/once.md",
    "policies/guide/reload.md",
    "policies/guide/waiting.md",
    "deploy/RUNBOOK.md",
    "deploy/SECURITY.md",
    "deploy/ZOOKEEPER.md",
    "deploy/docs/ADOPTION.md",
    "deploy/docs/CLIENTS.md",
    "deploy/docs/COMMANDS.md",
    "deploy/docs/COMPARISON.md",
    "deploy/docs/GLOSSARY.md",
    "deploy/docs/PROBLEMS.md",
    "deploy/docs/PROMISES.md",
    "deploy/docs/PROXY.md",
    "deploy/docs/SERVICES.md",
    "deploy/docs/VERSIONS.md",
    "deploy/package/README.md",
    "deploy/helm/README.md",
    "deploy/upstream/README.md",
    "gateway/API.md",
];

/// The Chinese README has the commands, the links and the figures of the English one.
#[test]
fn chinese_readme_matches_english_one() {
    let original = read("README.md");
    let translated = read("deploy/docs/README.zh-CN.md");
    let (translation, own) = translation::split_at_marker(&translated);
    let original = Document { folder: "", text: &original };
    let differing =
        translation::differences(&original, &Document { folder: "deploy/docs", text: translation });
    assert!(differing.is_empty(), "README.md, and then README.zh-CN.md:\n{}", differing.join("\n"));
    let terms = translation::term_problems(&read("deploy/docs/GLOSSARY.md"), own);
    assert!(terms.is_empty(), "terms of GLOSSARY.md, and those translated: {}", terms.join(", "));
    // This part of the translation has no original. Its figures must occur in one of the English documents.
    let english: String = READ_BY_STRANGERS.map(read).concat();
    for figure in translation::figures(own) {
        assert!(english.contains(&figure), "no English document says {figure}");
    }
}

/// The test modules that README and `PROMISES.md` name exist.
#[test]
fn modules_named_in_promises_exist() {
    let text = read("README.md") + &read("deploy/docs/PROMISES.md");
    let cells = text.lines().filter(|line| line.starts_with("| `") || line.starts_with("| all"));
    let cells = cells.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit('|').next());
    let lists = text.split("Tests: ").skip(1).filter_map(|rest| rest.split(".\n").next());
    let named = cells.chain(lists).flat_map(|list| list.split('`').skip(1).step_by(2));
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 40, "not all were found: {named:?}");
    for module in named {
        let file = root().join(format!("tests/promises/{module}.rs"));
        assert!(file.exists(), "no promise is called {module}");
    }
}

/// The metrics that documents name exist.
#[test]
fn metrics_named_in_documents_exist() {
    let exposed = read("deploy/METRICS.md");
    let mut named = 0;
    for document in READ_BY_STRANGERS.into_iter().chain(["deploy/CHANGELOG.md"]) {
        let text = read(document);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for metric in words.filter(|word| word.starts_with("fencegate_")) {
            assert!(exposed.contains(&format!("| `{metric}` |")), "{document}: no metric is called {metric}");
            named += 1;
        }
    }
    assert!(named > 60, "not all were found: {named}");
}

/// The table in `COMPARISON.md` has the form that `tests/run --duel --write` gives it.
#[test]
fn comparison_table_matches_report() {
    let complaints = fencegate_tests::comparison::complaints(&read("deploy/docs/COMPARISON.md"));
    assert!(complaints.is_empty(), "`tests/run --duel --write` writes it:\n{}", complaints.join("\n"));
}

/// The entries of `tests/mutants.toml` name code that exists.
#[test]
fn mutant_survivors_name_existing_code() {
    let told = mutants::complaints(&root(), &MutantList::load());
    assert!(told.is_empty(), "tests/mutants.toml:\n{}", told.join("\n"));
}

#[test]
fn links_lead_to_existing_headings() {
    let astray = documents::broken_links(&root());
    assert!(astray.is_empty(), "links lead astray:\n{}", astray.join("\n"));
}
