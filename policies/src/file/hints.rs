//! Finds the remedy for an unknown field: the field exists elsewhere, has another name, or lacks a space.

/// Fields that are often written one level too high or too low.
struct MisplacedFields {
    name: &'static str,
    fields: &'static [&'static str],
    /// How messages begin to name the mappings in which a user would look for these fields.
    near: &'static [&'static str],
}

const HOMES: [MisplacedFields; 6] = [
    MisplacedFields {
        name: "fence",
        fields: &[
            "key",
            "keys",
            "wait",
            "queue",
            "hold",
            "forward",
            "nested",
            "lease",
            "mode",
            "enforce",
            "once",
            "locked_status",
            "large_bodies",
            "body_type",
            "only",
            "sources",
            "conflicts",
        ],
        near: &["route ", "a route", "`match`", "`hold`", "`once`"],
    },
    MisplacedFields {
        name: "hold",
        fields: &["linger", "max_local", "max_hold", "max_tenure"],
        near: &["route ", "a route", "`fence`", "`defaults`", "the policy"],
    },
    MisplacedFields {
        name: "match",
        fields: &["path", "methods", "hosts", "headers", "query"],
        near: &["route ", "a route", "`fence`"],
    },
    MisplacedFields {
        name: "limits",
        fields: &["connections", "in_flight", "per_client", "max_header", "max_body", "buffered"],
        near: &["listener ", "`listener`", "the "],
    },
    MisplacedFields {
        name: "timeouts",
        fields: &["drain", "request_headers", "request_body", "response_write", "tls_handshake"],
        near: &["listener ", "`listener`", "the ", "`limits`"],
    },
    MisplacedFields {
        name: "zookeeper",
        fields: &["servers", "root", "session_timeout", "safety_margin", "sessions"],
        near: &["the policy"],
    },
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
    let near = |home: &&MisplacedFields| home.near.iter().any(|near| what.starts_with(near));
    let home = HOMES.iter().filter(near).find(|home| home.fields.contains(&written))?;
    Some(format!("`{written}` is a field of `{}`", home.name))
}
