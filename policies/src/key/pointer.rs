//! Names one value of a JSON body (RFC 6901).

use std::fmt;

/// The most objects and lists within each other. No name of a resource stands deeper, and a recursive reader needs a
/// limit.
pub(super) const DEEPEST: usize = 32;

/// A JSON pointer of at least one name, such as `/items/0/sku`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPointer {
    /// With `~0` and `~1` decoded.
    names: Vec<Box<str>>,
}

impl JsonPointer {
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(names) = text.strip_prefix('/') else {
            return Err("a pointer begins with a slash, such as `body:/order/id`");
        };
        let names = names.split('/').map(decode).collect::<Result<Vec<_>, _>>()?;
        if names.len() > DEEPEST {
            return Err("no body is that deep: a pointer has at most 32 names");
        }
        Ok(Self { names })
    }

    /// The last name of the pointer; `None` where that name is empty.
    pub fn last(&self) -> Option<&str> {
        self.names.last().map(|name| &**name)
    }

    pub(super) fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// The first name with which other languages mean several items of a list, or its last one. Here it would be the
    /// name of a member.
    pub(crate) fn foreign_name(&self) -> Option<&str> {
        self.names.iter().map(|name| &**name).find(|name| is_wildcard(name))
    }

    /// The items of lists on the path of this pointer.
    pub(crate) fn items(&self) -> impl Iterator<Item = JsonPointerListItem<'_>> {
        let item = |at: usize| {
            let index = index(&self.names[at])?;
            Some(JsonPointerListItem { list: &self.names[..at], index, rest: &self.names[at + 1..] })
        };
        (0..self.names.len()).filter_map(item)
    }
}

/// One item of a list that a pointer leads to, or through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonPointerListItem<'p> {
    /// The names that lead to the list.
    pub(crate) list: &'p [Box<str>],
    pub(crate) index: usize,
    /// The names that lead on from the item.
    pub(crate) rest: &'p [Box<str>],
}

/// The number of an item. A member of an object may have such a name, too, and some services take that object for a
/// list.
pub(super) fn index(name: &str) -> Option<usize> {
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    // A body has fewer items than a number has that does not fit.
    is_number.then(|| name.parse().unwrap_or(usize::MAX))
}

/// `*` of JSONPath and jsonpath of SQL, `#` of GJSON, `-` of JSON Patch, `[]` of forms and jq, `-1` of Python, `1:3` of slices.
fn is_wildcard(name: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_slice = name.contains(':') && name.split(':').all(|part| digits(part.trim_start_matches('-')));
    matches!(name, "#" | "$" | "@" | "..")
        || name.contains('*')
        || name.starts_with("#(")
        || name.ends_with(']') && name.contains('[')
        || name.strip_prefix('-').is_some_and(digits)
        || is_slice
}

fn decode(name: &str) -> Result<Box<str>, &'static str> {
    if name.chars().any(char::is_control) {
        return Err("a pointer has no control characters");
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

/// The names of a pointer, or some of them, as a policy has them.
pub(crate) fn format_names(names: &[Box<str>]) -> String {
    names.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_names(&self.names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pointer is written as it was read.
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
        ] {
            let pointer = JsonPointer::parse(text).expect(text);
            assert!(pointer.names().iter().map(|name| &**name).eq(names.iter().copied()), "{text}");
            assert_eq!(pointer.to_string(), text);
        }
    }

    /// Names that stand for several items in other languages are recognised.
    #[test]
    fn foreign_wildcard_names_are_recognised() {
        for name in [
            "*", "**", "sku*", "#", "#(id==1)", "-", "-1", "[]", "[*]", "items[]", "items[0]", "[?(@.a)]",
            "$", "@", "..", ":", "1:", "-2:",
        ] {
            let pointer = JsonPointer::parse(&format!("/items/{name}/sku")).expect(name);
            assert_eq!(pointer.foreign_name(), Some(name));
        }
        for name in
            ["", "0", "17", "a-b", "-a", "#text", "@id", "$ref", "a:b", "12:x", "[x", "x]", "a.b", "."]
        {
            assert_eq!(
                JsonPointer::parse(&format!("/items/{name}")).expect(name).foreign_name(),
                None,
                "{name}"
            );
        }
    }

    #[test]
    fn list_items_are_numbers() {
        let pointer = JsonPointer::parse("/orders/2/lines/0").expect("a pointer");
        let names = |names: &[Box<str>]| names.join(" ");
        let items: Vec<_> =
            pointer.items().map(|item| (names(item.list), item.index, names(item.rest))).collect();
        let wanted = [("orders", 2, "lines 0"), ("orders 2 lines", 0, "")];
        assert!(items.iter().map(|(list, index, rest)| (&**list, *index, &**rest)).eq(wanted), "{items:?}");
        assert_eq!(JsonPointer::parse("/a1/-1/x").expect("a pointer").items().count(), 0);
        let long = JsonPointer::parse("/99999999999999999999999").expect("a pointer");
        assert_eq!(long.items().next().map(|item| item.index), Some(usize::MAX));
    }

    /// A text that names no member is refused.
    #[test]
    fn invalid_pointer_is_refused() {
        for text in ["", "from", "#/from", "/a~", "/a~2", "/~~0", "/a\tb", &"/a".repeat(33)] {
            assert!(JsonPointer::parse(text).is_err(), "{text}");
        }
        assert!(JsonPointer::parse(&"/a".repeat(32)).is_ok());
    }
}
