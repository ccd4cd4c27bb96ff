//! Finds names that stand for more than one thing: names of files and folders over all crates, and of types within one.

use std::collections::{BTreeMap, BTreeSet};

/// Names that stand in several places by right.
pub(crate) struct Allowed {
    /// With spaces between them. Each stands in two places, or in as many as are given behind it: `door*3`.
    pub(crate) names: &'static str,
    /// The one thing, or the one kind of things, that each of them stands for.
    pub(crate) are: &'static str,
}

/// Where each name stands.
#[derive(Default)]
pub(crate) struct Places(BTreeMap<String, BTreeSet<String>>);

/// Where the names are listed that may stand in several places.
const LIST: &str = "tests/house/same.rs";

/// Names that Rust requires. The files below a folder `tests` are named after the thing they test.
const OF_RUST: [&str; 4] = ["lib", "main", "mod", "tests"];

impl Places {
    pub(crate) fn add(&mut self, name: &str, place: String) {
        self.0.entry(name.to_owned()).or_default().insert(place);
    }

    /// The file at this path below `root`, and the folders that it stands in. A file and the folder of its children are
    /// one place.
    pub(crate) fn add_file(&mut self, root: &str, path: &str) {
        let mut place = root.to_owned();
        for name in path.trim_end_matches(".rs").split('/') {
            if OF_RUST.contains(&name) {
                return;
            }
            place = format!("{place}/{name}");
            self.add(name, place.clone());
        }
    }

    /// One sentence for each name that stands in more places than it is allowed to, or in fewer.
    pub(crate) fn complaints(&self, allowed: &[Allowed]) -> Vec<String> {
        let allowed: BTreeMap<&str, (usize, &str)> = allowed.iter().flat_map(Allowed::each).collect();
        let most = |name: &str| allowed.get(name).map_or(1, |(most, _)| *most);
        let more = self.0.iter().filter(|(name, places)| places.len() > most(name)).map(|(name, places)| {
            let places = Vec::from_iter(places.iter().map(String::as_str)).join(", ");
            let listed = allowed.get(name.as_str()).map_or("nothing", |(_, are)| *are);
            format!(
                "`{name}` stands in {places}: where these are different things, give one of them the word that the field \
                 has for it; where they are one thing, say in {LIST} what that is, and in how many places it stands \
                 (it is listed there for: {listed})"
            )
        });
        let found = |name: &str| self.0.get(name).map_or(0, BTreeSet::len);
        let fewer = allowed.iter().filter(|(name, (count, _))| found(name) < *count);
        let fewer = fewer.map(|(name, (count, are))| {
            format!(
                "`{name}` stands in {} places and not in {count}: correct that in {LIST} ({are})",
                found(name)
            )
        });
        more.chain(fewer).collect()
    }
}

impl Allowed {
    /// Each name, in how many places it stands, and for what.
    fn each(&self) -> impl Iterator<Item = (&'static str, (usize, &'static str))> {
        self.names.split_whitespace().map(|name| match name.split_once('*') {
            Some((name, count)) => (name, (count.parse().expect("a number behind the asterisk"), self.are)),
            None => (name, (2, self.are)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn house() -> Places {
        let mut places = Places::default();
        for path in
            ["door.rs", "door/hinge.rs", "door/tests/wood.rs", "lib.rs", "stove/mod.rs", "stove/wood.rs"]
        {
            places.add_file("kitchen/src", path);
        }
        places.add_file("cellar/src", "lib.rs");
        places.add_file("cellar/src", "wood.rs");
        places
    }

    #[test]
    fn a_name_in_two_places_is_told_with_both() {
        let told = house().complaints(&[]);
        let [told] = &told[..] else { panic!("{told:#?}") };
        assert!(told.starts_with("`wood` stands in cellar/src/wood, kitchen/src/stove/wood: "), "{told}");
    }

    #[test]
    fn what_is_allowed_is_allowed_in_so_many_places() {
        let told = |names| house().complaints(&[Allowed { names, are: "what burns" }]);
        assert!(told("wood").is_empty());
        let fewer = "stands in 1 places and not in 2: correct that in tests/house/same.rs (what burns)";
        assert_eq!(told("wood door"), [format!("`door` {fewer}")]);
        let mut house = house();
        house.add("wood", "attic/src/wood".into());
        let told = |names| house.complaints(&[Allowed { names, are: "what burns" }]).len();
        assert_eq!([told("wood"), told("wood*3")], [1, 0], "a third one may be another thing");
    }
}
