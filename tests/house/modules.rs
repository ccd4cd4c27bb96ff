//! The modules of one crate, and the uses between them: one module uses an item that another one defines.
//!
//! An item belongs to the file that defines it, even if other files export it again. Methods are not followed: the
//! caller of a method has the value from another item. Macros that are in scope only by their position in the text
//! are not followed either.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::{
    module_items::{ModuleItems, ModulePath},
    sources::SourceFiles,
};

/// For each module, the modules whose items it uses, and these items. The crate itself is called `crate`.
pub(crate) type ModuleEdges = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// All modules of a crate, by their paths.
pub(crate) struct ModuleTree(BTreeMap<ModulePath, Module>);

struct Module {
    read: ModuleItems,
    /// The module whose file has this module's body.
    file: ModulePath,
    children: HashSet<String>,
}

/// The module or item to which a path leads.
enum ModulePathTarget {
    Module(ModulePath),
    Item { of: ModulePath, name: String },
}

impl ModuleTree {
    /// Reads the modules of a crate. `root`: the crate's root file.
    pub(crate) fn from_sources(sources: &SourceFiles, root: &str) -> Self {
        let mut all = Self(BTreeMap::new());
        all.add_file(sources, ModulePath::new(), root, "");
        all
    }

    /// Adds the module in a file, with all its children. `folder`: the folder of the children's files.
    fn add_file(&mut self, sources: &SourceFiles, name: ModulePath, file: &str, folder: &str) {
        let text = sources.get(file).unwrap_or_else(|| panic!("{file} is there"));
        let tree = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let read = ModuleItems::from_file(&tree);
        for child in &read.elsewhere {
            let (file, folder) = sources
                .find_module(folder, child)
                .unwrap_or_else(|| panic!("{file}: the file of `mod {child}`"));
            self.add_file(sources, [&name[..], std::slice::from_ref(child)].concat(), &file, &folder);
        }
        self.add(name.clone(), name, read);
    }

    fn add(&mut self, name: ModulePath, file: ModulePath, mut read: ModuleItems) {
        let within = std::mem::take(&mut read.within);
        let here = within.iter().map(|(child, _)| child.clone());
        let children = here.chain(read.elsewhere.iter().cloned()).collect();
        for (child, read) in within {
            self.add([&name[..], &[child]].concat(), file.clone(), read);
        }
        self.0.insert(name, Module { read, file, children });
    }

    pub(crate) fn edges(&self) -> ModuleEdges {
        let mut edges = ModuleEdges::new();
        for (name, module) in &self.0 {
            let imports = module.read.imports.iter().map(|import| &import.path);
            for path in imports.chain(&module.read.globs).chain(&module.read.mentions) {
                let Some(ModulePathTarget::Item { of, name: item }) =
                    self.resolve(name, path, false, &mut Vec::new())
                else {
                    continue;
                };
                let definer = &self.0[&of].file;
                if *definer != module.file {
                    let used = edges.entry(module_name(&module.file)).or_default();
                    used.entry(module_name(definer)).or_default().insert(item);
                }
            }
        }
        edges
    }

    /// Resolves a path as seen from a module. `module`: if a module and an item have the same name, take the module.
    fn resolve(
        &self,
        from: &ModulePath,
        path: &[String],
        module: bool,
        seen: &mut Vec<(ModulePath, ModulePath)>,
    ) -> Option<ModulePathTarget> {
        // Imports that refer to each other would be followed for ever.
        if seen.iter().any(|(module, names)| module == from && names == path) {
            return None;
        }
        seen.push((from.clone(), path.to_vec()));
        let mut at = from.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => (at, rest) = (ModulePath::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            _ => return self.resolve_in_module(at, rest, module, seen),
        }
        while let Some("super") = rest.first().map(String::as_str) {
            at.pop()?;
            rest = &rest[1..];
        }
        self.resolve_in_module(at, rest, module, seen)
    }

    fn resolve_in_module(
        &self,
        mut at: ModulePath,
        path: &[String],
        module: bool,
        seen: &mut Vec<(ModulePath, ModulePath)>,
    ) -> Option<ModulePathTarget> {
        for (place, name) in path.iter().enumerate() {
            let goes_on = place + 1 < path.len();
            match self.look_up(&at, name, module || goes_on, seen)? {
                ModulePathTarget::Module(next) => at = next,
                // The rest of the path belongs to the item: variants, functions, constants.
                item @ ModulePathTarget::Item { .. } => return Some(item),
            }
        }
        Some(ModulePathTarget::Module(at))
    }

