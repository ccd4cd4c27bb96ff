//! The JSON Schemas of the two kinds of files. A test makes them from the fields that the reader reads, so they are a
//! table of all fields.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The schema of the policy of a gateway.
pub const GATEWAY: &str = include_str!("../schema.json");

/// The schema of the file of a guard.
pub const GUARD: &str = include_str!("../schema.guard.json");

/// The schema of the policy of a gateway, for looking up its fields.
#[derive(Debug)]
pub struct PolicySchema(Value);

impl PolicySchema {
    /// Parses the schema.
    ///
    /// # Panics
    /// Never panics, because a test has written the schema.
    pub fn for_gateway() -> Self {
        Self(serde_json::from_str(GATEWAY).expect("a schema is JSON"))
    }

    /// The names of the fields of one mapping. `path`: the fields that lead to the mapping, without names that the
    /// user chooses.
    pub fn names(&self, path: &[&str]) -> BTreeSet<&str> {
        let mappings = self.mappings_at(path).into_iter();
        mappings.flat_map(|fields| fields.keys().map(String::as_str)).collect()
    }

    /// The names of the fields of one mapping, and of all fields below it. `path`: as for [`Self::names`].
    pub fn names_below(&self, path: &[&str]) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        let mut open = self.mappings_at(path);
        while let Some(fields) = open.pop() {
            names.extend(fields.keys().map(String::as_str));
            open.extend(fields.values().flat_map(outermost_mappings));
        }
        names
    }

    fn mappings_at(&self, path: &[&str]) -> Vec<&Map<String, Value>> {
        path.iter().fold(outermost_mappings(&self.0), |open, name| {
            open.into_iter().filter_map(|fields| fields.get(*name)).flat_map(outermost_mappings).collect()
        })
    }
}

/// The fields of each mapping that is allowed at one place: directly, as a list item, or below a name that the user
/// chooses.
fn outermost_mappings(schema: &Value) -> Vec<&Map<String, Value>> {
    if let Some(Value::Object(fields)) = schema.get("properties") {
        return vec![fields];
    }
    let one = ["items", "additionalProperties"].into_iter().filter_map(|name| schema.get(name));
    let any = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    one.chain(any).flat_map(outermost_mappings).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_below_lists_and_names() {
        let fields = PolicySchema::for_gateway();
        assert!(fields.names(&["routes", "fence", "hold"]).contains("linger"));
        assert!(fields.names(&["listeners", "limits"]).contains("max_body"));
        assert!(!fields.names(&["routes"]).contains("linger"));
        assert!(fields.names_below(&["routes"]).contains("linger"));
        assert!(fields.names(&["routes", "no-such-field"]).is_empty());
    }
}
