//! Which names of values name a resource that other paths have.

use std::collections::BTreeMap;

use super::path::ApiPath;

/// The resources of a document, by the parameters that name them.
#[derive(Debug, Default)]
pub(super) struct ResourceIndex {
    /// By the normalized name of a parameter: the collections of which it names one, each with a path.
    by_parameter: BTreeMap<String, BTreeMap<String, String>>,
    /// Collections of which requests that write lock one, each with a path.
    locked: BTreeMap<String, String>,
}

/// A resource that a value names, as it seems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NamedResource<'i> {
    pub(super) collection: &'i str,
    /// A path with a parameter of that name.
    pub(super) path: &'i str,
}

/// Names that parameters have whatever they name.
const GENERIC: [&str; 9] = ["id", "name", "code", "key", "uuid", "number", "reference", "type", "version"];

impl ResourceIndex {
    /// `is_read`: no request for the path writes.
    pub(super) fn add(&mut self, path: &ApiPath, is_read: bool) {
        // A parameter behind another one may name something of that one only.
        let Some(first) = path.variables.first() else { return };
        let collections = self.by_parameter.entry(normalize(&first.parameter)).or_default();
        collections.entry(first.collection.clone()).or_insert_with(|| path.template.clone());
        if !is_read {
            self.locked.entry(first.collection.clone()).or_insert_with(|| path.template.clone());
        }
    }

    /// The resource of which a value with this name is the name, if there is one. `own`: the collection that the path of the
    /// request names last; only there a generic name says anything.
    pub(super) fn named(&self, name: &str, own: Option<&str>) -> Option<NamedResource<'_>> {
        let name = normalize(name);
        let collections = self.by_parameter.get(&name)?;
        let counts = |collection: &str| !GENERIC.contains(&&*name) || Some(collection) == own;
        let mut found = collections.iter().filter(|(collection, _)| counts(collection));
        let (collection, path) = found.next()?;
        found.next().is_none().then_some(NamedResource { collection, path })
    }

    /// The path of a route that locks one of these resources alone.
    pub(super) fn locked_alone(&self, collection: &str) -> Option<&str> {
        self.locked.get(collection).map(String::as_str)
    }
}

/// `order_id`, `orderId` and `Order-ID` are one name.
pub(super) fn normalize(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|char| char.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(paths: &[&str]) -> ResourceIndex {
        let mut index = ResourceIndex::default();
        for path in paths {
            index.add(&ApiPath::parse("", path).expect(path), false);
        }
        index
    }

    /// A value names a resource if exactly one collection has a parameter of its name.
    #[test]
    fn values_name_resources_of_paths() {
        let index = index(&["/orders/{order-id}", "/cards/{id}", "/a/{ref}", "/b/{ref}", "/c/{x}/d/{y}"]);
        let named = |name, own| index.named(name, own).map(|named| named.collection.to_owned());
        assert_eq!(named("orderId", None).as_deref(), Some("orders"));
        assert_eq!(named("id", Some("cards")).as_deref(), Some("cards"));
        assert_eq!(named("id", Some("orders")), None);
        assert_eq!((named("ref", None), named("y", None), named("z", None)), (None, None, None));
        assert_eq!((index.locked_alone("cards"), index.locked_alone("d")), (Some("/cards/{id}"), None));
    }
}