    /// Finds the module or item that a name denotes in a module.
    fn look_up(
        &self,
        at: &ModulePath,
        name: &str,
        module: bool,
        seen: &mut Vec<(ModulePath, ModulePath)>,
    ) -> Option<ModulePathTarget> {
        let here = self.0.get(at)?;
        let child = || {
            here.children
                .contains(name)
                .then(|| ModulePathTarget::Module([&at[..], &[name.to_owned()]].concat()))
        };
        let item = || {
            let is_here = here.read.items.iter().any(|item| item == name);
            is_here.then(|| ModulePathTarget::Item { of: at.clone(), name: name.to_owned() })
        };
        let own = if module { child().or_else(item) } else { item().or_else(child) };
        if own.is_some() {
            return own;
        }
        let mut imports = here.read.imports.iter().filter(|import| import.name == name);
        if let Some(found) = imports.find_map(|import| self.resolve(at, &import.path, module, seen)) {
            return Some(found);
        }
        here.read.globs.iter().find_map(|glob| match self.resolve(at, glob, true, seen)? {
            ModulePathTarget::Module(all) if all != *at => self.look_up(&all, name, module, seen),
            _ => None,
        })
    }
}

fn module_name(module: &[String]) -> String {
    if module.is_empty() { "crate".to_owned() } else { module.join("::") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let edges = ModuleTree::from_sources(&SourceFiles::from_texts(files), "lib.rs").edges();
        let of = |user: &String, used: &BTreeMap<String, BTreeSet<String>>| {
            let line = |(of, items): (&String, &BTreeSet<String>)| {
                format!("{user} uses {} of {of}", Vec::from_iter(items.iter().cloned()).join(", "))
            };
            used.iter().map(line).collect::<Vec<_>>()
        };
        edges.iter().flat_map(|(user, used)| of(user, used)).collect()
    }

    /// An item belongs to the module that defines it, whichever module exports it.
    #[test]
    fn item_belongs_to_defining_module() {
        let told = edges(&[
            ("lib.rs", "pub mod shop; mod till;"),
            ("shop.rs", "mod goods; pub use self::goods::{Apple, pear as fruit};"),
            ("shop/goods.rs", "pub struct Apple; pub fn pear() {}"),
            ("till.rs", "use crate::shop::Apple; fn sell(_: Apple) { crate::shop::fruit() }"),
        ]);
        assert_eq!(told, ["shop uses Apple, pear of shop::goods", "till uses Apple, pear of shop::goods"]);
    }

    /// Names are found in macros, through modules and through glob imports.
    #[test]
    fn names_resolve_in_macros_and_globs() {
        let told = edges(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "pub struct A; pub mod inner { pub const DEEP: u8 = 1; }"),
            ("b.rs", "use crate::a::inner; fn b() { println!(\"{}\", (1, inner::DEEP)); }"),
            ("c.rs", "use super::a::*; fn c() -> Option<A> { None }"),
            ("d.rs", "fn d() { use crate::a as first; let _ = first::A; }"),
        ]);
        assert_eq!(told, ["b uses DEEP of a", "c uses A of a", "d uses A of a"]);
    }

    #[test]
    fn test_only_code_is_ignored() {
        let told = edges(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }"),
            (
                "b.rs",
                "#[cfg(test)] use crate::a::A; pub struct B; #[cfg(all(test, feature = \"x\"))] fn f(_: crate::a::A) {}
                 impl B { #[cfg(test)] fn g(_: crate::a::A) {} }",
            ),
        ]);
        assert!(told.is_empty(), "{told:?}");
    }

    /// A function and the module of the same name are distinguished.
    #[test]
    fn function_is_distinguished_from_module() {
        let told = edges(&[
            ("lib.rs", "mod steps; mod stack;"),
            ("steps.rs", "pub mod key; pub use self::key::key;"),
            ("steps/key.rs", "pub fn key() {} pub struct Key;"),
            ("stack.rs", "use crate::steps::key; fn all(_: key::Key) { key::key() }"),
        ]);
        assert_eq!(told, ["stack uses Key, key of steps::key", "steps uses key of steps::key"]);
    }
}
