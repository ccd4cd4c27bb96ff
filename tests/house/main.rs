//! How the house is built: which crate knows which, that no two modules and no two folders need each other, that no two
//! things have one name, and the picture of it all.
//!
//! `REWRITE=1 cargo test -p fencegate-tests --test house` draws the picture anew.

mod circles;
mod documents;
mod floors;
mod modules;
mod names;
mod picture;
mod reading;
mod same;
mod sources;
mod walls;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use self::{
    floors::Floors,
    modules::{Edges, Modules},
    names::Places,
    sources::Sources,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn written() -> Floors {
    let text = fs::read_to_string(root().join("gateway/ARCHITECTURE.md")).expect("the document");
    Floors::parse(&text).expect("a block of floors")
}

#[test]
fn crates_know_whom_the_document_lets_them_know_and_no_other() {
    let (written, built) = (written(), Floors::of_workspace(&root()));
    assert_eq!(written.wrong_way(), Vec::<String>::new(), "whoever is known stands below");
    let differing: Vec<_> = written.differing(&built);
    assert!(
        differing.is_empty(),
        "gateway/ARCHITECTURE.md and the manifests differ:\n{}",
        differing.join("\n")
    );
}

/// What the compiler builds by itself: a library, or one kind of tests.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// All that the compiler builds by itself, by the folder of its sources.
fn built() -> impl Iterator<Item = (String, Modules)> {
    let folders = Floors::of_workspace(&root()).crates.into_iter().map(|one| one.folder);
    let places = folders.flat_map(|folder| {
        let places = match folder.as_str() {
            "tests" => &["src", "promises", "sim", "faults", "models", "packages", "bench", "house"][..],
            _ => &["src"],
        };
        places.iter().map(move |place| format!("{folder}/{place}"))
    });
    places.map(|place| {
        let sources = Sources::read(&root().join(&place));
        let start = ROOTS.into_iter().find(|start| sources.get(start).is_some());
        let modules = Modules::of(&sources, start.expect("a library, or tests"));
        (place, modules)
    })
}

/// Who uses whom in each of them.
fn edges() -> impl Iterator<Item = (String, Edges)> {
    built().map(|(place, modules)| {
        let edges = modules.edges();
        assert!(!edges.is_empty() || !place.ends_with("/src"), "{place}: nothing was found");
        (place, edges)
    })
}

/// What users run, or build upon.
fn is_shipped(place: &str) -> bool {
    place.starts_with("policies/") || place.starts_with("gateway/")
}

#[test]
fn no_modules_of_a_crate_use_each_other_in_a_circle() {
    let mut told = String::new();
    for (place, edges) in edges() {
        for circle in circles::shortest(&edges) {
            told.push_str(&format!("{place}, of {} modules:\n{}", circle.modules, circle));
        }
    }
    assert!(told.is_empty(), "modules use each other in a circle\n{told}");
}

#[test]
fn no_two_folders_of_a_crate_use_each_other() {
    let mut told = String::new();
    for (place, edges) in edges().filter(|(place, _)| is_shipped(place)) {
        for breach in walls::breaches(&edges) {
            told.push_str(&format!("{place}:\n{breach}"));
        }
    }
    assert!(told.is_empty(), "no wall stands between\n{told}");
}

#[test]
fn no_name_of_a_file_or_folder_stands_for_two_things() {
    let mut places = Places::default();
    for folder in Floors::of_workspace(&root()).crates.into_iter().map(|one| format!("{}/src", one.folder)) {
        let sources = Sources::read(&root().join(&folder));
        sources.paths().for_each(|path| places.add_file(&folder, path));
    }
    let told = places.complaints(same::FILES);
    assert!(told.is_empty(), "names of files and folders\n{}", told.join("\n"));
}

#[test]
fn no_name_of_a_type_stands_for_two_things_in_one_crate() {
    let mut places = Places::default();
    for (place, modules) in built().filter(|(place, _)| is_shipped(place)) {
        let short = place.trim_end_matches("/src").rsplit('/').next().expect("a folder");
        modules.types().for_each(|(name, module)| places.add(&format!("{short}::{name}"), module));
    }
    let told = places.complaints(same::TYPES);
    assert!(told.is_empty(), "names of types\n{}", told.join("\n"));
}

#[test]
fn the_picture_of_the_floors_is_current() {
    let floors = Floors::of_workspace(&root());
    let drawn = picture::draw(&floors, &root());
    let file = root().join("gateway/floors.svg");
    if env::var_os("REWRITE").is_some() {
        fs::write(&file, &drawn).expect("the repository can be written");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        picture::is_about(&kept, &drawn),
        "gateway/floors.svg is of another house: REWRITE=1 draws it anew"
    );
}

#[test]
fn what_documents_name_is_there() {
    let missing = documents::missing(&root());
    assert!(missing.is_empty(), "documents name what is not there:\n{}", missing.join("\n"));
}
