//! Finds what the documents name and is not there: links to files, and source files by their names.

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
};

/// What the documents below `root` name that is not there.
pub(crate) fn missing(root: &Path) -> Vec<String> {
    let mut files = BTreeSet::new();
    collect(root, Path::new(""), &mut files);
    let documents = files.iter().filter(|file| file.extension().is_some_and(|kind| kind == "md"));
    let read = |file| (file, fs::read_to_string(root.join(file)).expect("text"));
    documents.map(read).flat_map(|(file, text)| missing_in(file, &text, &files)).collect()
}

fn missing_in(document: &Path, text: &str, files: &BTreeSet<PathBuf>) -> Vec<String> {
    let folder = document.parent().unwrap_or(Path::new(""));
    let is_there = |place: &Path| files.iter().any(|file| file.starts_with(place));
    let linked = links(text).filter(|link| !is_there(&walked(folder, link)));
    let linked = linked.map(|link| format!("{}: no file at {link}", document.display()));
    // A bare name in what is said of one crate is a file of that crate: others have files of the same name.
    let own = files.contains(&folder.join("Cargo.toml")).then_some(folder);
    let within = |name: &str| own.filter(|_| !name.contains('/')).unwrap_or(Path::new(""));
    let is_named = |name: &&str| {
        let mut there = files.iter().filter(|file| file.starts_with(within(name)));
        there.any(|file| file.ends_with(name))
    };
    let named = names(text).filter(|name| !is_named(name));
    let named = named.map(|name| format!("{}: no file is called {name}", document.display()));
    linked.chain(named).collect()
}

/// Where the text leads within the repository, without the place in the file.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '\n']).next());
    targets
        .filter_map(|target| target.split('#').next())
        .filter(|link| !link.is_empty() && !link.contains(':'))
}

/// Source files that stand between backticks.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.filter(|name| name.ends_with(".rs") && !name.contains(['*', ' ', '{']))
}

/// The file that `link` means in a document of this folder.
fn walked(folder: &Path, link: &str) -> PathBuf {
    let mut at = folder.to_owned();
    for step in Path::new(link).components() {
        match step {
            Component::ParentDir => {
                at.pop();
            }
            Component::Normal(name) => at.push(name),
            _ => {}
        }
    }
    at
}

/// All files below, by their paths from the root; not what is built, nor what does not show.
fn collect(root: &Path, below: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(root.join(below)).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name();
        if name == "target" || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = below.join(name);
        if entry.file_type().expect("a type").is_dir() {
            collect(root, &path, files);
        } else {
            files.insert(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_crate_names_its_own_files() {
        let files =
            ["a/Cargo.toml", "a/DESIGN.md", "a/src/own.rs", "b/src/sweep.rs"].map(PathBuf::from).into();
        let told = missing_in(Path::new("a/DESIGN.md"), "`own.rs`, `sweep.rs`, `b/src/sweep.rs`", &files);
        assert_eq!(told, ["a/DESIGN.md: no file is called sweep.rs"]);
    }

    #[test]
    fn a_file_that_has_moved_is_missed() {
        let files = ["house/README.md", "house/src/door.rs", "note.md"].map(PathBuf::from).into();
        let text = "See [the door](src/door.rs), [more](../note.md#door), [all](https://a.example/b), `src/door.rs` and\n\
                    `door.rs`; not [this](src/gate.rs), nor `gate.rs`, whatever `cargo run x.rs` says.";
        let told = missing_in(Path::new("house/README.md"), text, &files);
        assert_eq!(
            told,
            ["house/README.md: no file at src/gate.rs", "house/README.md: no file is called gate.rs"]
        );
    }
}
