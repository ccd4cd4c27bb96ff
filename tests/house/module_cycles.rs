//! Finds modules that use each other in a cycle: none of them can be understood, tested or moved without the other
//! ones.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
};

use crate::modules::ModuleEdges;

/// The shortest cycle in a group of modules that all reach each other through uses.
#[derive(Debug)]
pub(crate) struct ModuleCycle {
    /// The number of modules in the group.
    pub(crate) modules: usize,
    way: Vec<String>,
}

/// The shortest cycle of each group of modules that all reach each other.
pub(crate) fn shortest_cycles(edges: &ModuleEdges) -> Vec<ModuleCycle> {
    let reached: BTreeMap<_, _> = edges.keys().map(|from| (from, reached_from(edges, from))).collect();
    let mut told: BTreeSet<&String> = BTreeSet::new();
    let mut circles = Vec::new();
    for (from, all) in &reached {
        if told.contains(*from) || !all.contains(*from) {
            continue;
        }
        let leads_back = |to: &&&String| reached.get(**to).is_some_and(|back| back.contains(*from));
        let group: BTreeSet<&String> = all.iter().filter(leads_back).copied().collect();
        let ways = group.iter().filter_map(|module| shortest_way_back(edges, module));
        let way = ways.min_by_key(Vec::len).expect("each of them leads back to itself");
        circles.push(ModuleCycle {
            modules: group.len(),
            way: way.into_iter().map(|(user, used)| line(edges, user, used)).collect(),
        });
        told.extend(group);
    }
    circles
}

fn line(edges: &ModuleEdges, user: &str, used: &str) -> String {
    let items = Vec::from_iter(edges[user][used].iter().map(String::as_str)).join(", ");
    format!("{user} uses {items} of {used}")
}

fn reached_from<'e>(edges: &'e ModuleEdges, from: &str) -> BTreeSet<&'e String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(from) = next.pop() {
        for to in edges.get(from).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(to) {
                next.push(to);
            }
        }
    }
    reached
}

/// The shortest cycle through a module, as its edges.
fn shortest_way_back<'e>(edges: &'e ModuleEdges, module: &'e str) -> Option<Vec<(&'e str, &'e str)>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next = VecDeque::from([module]);
    while let Some(from) = next.pop_front() {
        for to in edges.get(from).into_iter().flat_map(BTreeMap::keys) {
            if !before.contains_key(to.as_str()) {
                before.insert(to, from);
                next.push_back(to);
            }
        }
    }
    let mut way = Vec::new();
    let mut to = module;
    loop {
        let from = *before.get(to)?;
        way.push((from, to));
        to = from;
        if to == module {
            way.reverse();
            return Some(way);
        }
    }
}

impl fmt::Display for ModuleCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.way.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{modules::ModuleTree, sources::SourceFiles};

    fn cycles_of(files: &[(&str, &str)]) -> Vec<String> {
        let modules = ModuleTree::from_sources(&SourceFiles::from_texts(files), "lib.rs");
        shortest_cycles(&modules.edges()).iter().map(ToString::to_string).collect()
    }

    /// A cycle is reported with the uses that close it.
    #[test]
    fn cycle_is_reported_with_its_uses() {
        let told = cycles_of(&[
            ("lib.rs", "pub mod house; pub mod door;"),
            ("house.rs", "mod room; pub struct House(room::Room);"),
            ("house/room.rs", "use crate::door::Door; pub struct Room(Door);"),
            ("door.rs", "pub struct Door; fn leads_to(_: &crate::house::House) {}"),
        ]);
        let circle = "    door uses House of house\n    house uses Room of house::room\n    \
                      house::room uses Door of door\n";
        assert_eq!(told, [circle]);
    }

    #[test]
    fn reexporting_parent_closes_no_cycle() {
        let told = cycles_of(&[
            ("lib.rs", "pub mod house;"),
            ("house.rs", "mod room; mod wall; pub use self::{room::Room, wall::Wall};"),
            ("house/room.rs", "pub struct Room(super::Wall);"),
            ("house/wall.rs", "pub struct Wall;"),
        ]);
        assert!(told.is_empty(), "{told:?}");
    }
}
