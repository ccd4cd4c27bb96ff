//! The dependencies between the crates: as the architecture document states them, and as the manifests have them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use toml::{Table, Value};

/// The crates, and the dependencies of each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CrateLayers {
    /// From the top layer to the bottom layer.
    pub(crate) crates: Vec<LayerCrate>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LayerCrate {
    pub(crate) name: String,
    /// The folder below the root of the workspace. Empty for a crate read from the document.
    pub(crate) folder: String,
    pub(crate) knows: BTreeSet<String>,
}

impl CrateLayers {
    /// Reads the block that begins with ```` ```floors ````: in each line a crate, a colon, and its dependencies.
    pub(crate) fn parse(document: &str) -> Option<Self> {
        let (_, block) = document.split_once("```floors\n")?;
        let (block, _) = block.split_once("```")?;
        let line = |line: &str| {
            let (name, knows) = line.split_once(':')?;
            let knows = knows.split_whitespace().map(str::to_owned).collect();
            Some(LayerCrate { name: name.trim().to_owned(), folder: String::new(), knows })
        };
        block.lines().map(line).collect::<Option<_>>().map(|crates| Self { crates })
    }

    /// All members of the workspace that depend on another member, or on which another member depends.
    pub(crate) fn from_workspace(root: &Path) -> Self {
        let members = table(&root.join("Cargo.toml"));
        let members = members["workspace"]["members"].as_array().expect("a list of members");
        let members = members.iter().map(|member| member.as_str().expect("a folder").to_owned());
        let manifests: Vec<(String, Table)> =
            members.map(|folder| (folder.clone(), table(&root.join(folder).join("Cargo.toml")))).collect();
        let name = |manifest: &Table| manifest["package"]["name"].as_str().expect("a name").to_owned();
        let ours: BTreeSet<String> = manifests.iter().map(|(_, manifest)| name(manifest)).collect();
        let read = |(folder, manifest): &(String, Table)| {
            let mut kinds = vec!["dependencies", "build-dependencies"];
            // The dev-dependencies of a crate without a library are listed only to unify features, and no test
            // imports them.
            if root.join(folder).join("src/lib.rs").exists() {
                kinds.push("dev-dependencies");
            }
            let tables = kinds.iter().filter_map(|kind| manifest.get(*kind).and_then(Value::as_table));
            let knows = tables.flat_map(Table::keys).filter(|known| ours.contains(*known)).cloned().collect();
            LayerCrate { name: name(manifest), folder: folder.clone(), knows }
        };
        let mut crates: Vec<LayerCrate> = manifests.iter().map(read).collect();
        let known: BTreeSet<String> = crates.iter().flat_map(|one| one.knows.clone()).collect();
        crates.retain(|one| !one.knows.is_empty() || known.contains(&one.name));
        let mut floors = Self { crates };
        let heights = floors.heights();
        floors.crates.sort_by_key(|one| (std::cmp::Reverse(heights[&one.name]), one.name.clone()));
        floors
    }

    /// The number of layers below each crate. Cargo allows no cycle of dependencies.
    pub(crate) fn heights(&self) -> BTreeMap<String, usize> {
        let mut heights: BTreeMap<String, usize> = BTreeMap::new();
        while heights.len() < self.crates.len() {
            let before = heights.len();
            for one in &self.crates {
                let below: Option<Vec<usize>> =
                    one.knows.iter().map(|known| heights.get(known).copied()).collect();
                if let Some(below) = below {
                    heights.insert(one.name.clone(), below.into_iter().max().map_or(0, |height| height + 1));
                }
            }
            assert!(before < heights.len(), "crates that know each other, or one that is missing: {self:?}");
        }
        heights
    }

    /// The dependencies that lead from a crate to one that is not below it, or is not listed.
    pub(crate) fn upward_dependencies(&self) -> Vec<String> {
        let place = |name: &str| self.crates.iter().position(|one| one.name == name);
        let mut wrong = Vec::new();
        for (at, one) in self.crates.iter().enumerate() {
            let up = one.knows.iter().filter(|known| place(known).is_none_or(|known| known <= at));
            wrong.extend(up.map(|known| format!("{} knows {known}", one.name)));
        }
        wrong
    }

    /// The differences between `self`, read from the document, and `built`, the real dependencies.
    pub(crate) fn differences(&self, built: &Self) -> Vec<String> {
        let all = |floors: &Self| -> BTreeMap<String, BTreeSet<String>> {
            floors.crates.iter().map(|one| (one.name.clone(), one.knows.clone())).collect()
        };
        let written = all(self);
        let built = all(built);
        let names: BTreeSet<_> = written.keys().chain(built.keys()).collect();
        let told = |known: Option<&BTreeSet<String>>| match known {
            Some(known) => Vec::from_iter(known.iter().cloned()).join(" "),
            None => "(is not there)".to_owned(),
        };
        let differ = names.into_iter().filter(|name| written.get(*name) != built.get(*name));
        differ
            .map(|name| {
                let written = told(written.get(name));
                let built = told(built.get(name));
                format!("{name}: written: {written}; built: {built}")
            })
            .collect()
    }
}

fn table(file: &Path) -> Table {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate that depends on one above it is reported.
    #[test]
    fn upward_dependency_is_reported() {
        let floors =
            CrateLayers::parse("Before.\n```floors\nroof: wall\nwall: roof cellar\ncellar:\n```\nAfter.");
        assert_eq!(floors.expect("a block").upward_dependencies(), ["wall knows roof"]);
        assert_eq!(CrateLayers::parse("No block."), None);
    }

    /// A crate or dependency in the manifests that the document does not have is reported.
    #[test]
    fn undocumented_dependency_is_reported() {
        let [written, built] = ["roof: wall\nwall:\n", "roof: wall cellar\nwall:\ncellar:\n"]
            .map(|block| CrateLayers::parse(&format!("```floors\n{block}```")).expect("a block"));
        assert_eq!(
            written.differences(&built),
            ["cellar: written: (is not there); built: ", "roof: written: wall; built: cellar wall"]
        );
        assert!(built.differences(&built).is_empty());
    }
}
