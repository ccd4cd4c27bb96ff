//! Finds the remedy for an unknown field: the field belongs to another mapping, has another name, or lacks a
//! space after its colon.

use crate::schema::PolicySchema;

/// A mapping whose fields are often written one level too high or too low.
struct MisplacedFields {
    /// The names of the fields that lead to the mapping.
    path: &'static [&'static str],
    /// Prefixes by which messages name the mappings in which users often write these fields by mistake.
    near: &'static [&'static str],
}

/// The mappings, in the order in which an unknown field is looked up: a name that several of them have gets
/// the first one.
const HOMES: [MisplacedFields; 8] = [
    MisplacedFields {
        path: &["routes", "fence"],
        near: &["route ", "a route", "`match`", "`hold`", "`once`"],
    },
    MisplacedFields {
        path: &["routes", "fence", "hold"],
        near: &["route ", "a route", "`fence`", "`defaults`", "the policy"],
    },
    MisplacedFields { path: &["routes", "fence", "once"], near: &["route ", "a route", "`fence`"] },
    MisplacedFields { path: &["routes", "match"], near: &["route ", "a route", "`fence`"] },
    MisplacedFields { path: &["listeners", "limits"], near: &["listener ", "`listener`", "the "] },
    MisplacedFields {
        path: &["listeners", "timeouts"],
        near: &["listener ", "`listener`", "the ", "`limits`"],
    },
    // `near` is empty, so no hint is given: several other mappings have fields of these names.
    MisplacedFields { path: &["listeners"], near: &[] },
    MisplacedFields { path: &["zookeeper"], near: &["the policy"] },
];

/// Names that other products use for a field, and the name of that field here.
const SYNONYMS: [(&[&str], &str); 5] = [
    (
        &["url", "urls", "host", "hosts", "address", "addresses", "servers", "targets", "backends"],
        "endpoints",
    ),
    (&["url", "host", "address", "target", "backend"], "endpoint"),
    (&["timeout", "read_timeout", "request_timeout"], "response_timeout"),
    (&["bind", "listen", "port"], "address"),
    (&["lock", "locks"], "fence"),
];

/// The remedy for an unknown field. `what`: the name of the mapping with the field. `fields`: the fields that
/// this mapping can have.
pub(super) fn misplaced_remedy(written: &str, what: &str, fields: &[&str]) -> Option<String> {
    if let Some((name, value)) = written.split_once(':')
        && fields.contains(&name)
    {
        return Some(format!("put a space after the colon: `{name}: {value}`"));
    }
    if let Some((_, meant)) =
        SYNONYMS.iter().find(|(words, meant)| words.contains(&written) && fields.contains(meant))
    {
        return Some(format!("did you mean `{meant}`?"));
    }
    let table = PolicySchema::for_gateway();
    let home = HOMES.iter().find(|home| table.names(home.path).contains(written))?;
    let near = home.near.iter().any(|near| what.starts_with(near));
    near.then(|| format!("`{written}` is a field of `{}`", home.path[home.path.len() - 1]))
}
