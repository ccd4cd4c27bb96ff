//! Names one value of a JSON body (RFC 6901).

use std::fmt;

/// The most objects and lists within each other. No name of a resource stands deeper, and a recursive reader needs a
/// limit.
pub(super) const DEEPEST: usize = 32;

/// A JSON pointer of at least one name, such as `/items/0/sku`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// With `~0` and `~1` decoded.
    names: Vec<Box<str>>,
}

impl Pointer {
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(names) = text.strip_prefix('/') else {
            return Err("a pointer begins with a slash, such as `body:/order/id`");
        };
        let names = names.split('/').map(decoded).collect::<Result<Vec<_>, _>>()?;
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
}

fn decoded(name: &str) -> Result<Box<str>, &'static str> {
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

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.names.iter().try_for_each(|name| write!(f, "/{}", name.replace('~', "~0").replace('/', "~1")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_written_as_it_was_read() {
        for (text, names) in [
            ("/from", &["from"][..]),
            ("/items/0/sku", &["items", "0", "sku"]),
            ("/", &[""]),
            ("/a//b", &["a", "", "b"]),
            ("/a~1b/m~0n", &["a/b", "m~n"]),
            ("/~01", &["~1"]),
            ("/x.y:z é", &["x.y:z é"]),
        ] {
            let pointer = Pointer::parse(text).expect(text);
            assert!(pointer.names().iter().map(|name| &**name).eq(names.iter().copied()), "{text}");
            assert_eq!(pointer.to_string(), text);
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for text in ["", "from", "#/from", "/a~", "/a~2", "/~~0", "/a\tb", &"/a".repeat(33)] {
            assert!(Pointer::parse(text).is_err(), "{text}");
        }
        assert!(Pointer::parse(&"/a".repeat(32)).is_ok());
    }
}
