//! The source files of one crate.

use std::{collections::BTreeMap, fs, path::Path};

/// The text of each file, by its path below the folder of sources, with `/` between folders.
pub(crate) struct SourceFiles(BTreeMap<String, String>);

impl SourceFiles {
    pub(crate) fn read(folder: &Path) -> Self {
        let mut all = BTreeMap::new();
        collect(folder, "", &mut all);
        Self(all)
    }

    #[cfg(test)]
    pub(crate) fn from_texts(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// All paths with their texts, in the order of the paths.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The file of a module, and the folder of its child modules. `folder`: the folder for the children of its parent.
    pub(crate) fn find_module(&self, folder: &str, name: &str) -> Option<(String, String)> {
        let children = format!("{folder}{name}/");
        let places = [format!("{folder}{name}.rs"), format!("{children}mod.rs")];
        places.into_iter().find(|place| self.0.contains_key(place)).map(|place| (place, children))
    }

    /// The files that use a path which begins with this crate name. Paths at the beginning of string literals do not
    /// count.
    pub(crate) fn files_using(&self, name: &str) -> Vec<&str> {
        let path = format!("{name}::");
        let uses = |text: &String| {
            text.match_indices(&path).any(|(at, _)| {
                !text[..at]
                    .ends_with(|before: char| before == '"' || before == '_' || before.is_alphanumeric())
            })
        };
        self.0.iter().filter(|(_, text)| uses(text)).map(|(file, _)| file.as_str()).collect()
    }

    pub(crate) fn files(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn lines(&self) -> usize {
        self.0.values().map(|text| text.lines().count()).sum()
    }
}

fn collect(folder: &Path, below: &str, all: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        let path = format!("{below}{name}");
        if entry.file_type().expect("a type").is_dir() {
            if !entry.path().join("Cargo.toml").exists() {
                collect(&entry.path(), &format!("{path}/"), all);
            }
        } else if name.ends_with(".rs") {
            all.insert(path, fs::read_to_string(entry.path()).expect("text"));
        }
    }
}
