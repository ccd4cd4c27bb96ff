//! Finds values whose names are those of path parameters, and therefore seem to name the same resources.

use std::collections::BTreeMap;

use super::path::OpenApiPathTemplate;

/// The collections of a document, by the path parameters that name their resources.
#[derive(Debug, Default)]
pub(super) struct ResourceIndex {
    /// For the normalized name of a parameter: each collection that it appears in, with a path that has it.
    by_parameter: BTreeMap<String, BTreeMap<String, String>>,
    /// The collections whose resources are locked by a writing request, each with a path.
    locked: BTreeMap<String, String>,
}

/// The resource that a value seems to name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NamedResource<'i> {
    pub(super) collection: &'i str,
    /// A path that has a parameter of the same name.
    pub(super) path: &'i str,
}

/// Names of parameters that do not tell which resource they name.
const GENERIC: [&str; 9] = ["id", "name", "code", "key", "uuid", "number", "reference", "type", "version"];

impl ResourceIndex {
    /// Adds the first parameter of a path. `is_read`: no request for the path writes.
    pub(super) fn add(&mut self, path: &OpenApiPathTemplate, is_read: bool) {
        // Later parameters are left out: they may be unique only below the first one.
        let Some(first) = path.variables.first() else { return };
        let collections = self.by_parameter.entry(normalize_parameter_name(&first.parameter)).or_default();
        collections.entry(first.collection.clone()).or_insert_with(|| path.template.clone());
        if !is_read {
            self.locked.entry(first.collection.clone()).or_insert_with(|| path.template.clone());
        }
    }

    /// The resource that a value of this name seems to name. `None` unless exactly one collection fits. `own`: the last
    /// collection in the path of the request; a name such as `id` counts only there.
    pub(super) fn find_named_resource(&self, name: &str, own: Option<&str>) -> Option<NamedResource<'_>> {
        let name = normalize_parameter_name(name);
        let collections = self.by_parameter.get(&name)?;
        let counts = |collection: &str| !GENERIC.contains(&&*name) || Some(collection) == own;
        let mut found = collections.iter().filter(|(collection, _)| counts(collection));
        let (collection, path) = found.next()?;
        found.next().is_none().then_some(NamedResource { collection, path })
    }

    /// The path of a route that locks a resource of this collection alone.
    pub(super) fn single_resource_lock_path(&self, collection: &str) -> Option<&str> {
        self.locked.get(collection).map(String::as_str)
    }
}

/// The name without case and punctuation: `order_id`, `orderId` and `Order-ID` are equal.
pub(super) fn normalize_parameter_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|char| char.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(paths: &[&str]) -> ResourceIndex {
        let mut index = ResourceIndex::default();
        for path in paths {
            index.add(&OpenApiPathTemplate::parse("", path).expect(path), false);
        }
        index
    }

    /// A value names a resource if exactly one collection has a parameter of the same name.
    #[test]
    fn values_name_resources_of_paths() {
        let index = index(&["/orders/{order-id}", "/cards/{id}", "/a/{ref}", "/b/{ref}", "/c/{x}/d/{y}"]);
        let named = |name, own| index.find_named_resource(name, own).map(|named| named.collection.to_owned());
        assert_eq!(named("orderId", None).as_deref(), Some("orders"));
        assert_eq!(named("id", Some("cards")).as_deref(), Some("cards"));
        assert_eq!(named("id", Some("orders")), None);
        assert_eq!((named("ref", None), named("y", None), named("z", None)), (None, None, None));
        assert_eq!(
            (index.single_resource_lock_path("cards"), index.single_resource_lock_path("d")),
            (Some("/cards/{id}"), None)
        );
    }
}
