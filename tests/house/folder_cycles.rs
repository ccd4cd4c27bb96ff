//! Finds sibling modules that use each other, each with all modules below it. Such modules cannot be understood,
//! tested or moved alone.
//!
//! A search for cycles of files does not find all of them: one file of module A may use module B, which uses another
//! file of A.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::modules::ModuleEdges;

/// Two sibling modules that use each other.
#[derive(Debug)]
pub(crate) struct FolderCycle {
    rooms: [String; 2],
    /// For each of the two, the items of the other one that it uses.
    uses: [BTreeSet<String>; 2],
}

/// One cycle for each pair of sibling modules of which each uses the other, with all modules below them.
pub(crate) fn folder_cycles(edges: &ModuleEdges) -> Vec<FolderCycle> {
    let mut uses: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (user, used) in edges {
        for (definer, items) in used {
            if let Some(rooms) = sibling_ancestors(user, definer) {
                let items = Vec::from_iter(items.iter().map(String::as_str)).join(", ");
                let line = format!("{user} uses {items} of {definer}");
                uses.entry(rooms).or_default().insert(line);
            }
        }
    }
    let both = uses.iter().filter_map(|((one, other), there)| {
        let back = uses.get(&(other.clone(), one.clone()))?;
        (one < other)
            .then(|| FolderCycle { rooms: [one.clone(), other.clone()], uses: [there.clone(), back.clone()] })
    });
    both.collect()
}

/// The sibling modules that contain the user and the used module. `None` if one of the two modules contains the
/// other.
fn sibling_ancestors(user: &str, used: &str) -> Option<(String, String)> {
    let user: Vec<_> = user.split("::").collect();
    let used: Vec<_> = used.split("::").collect();
    let shared = user.iter().zip(&used).take_while(|(one, other)| one == other).count();
    let room = |names: &[&str]| names.get(..=shared).map(|names| names.join("::"));
    room(&user).zip(room(&used)).filter(|(user, used)| user != "crate" && used != "crate")
}

impl fmt::Display for FolderCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = &self.rooms;
        writeln!(f, "    {one} and {other}:")?;
        self.uses.iter().flatten().try_for_each(|line| writeln!(f, "        {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{module_cycles, modules::ModuleTree, sources::SourceFiles};

    fn edges(files: &[(&str, &str)]) -> ModuleEdges {
        ModuleTree::from_sources(&SourceFiles::from_texts(files), "lib.rs").edges()
    }

    /// Two folders that use each other through different files are reported, although no files form a circle.
    #[test]
    fn folder_cycle_across_files_is_reported() {
        let edges = edges(&[
            ("lib.rs", "mod kitchen; mod cellar;"),
            ("kitchen.rs", "mod stove; mod knife;"),
            ("kitchen/stove.rs", "use crate::cellar::coal::Coal; pub struct Stove(Coal);"),
            ("kitchen/knife.rs", "pub struct Knife;"),
            ("cellar.rs", "pub mod coal; mod ham;"),
            ("cellar/coal.rs", "pub struct Coal;"),
            ("cellar/ham.rs", "fn cut(_: crate::kitchen::knife::Knife) {}"),
        ]);
        assert!(module_cycles::shortest_cycles(&edges).is_empty(), "no file needs itself");
        let told: Vec<_> = folder_cycles(&edges).iter().map(ToString::to_string).collect();
        let breach = "    cellar and kitchen:\n        cellar::ham uses Knife of kitchen::knife\n        \
                      kitchen::stove uses Coal of cellar::coal\n";
        assert_eq!(told, [breach]);
    }

    /// A module and the modules below it may use each other.
    #[test]
    fn parent_and_child_form_no_cycle() {
        let edges = edges(&[
            ("lib.rs", "mod house; pub struct Address;"),
            ("house.rs", "mod door; mod bell; pub struct House(door::Door);"),
            ("house/door.rs", "use super::bell::Bell; use crate::Address; pub struct Door(Bell, Address);"),
            ("house/bell.rs", "pub struct Bell;"),
        ]);
        assert!(folder_cycles(&edges).is_empty(), "{:?}", folder_cycles(&edges));
    }
}
