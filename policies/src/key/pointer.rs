//! Names one value of a JSON body (RFC 6901), or one value of each item of a list: `/items/*/sku`.

use std::fmt;

use super::ignored_characters::BYTE_ORDER_MARK;

/// The deepest nesting of objects and lists. No name of a resource is nested so deeply, and a recursive reader needs a
/// limit.
pub(super) const DEEPEST: usize = 32;

/// A JSON pointer of at least one step, such as `/items/0/sku`. A step `*` leads to every item of a list. A member
/// whose name means list items in some other language is written in quotes: `/totals/"*"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPointer {
    steps: Vec<PointerStep>,
    /// The first unquoted name that means list items in another language.
    foreign: Option<Box<str>>,
}

/// One step of a pointer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PointerStep {
    /// A step to the member with this name, or to the list item with this number.
    Member(Box<str>),
    /// A step to every item of a list.
    EveryItem,
}

impl JsonPointer {
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(names) = text.strip_prefix('/') else {
            return Err("a pointer begins with a slash, such as `body:/order/id`");
        };
        let steps = names.split('/').map(PointerStep::parse).collect::<Result<Vec<_>, _>>()?;
        if steps.len() > DEEPEST {
            return Err("no body is that deep: a pointer has at most 32 names");
        }
        let foreign =
            names.split('/').find(|name| *name != EVERY && is_foreign_wildcard(name)).map(Into::into);
        Ok(Self { steps, foreign })
    }

    /// The steps of the pointer as text: the name of a member or the number of an item; `None` for every item of a
    /// list.
    pub fn names(&self) -> impl Iterator<Item = Option<&str>> {
        self.steps.iter().map(PointerStep::json_member_name)
    }

    /// The last step that is a name or a number; `None` if there is none.
    pub fn last_json_member(&self) -> Option<&str> {
        self.steps.iter().rev().find_map(PointerStep::json_member_name)
    }

    /// The first step; `None` if it leads to every item of a list.
    pub(crate) fn first_json_member(&self) -> Option<&str> {
        self.steps.first().and_then(PointerStep::json_member_name)
    }

    /// Whether the pointer leads to every item of some list.
    pub(crate) fn is_list(&self) -> bool {
        self.steps.contains(&PointerStep::EveryItem)
    }

    /// The steps up to the items of the innermost list, with the last `*`; empty if the pointer has no `*`.
    pub(crate) fn steps_to_items(&self) -> &[PointerStep] {
        let last = self.steps.iter().rposition(|step| *step == PointerStep::EveryItem);
        &self.steps[..last.map_or(0, |last| last + 1)]
    }

    pub(super) fn steps(&self) -> &[PointerStep] {
        &self.steps
    }

    /// The first unquoted name by which other languages mean several items of a list, or its last item. In this pointer
    /// it would be the name of a member.
    pub(crate) fn foreign_wildcard(&self) -> Option<&str> {
        self.foreign.as_deref()
    }

    /// The single list items that this pointer leads to or through.
    pub(crate) fn items(&self) -> impl Iterator<Item = JsonPointerListItem<'_>> {
        let item = |at: usize| {
            let index = self.steps[at].index()?;
            Some(JsonPointerListItem { list: &self.steps[..at], index, rest: &self.steps[at + 1..] })
        };
        (0..self.steps.len()).filter_map(item)
    }
}

/// A single list item that a pointer leads to or through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonPointerListItem<'p> {
    /// The steps to the list.
    pub(crate) list: &'p [PointerStep],
    pub(crate) index: usize,
    /// The steps from the item onwards.
    pub(crate) rest: &'p [PointerStep],
}

/// The text of the step to every item of a list.
const EVERY: &str = "*";

impl PointerStep {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text == EVERY {
            return Ok(Self::EveryItem);
        }
        let quoted = text.strip_prefix('"').and_then(|open| open.strip_suffix('"'));
        unescape_pointer_name(quoted.unwrap_or(text)).map(Self::Member)
    }

    pub(super) fn json_member_name(&self) -> Option<&str> {
        match self {
            Self::Member(name) => Some(name),
            Self::EveryItem => None,
        }
    }

    /// The number of a list item, if the step is a number. It may also be the name of a member, and some services treat
    /// an object with such names as a list.
    pub(super) fn index(&self) -> Option<usize> {
        let name = self.json_member_name()?;
        let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        // A number that does not fit is larger than the number of items in any body.
        is_number.then(|| name.parse().unwrap_or(usize::MAX))
    }
}

/// Whether a name means list items in another language: `*` in JSONPath and SQL's jsonpath, `#` in GJSON, `-` in JSON
/// Patch, `[]` in forms and jq, `-1` in Python, `1:3` in slices.
fn is_foreign_wildcard(name: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_slice = name.contains(':') && name.split(':').all(|part| digits(part.trim_start_matches('-')));
    matches!(name, "#" | "$" | "@" | "..")
        || name.contains('*') && !is_quoted(name)
        || name.starts_with("#(")
        || name.ends_with(']') && name.contains('[')
        || name.strip_prefix('-').is_some_and(digits)
        || is_slice
}

fn is_quoted(name: &str) -> bool {
    name.len() > 1 && name.starts_with('"') && name.ends_with('"')
}

