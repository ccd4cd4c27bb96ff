//! Reads one source file: the items that it defines, its imports, and the names that it mentions.

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Field, File, ImplItemFn, Item, ItemUse, Local, Macro, Meta, Path, Token, UseTree, Variant,
    punctuated::Punctuated,
    visit::{self, Visit},
};

/// The segments of a path such as `crate::lock::Slot`.
pub(crate) type ModulePath = Vec<String>;

/// The items of one module. The contents of functions count as contents of the module.
#[derive(Debug, Default)]
pub(crate) struct ModuleItems {
    pub(crate) items: Vec<String>,
    pub(crate) imports: Vec<UseImport>,
    /// The paths of glob imports, such as `a::b` of `use a::b::*`.
    pub(crate) globs: Vec<ModulePath>,
    pub(crate) mentions: Vec<ModulePath>,
    /// The names of child modules in files of their own.
    pub(crate) elsewhere: Vec<String>,
    /// The child modules whose body is in this file.
    pub(crate) within: Vec<(String, ModuleItems)>,
}

#[derive(Debug)]
pub(crate) struct UseImport {
    pub(crate) name: String,
    pub(crate) path: ModulePath,
}

impl ModuleItems {
    /// Reads a file, without the code that is built only for tests.
    pub(crate) fn from_file(file: &File) -> Self {
        let mut read = Self::default();
        read.visit_file(file);
        read
    }

    fn add_import(&mut self, tree: &UseTree, before: &[String]) {
        let then = |name: &syn::Ident| [before, &[plain(name)]].concat();
        let path_of = |name: &syn::Ident| if name == "self" { before.to_vec() } else { then(name) };
        match tree {
            UseTree::Path(path) => self.add_import(&path.tree, &then(&path.ident)),
            UseTree::Name(name) => {
                let path = path_of(&name.ident);
                self.imports.extend(path.last().cloned().map(|name| UseImport { name, path }));
            }
            UseTree::Rename(name) => {
                self.imports.push(UseImport { name: plain(&name.rename), path: path_of(&name.ident) });
            }
            UseTree::Glob(_) => self.globs.push(before.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_import(tree, before)),
        }
    }

    /// Adds the paths in the tokens of a macro. They form no syntax tree, so each run of names with `::` between
    /// them counts as a path.
    fn add_macro_paths(&mut self, tokens: TokenStream) {
        let mut path = ModulePath::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.add_path(std::mem::take(&mut path));
                    }
                    path.push(plain(&name));
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.add_path(std::mem::take(&mut path));
                    self.add_macro_paths(group.stream());
                    colons = 0;
                }
                _ => {
                    self.add_path(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.add_path(path);
    }

    fn add_path(&mut self, path: ModulePath) {
        if !path.is_empty() {
            self.mentions.push(path);
        }
    }
}

impl<'a> Visit<'a> for ModuleItems {
    fn visit_item(&mut self, item: &'a Item) {
        let (attributes, name) = attributes_and_name(item);
        if is_for_tests(attributes) {
            return;
        }
        if let Item::Mod(module) = item {
            let name = plain(&module.ident);
            match &module.content {
                None => self.elsewhere.push(name),
                Some((_, items)) => {
                    let mut within = Self::default();
                    items.iter().for_each(|item| within.visit_item(item));
                    self.within.push((name, within));
                }
            }
            return;
        }
        self.items.extend(name);
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if item.leading_colon.is_none() {
            self.add_import(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'a Path) {
        if path.leading_colon.is_none() {
            self.add_path(path.segments.iter().map(|segment| plain(&segment.ident)).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'a Macro) {
        self.visit_path(&invoked.path);
        self.add_macro_paths(invoked.tokens.clone());
    }

    /// Attributes are skipped: derives and the attributes of tools do not count as uses.
    fn visit_attribute(&mut self, _: &'a Attribute) {}

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'a Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'a Variant) {
        if !is_for_tests(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_local(&mut self, local: &'a Local) {
        if !is_for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }
}

/// The attributes of an item, and the name that it defines.
fn attributes_and_name(item: &Item) -> (&[Attribute], Option<String>) {
    let (attributes, name) = match item {
        Item::Const(item) => (&item.attrs, Some(&item.ident)),
        Item::Enum(item) => (&item.attrs, Some(&item.ident)),
        Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
        Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
        Item::Static(item) => (&item.attrs, Some(&item.ident)),
        Item::Struct(item) => (&item.attrs, Some(&item.ident)),
        Item::Trait(item) => (&item.attrs, Some(&item.ident)),
        Item::Type(item) => (&item.attrs, Some(&item.ident)),
        Item::Union(item) => (&item.attrs, Some(&item.ident)),
        Item::Impl(item) => (&item.attrs, None),
        Item::Mod(item) => (&item.attrs, None),
        Item::Use(item) => (&item.attrs, None),
        _ => return (&[], None),
    };
    (attributes, name.map(plain))
}

/// The name without the `r#` that marks a keyword used as a name.
fn plain(name: &proc_macro2::Ident) -> String {
    name.to_string().trim_start_matches("r#").to_owned()
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.filter_map(|condition| condition.parse_args::<Meta>().ok()).any(|meta| needs_tests(&meta))
}

fn needs_tests(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => {
            let all = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            all.is_ok_and(|all| all.iter().any(needs_tests))
        }
        _ => false,
    }
}
