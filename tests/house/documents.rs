//! Finds broken references in the documents: links to missing files and headings, and names of missing source files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

/// The references in the documents below `root` to files that do not exist.
pub(crate) fn missing_files(root: &Path) -> Vec<String> {
    let mut files = BTreeSet::new();
    collect(root, Path::new(""), &mut files);
    let documents = files.iter().filter(|file| file.extension().is_some_and(|kind| kind == "md"));
    let read = |file| (file, fs::read_to_string(root.join(file)).expect("text"));
    documents.map(read).flat_map(|(file, text)| missing_files_in(file, &text, &files)).collect()
}

fn missing_files_in(document: &Path, text: &str, files: &BTreeSet<PathBuf>) -> Vec<String> {
    let folder = document.parent().unwrap_or(Path::new(""));
    let is_there = |place: &Path| files.iter().any(|file| file.starts_with(place));
    let linked = links(text).filter(|link| !is_there(&resolve_link(folder, link)));
    let linked = linked.map(|link| format!("{}: no file at {link}", document.display()));
    // In a document of a crate, a bare file name means a file of that crate. Other crates have files of the same name.
    let own = files.contains(&folder.join("Cargo.toml")).then_some(folder);
    let within = |name: &str| own.filter(|_| !name.contains('/')).unwrap_or(Path::new(""));
    let is_named = |name: &&str| {
        let mut there = files.iter().filter(|file| file.starts_with(within(name)));
        there.any(|file| file.ends_with(name))
    };
    let named = source_file_names(text).filter(|name| !is_named(name));
    let named = named.map(|name| format!("{}: no file is called {name}", document.display()));
    linked.chain(named).collect()
}

/// The links in the documents below `root` to headings that do not exist.
pub(crate) fn broken_links(root: &Path) -> Vec<String> {
    let mut files = BTreeSet::new();
    collect(root, Path::new(""), &mut files);
    let documents = files.into_iter().filter(|file| file.extension().is_some_and(|kind| kind == "md"));
    let texts = documents.map(|file| {
        let text = fs::read_to_string(root.join(&file)).expect("text");
        (file, text)
    });
    broken_links_in(&texts.collect())
}

fn broken_links_in(texts: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut told = Vec::new();
    for (document, text) in texts {
        let folder = document.parent().unwrap_or(Path::new(""));
        for (link, heading) in targets(text).filter_map(|target| target.split_once('#')) {
            let file = if link.is_empty() { document.clone() } else { resolve_link(folder, link) };
            let there = texts.get(&file).is_none_or(|there| headings(there).contains(heading));
            if !there {
                told.push(format!("{}: no heading for {link}#{heading}", document.display()));
            }
        }
    }
    told
}

/// The headings of a document in the form of link targets: lower case, hyphens for blanks, no other signs. If a
/// heading occurs twice, the second target ends with a number.
fn headings(text: &str) -> BTreeSet<String> {
    let mut called = BTreeMap::<String, usize>::new();
    let mut names = BTreeSet::new();
    for title in prose_lines(text)
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')))
    {
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String =
            kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = called.entry(name.clone()).or_default();
        names.insert(if *before == 0 { name } else { format!("{name}-{before}") });
        *before += 1;
    }
    names
}

/// The lines outside of fenced code blocks.
fn prose_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The links of the text to files of the repository, without the heading in the file.
fn links(text: &str) -> impl Iterator<Item = &str> {
    targets(text).filter_map(|target| target.split('#').next()).filter(|link| !link.is_empty())
}

/// The targets of all links of the text within the repository.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '\n']).next());
    targets.filter(|target| !target.contains(':'))
}

/// The names of source files between backticks.
fn source_file_names(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.filter(|name| name.ends_with(".rs") && !name.contains(['*', ' ', '{']))
}

/// The path of the file that `link` means in a document of this folder.
fn resolve_link(folder: &Path, link: &str) -> PathBuf {
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

/// Collects all files below `below`, by their paths from the root. Hidden files and build output are left out.
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

    /// A bare file name in the document of a crate has to be a file of that crate.
    #[test]
    fn crate_document_names_own_files() {
        let files =
            ["a/Cargo.toml", "a/DESIGN.md", "a/src/own.rs", "b/src/sweep.rs"].map(PathBuf::from).into();
        let told =
            missing_files_in(Path::new("a/DESIGN.md"), "`own.rs`, `sweep.rs`, `b/src/sweep.rs`", &files);
        assert_eq!(told, ["a/DESIGN.md: no file is called sweep.rs"]);
    }

    /// A link to a heading that does not exist is reported.
    #[test]
    fn renamed_heading_is_reported() {
        let house =
            "# The `house[]` of <all>\n## Door\n```sh\n# Key\n```\n## Door\n[in](#door-1), [out](#key)";
        let note = "[a](house.md#the-house-of-all), [b](house.md#window), [c](https://a.example/#b), [d](house.rs#L7)";
        let texts =
            [("house.md", house), ("note.md", note)].map(|(file, text)| (file.into(), text.to_owned()));
        assert_eq!(
            broken_links_in(&texts.into()),
            ["house.md: no heading for #key", "note.md: no heading for house.md#window"]
        );
    }

    /// A name of a file that does not exist, or a link to it, is reported.
    #[test]
    fn moved_file_is_reported() {
        let files = ["house/README.md", "house/src/door.rs", "note.md"].map(PathBuf::from).into();
        let text = "See [the door](src/door.rs), [more](../note.md#door), [all](https://a.example/b), `src/door.rs` and\n\
                    `door.rs`; not [this](src/gate.rs), nor `gate.rs`, whatever `cargo run x.rs` says.";
        let told = missing_files_in(Path::new("house/README.md"), text, &files);
        assert_eq!(
            told,
            ["house/README.md: no file at src/gate.rs", "house/README.md: no file is called gate.rs"]
        );
    }
}