fn unescape_pointer_name(name: &str) -> Result<Box<str>, &'static str> {
    if name.chars().any(char::is_control) {
        return Err("a pointer has no control characters");
    }
    // Some readers leave a byte order mark out, and others make it a part of the name.
    if name.contains(BYTE_ORDER_MARK) {
        return Err("a pointer has no byte order mark");
    }
    let mut parts = name.split('~');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (char, rest) = match part.as_bytes() {
            [b'0', ..] => ('~', &part[1..]),
            [b'1', ..] => ('/', &part[1..]),
            _ => return Err("within a pointer `~` is written `~0`, and a slash of a name `~1`"),
        };
        decoded.push(char);
        decoded.push_str(rest);
    }
    Ok(decoded.into())
}

/// The steps of a pointer, or some of them, as a policy writes them.
pub(crate) fn format_steps(steps: &[PointerStep]) -> String {
    steps.iter().map(|step| format!("/{step}")).collect()
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| write!(f, "/{step}"))
    }
}

impl fmt::Display for PointerStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Member(name) = self else { return f.write_str(EVERY) };
        let name = name.replace('~', "~0").replace('/', "~1");
        if is_foreign_wildcard(&name) || is_quoted(&name) {
            write!(f, "\"{name}\"")
        } else {
            f.write_str(&name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pointer is displayed as it was read.
    #[test]
    fn pointer_round_trips() {
        for (text, names) in [
            ("/from", &["from"][..]),
            ("/items/0/sku", &["items", "0", "sku"]),
            ("/", &[""]),
            ("/a//b", &["a", "", "b"]),
            ("/a~1b/m~0n", &["a/b", "m~n"]),
            ("/~01", &["~1"]),
            ("/x.y:z é", &["x.y:z é"]),
            (r##"/totals/"*"/"-"/"[]"/"#"/""x"""##, &["totals", "*", "-", "[]", "#", "\"x\""]),
        ] {
            let pointer = JsonPointer::parse(text).expect(text);
            assert_eq!(
                pointer
                    .steps()
                    .iter()
                    .map(PointerStep::json_member_name)
                    .collect::<Option<Vec<_>>>()
                    .as_deref(),
                Some(names)
            );
            assert!(!pointer.is_list() && pointer.foreign_wildcard().is_none(), "{text}");
            assert_eq!(pointer.to_string(), text);
        }
    }

    /// An unquoted `*` is every item of a list; a quoted one is the name of a member.
    #[test]
    fn unquoted_star_is_every_item() {
        for text in ["/items/*/sku", "/*", "/orders/*/lines/*/sku"] {
            let pointer = JsonPointer::parse(text).expect(text);
            assert!(pointer.is_list() && pointer.foreign_wildcard().is_none(), "{text}");
            assert_eq!(pointer.to_string(), text);
        }
        let skus = JsonPointer::parse("/skus/*").expect("a pointer");
        assert_eq!(skus.steps_to_items(), skus.steps());
        let lines = JsonPointer::parse("/orders/*/lines/*/sku").expect("a pointer");
        assert_eq!(format_steps(lines.steps_to_items()), "/orders/*/lines/*");
        assert!(JsonPointer::parse("/items/0").expect("a pointer").steps_to_items().is_empty());
        assert_eq!(skus.last_json_member(), Some("skus"));
        let needless = JsonPointer::parse(r#"/"items"/"0""#).expect("a pointer");
        assert_eq!(needless.to_string(), "/items/0");
    }

    /// Names that mean several items in other languages are recognised.
    #[test]
    fn foreign_wildcard_names_are_recognised() {
        for name in [
            "**", "sku*", "#", "#(id==1)", "-", "-1", "[]", "[*]", "items[]", "items[0]", "[?(@.a)]", "$",
            "@", "..", ":", "1:", "-2:",
        ] {
            let pointer = JsonPointer::parse(&format!("/items/{name}/sku")).expect(name);
            assert_eq!(pointer.foreign_wildcard(), Some(name));
        }
        for name in
            ["", "0", "17", "a-b", "-a", "#text", "@id", "$ref", "a:b", "12:x", "[x", "x]", "a.b", "."]
        {
            assert_eq!(
                JsonPointer::parse(&format!("/items/{name}")).expect(name).foreign_wildcard(),
                None,
                "{name}"
            );
        }
    }

    #[test]
    fn list_items_are_numbers() {
        let pointer = JsonPointer::parse("/orders/2/lines/0").expect("a pointer");
        let names =
            |steps: &[PointerStep]| steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let items: Vec<_> =
            pointer.items().map(|item| (names(item.list), item.index, names(item.rest))).collect();
        let wanted = [("orders", 2, "lines 0"), ("orders 2 lines", 0, "")];
        assert!(items.iter().map(|(list, index, rest)| (&**list, *index, &**rest)).eq(wanted), "{items:?}");
        assert_eq!(JsonPointer::parse("/a1/-1/x").expect("a pointer").items().count(), 0);
        let long = JsonPointer::parse("/99999999999999999999999").expect("a pointer");
        assert_eq!(long.items().next().map(|item| item.index), Some(usize::MAX));
    }

    /// A text that is no valid pointer is refused.
    #[test]
    fn invalid_pointer_is_refused() {
        for text in ["", "from", "#/from", "/a~", "/a~2", "/~~0", "/a\tb", &"/a".repeat(33)] {
            assert!(JsonPointer::parse(text).is_err(), "{text}");
        }
        assert!(JsonPointer::parse(&"/a".repeat(32)).is_ok());
    }
}
