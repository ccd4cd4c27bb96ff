//! Finds the remedy for an unknown field: the field exists elsewhere, has another name, or lacks a space.

use crate::schema::PolicySchema;

/// A mapping whose fields are often written one level too high or too low.
struct MisplacedFields {
    /// The fields that lead to the mapping.
    path: &'static [&'static str],
    /// How messages begin to name the mappings in which a user would look for these fields.
    near: &'static [&'static str],
}

/// A name that several of them have belongs to the first.
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
    // No hint: several others have fields of these names.
    MisplacedFields { path: &["listeners"], near: &[] },
    MisplacedFields { path: &["zookeeper"], near: &["the policy"] },
];

/// Names that other products give to fields of ours.
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

/// `what` names the mapping with the unknown field. `fields` are the fields of that mapping.
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
