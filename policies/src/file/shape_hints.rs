//! Finds the remedy for a value of the wrong shape, such as a list in the place of a mapping.

use super::yaml::{YamlNode, YamlNodeValue};
use crate::diagnostics::Diagnostic;

/// The remedy for a value in the place of a mapping with known fields.
pub(super) fn mapping_remedy(what: &str, other: &YamlNodeValue, known: &[&str]) -> String {
    if let (YamlNodeValue::Scalar(scalar), "`once`") = (other, what)
        && scalar.text == "true"
    {
        return "write `once: {}`, which takes all defaults".into();
    }
    let known: Vec<String> = known.iter().map(|name| format!("`{name}: ...`")).collect();
    format!("write its fields in `{{}}`, or indented on the lines below it: {}", known.join(", "))
}

/// The remedy for a value in the place of a mapping whose names the user chooses.
pub(super) fn named_entries_remedy(other: &YamlNodeValue) -> String {
    match other {
        YamlNodeValue::List(items) => match items.iter().find_map(name_of) {
            Some(name) => {
                format!("write `{name}:` in the place of the `-`, and its fields indented below it")
            }
            None => {
                "write a name and a `:` in the place of each `-`, and the fields indented below it".into()
            }
        },
        _ => "write a name and a `:` below it, and the fields indented below the name".into(),
    }
}

fn name_of(item: &YamlNode) -> Option<&str> {
    let YamlNodeValue::Mapping(entries) = &item.value else { return None };
    let named = entries.iter().find(|(key, _)| key.text == "name");
    named.and_then(|(_, node)| scalar_text(node))
}

pub(super) fn list_remedy(other: &YamlNodeValue) -> String {
    // Within a list these characters have a meaning of their own, so a value with one of them is put in
    // quotes.
    let quoted =
        |one: &str| if one.contains(['{', '}', '[', ']']) { format!("\"{one}\"") } else { one.to_owned() };
    match other {
        YamlNodeValue::Scalar(several)
            if several.text.contains(',') && !several.text.contains(['{', '[']) =>
        {
            let (several, root) = split_connect_string(&several.text);
            let items: Vec<&str> = several.split(',').map(str::trim).collect();
            let root = root.map(|root| format!(", and `root: {root}`")).unwrap_or_default();
            format!("write `[{}]`{root}", items.join(", "))
        }
        YamlNodeValue::Mapping(entries)
            if let [(first, YamlNode { value: YamlNodeValue::Mapping(_), .. }), ..] = entries.as_slice() =>
        {
            format!("write `- name: {}` in the place of `{0}:`, and so for each of them", first.text)
        }
        YamlNodeValue::Scalar(one) => format!("write `[{}]`", quoted(&one.text)),
        _ => "begin each of its items with `- `, or write them in `[]`".into(),
    }
}

/// Splits ZooKeeper's connect string into the servers, and the path of the root behind the last server.
fn split_connect_string(text: &str) -> (&str, Option<&str>) {
    let last = text.rfind(',').map_or(0, |comma| comma + 1);
    let is_server = |server: &str| server.contains(':') && !server.contains("://");
    match text[last..].find('/').map(|slash| text.split_at(last + slash)) {
        Some((servers, root)) if is_server(&servers[last..]) => (servers, Some(root)),
        _ => (text, None),
    }
}

pub(super) fn scalar_remedy(other: &YamlNodeValue) -> String {
    match other {
        YamlNodeValue::List(items) => match items.as_slice() {
            [one] => scalar_text(one).map_or_else(single_value_remedy, |one| {
                format!("write `\"{one}\"`, without a list around it")
            }),
            _ => single_value_remedy(),
        },
        // A template without quotes, such as `{path.id}`, is a mapping in YAML.
        YamlNodeValue::Mapping(entries) => match entries.as_slice() {
            [(key, YamlNode { value: YamlNodeValue::Nothing, .. })] => {
                format!("put it in quotes: `\"{{{}}}\"`", key.text)
            }
            _ => single_value_remedy(),
        },
        _ => single_value_remedy(),
    }
}

fn single_value_remedy() -> String {
    "write one value, in quotes if it has one of `{}[],`".into()
}

/// Adds the remedy for a value with a variable in the syntax of a shell, without braces.
pub(super) fn with_braces_remedy(written: &str, fault: Diagnostic) -> Diagnostic {
    let name = written.split_once('$').map(|(_, rest)| rest).unwrap_or_default();
    let end = name.find(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    let name = &name[..end.unwrap_or(name.len())];
    match name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
        true => fault.with_remedy(format!("a variable of the environment stands in braces: `${{{name}}}`")),
        false => fault,
    }
}

fn scalar_text(node: &YamlNode) -> Option<&str> {
    match &node.value {
        YamlNodeValue::Scalar(scalar) => Some(&scalar.text),
        _ => None,
    }
}
