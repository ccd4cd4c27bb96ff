//! Reads a JSON body once, and keeps the few values of it that keys need.
//!
//! A body that two readers could take for different values has no key. These are refused: two members of one name, at
//! any depth; a member that a pointer names, in a second spelling, because some readers ignore case; NUL in any name,
//! because some readers end a name there; and, where a pointer leads to it, a boolean, or a number that some readers
//! round. So is a list with more items than the pointers name: the others would be worked on without a lock.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};

use super::pointer::{DEEPEST, JsonPointer, index};

/// The values of one body that the keys of one fence need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BodyValues {
    leaves: Vec<(JsonPointer, JsonScalar)>,
}

/// The value to which a pointer leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonScalar {
    Null,
    /// A string; or an integer in its only spelling.
    Value(String),
    /// A value that cannot be part of a key, and why.
    Unfit(&'static str),
}

/// Why no key can be taken from a body. The client is at fault; no message repeats text of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseBodyError {
    #[error("the body is not said to be JSON: `Content-Type` has to be `application/json` or end in `+json`")]
    NotDeclared,
    #[error(
        "the body's `Content-Type` is there in another spelling, which some servers take for the same and others do not see"
    )]
    DeclaredTwice,
    #[error("the body is said to be in another character set than UTF-8")]
    Charset,
    #[error("the body has a `Content-Encoding`")]
    Encoded,
    #[error("the body is not JSON")]
    NotJson,
    #[error("the body has an object with two members of one name")]
    DuplicateMember,
    #[error(
        "the body has a member that a key asks for in a second spelling, which some servers take for the same"
    )]
    Respelled,
    #[error("the body has a member with NUL in its name, which some servers take for the name before it")]
    NulInName,
    #[error("the body is nested deeper than {DEEPEST} levels")]
    TooDeep,
    #[error(
        "the body has a list with more items than the keys name, or an object with more members in its place"
    )]
    TooLong,
}

impl BodyValues {
    /// Memory is bounded by the member names and by the values of `pointers`, however many values there are.
    pub(crate) fn parse<'p>(
        bytes: &[u8],
        pointers: impl Iterator<Item = &'p JsonPointer>,
    ) -> Result<Self, ParseBodyError> {
        let mut findings = FoundJsonValues { body: Self::default(), bad: None };
        let root = JsonVisitor { asked: pointers.collect(), depth: 0, findings: &mut findings };
        let mut json = serde_json::Deserializer::from_slice(bytes);
        match root.deserialize(&mut json).and_then(|()| json.end()) {
            Ok(()) => Ok(findings.body),
            Err(_) => Err(findings.bad.unwrap_or(ParseBodyError::NotJson)),
        }
    }

    /// `None` where the body has no such value, or where no pointer named the value when the body was read.
    pub(super) fn value_at(&self, pointer: &JsonPointer) -> Option<&JsonScalar> {
        self.leaves.iter().find(|(known, _)| known == pointer).map(|(_, leaf)| leaf)
    }
}

/// The values that have been found so far.
struct FoundJsonValues {
    body: BodyValues,
    /// Why the walk ended early, where the parser itself found no fault.
    bad: Option<ParseBodyError>,
}

/// One value on its way through the parser.
struct JsonVisitor<'w, 'p> {
    /// The pointers that lead to this value, or through it.
    asked: Vec<&'p JsonPointer>,
    /// How many names of these pointers have been followed.
    depth: usize,
    findings: &'w mut FoundJsonValues,
}

impl<'p> JsonVisitor<'_, 'p> {
    /// Keeps the value if a pointer ends here.
    fn record(self, leaf: impl FnOnce() -> JsonScalar) {
        if let Some(pointer) = self.asked.into_iter().find(|pointer| pointer.names().len() == self.depth) {
            self.findings.body.leaves.push((pointer.clone(), leaf()));
        }
    }

    fn descend(&mut self, pointers: Vec<&'p JsonPointer>) -> JsonVisitor<'_, 'p> {
        JsonVisitor { asked: pointers, depth: self.depth + 1, findings: self.findings }
    }

    /// The pointers whose next name is `name`; and whether the next name of a pointer is another spelling of `name`.
    fn pointers_for(&self, name: &str) -> (Vec<&'p JsonPointer>, bool) {
        let next = |pointer: &&&'p JsonPointer| pointer.names().get(self.depth).map(|next| &**next);
        let pointers = self.asked.iter().filter(|pointer| next(pointer) == Some(name)).copied().collect();
        let other = |next: &str| next != name && fold_name(next).eq(fold_name(name));
        (pointers, self.asked.iter().any(|pointer| next(&pointer).is_some_and(other)))
    }

    /// How many items the pointers name of this value, if they name any.
    fn item_limit(&self) -> Option<usize> {
        let next = |pointer: &&'p JsonPointer| pointer.names().get(self.depth).and_then(|name| index(name));
        self.asked.iter().filter_map(next).max().map(|last| last.saturating_add(1))
    }

    fn fail<E: Error>(self, error: ParseBodyError) -> E {
        self.findings.bad = Some(error);
        E::custom(error)
    }
}

impl<'de> DeserializeSeed<'de> for JsonVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.record(|| JsonScalar::Null);
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.record(|| JsonScalar::Unfit(UNFIT_BOOLEAN));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.record(|| integer(value, value.to_string()));
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.record(|| integer(value.unsigned_abs(), value.to_string()));
        Ok(())
    }

    /// The parser gives this type to a fraction, an exponent, `-0`, and integers of more than 64 bits.
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.record(|| JsonScalar::Unfit(UNFIT_NUMBER));
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.record(|| JsonScalar::Value(value.to_owned()));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        if self.depth == DEEPEST {
            return Err(self.fail(ParseBodyError::TooDeep));
        }
        let named = self.item_limit();
        for index in 0_usize.. {
            let pointers = match self.asked.is_empty() {
                true => Vec::new(),
                false => self.pointers_for(&index.to_string()).0,
            };
            if items.next_element_seed(self.descend(pointers))?.is_none() {
                break;
            }
            if named.is_some_and(|named| index >= named) {
                return Err(self.fail(ParseBodyError::TooLong));
            }
        }
        self.record(|| JsonScalar::Unfit(UNFIT_SHAPE));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        if self.depth == DEEPEST {
            return Err(self.fail(ParseBodyError::TooDeep));
        }
        // PHP makes one array of `{"0": ...}` and of a list.
        let named = self.item_limit();
        let mut names = HashSet::new();
        while let Some(JsonMemberName(name)) = members.next_key()? {
            if name.contains('\0') {
                return Err(self.fail(ParseBodyError::NulInName));
            }
            let (pointers, respelled) = self.pointers_for(&name);
            if respelled {
                return Err(self.fail(ParseBodyError::Respelled));
            }
            if !names.insert(name) {
                return Err(self.fail(ParseBodyError::DuplicateMember));
            }
            if named.is_some_and(|named| names.len() > named) {
                return Err(self.fail(ParseBodyError::TooLong));
            }
            members.next_value_seed(self.descend(pointers))?;
        }
        self.record(|| JsonScalar::Unfit(UNFIT_SHAPE));
        Ok(())
    }
}

/// The name of a member. It is copied only if it has escapes.
#[derive(PartialEq, Eq, Hash, Deserialize)]
struct JsonMemberName<'a>(#[serde(borrow)] Cow<'a, str>);

const UNFIT_NUMBER: &str = "is a number that not every reader of JSON takes for the same integer";
const UNFIT_BOOLEAN: &str = "is a boolean, which some readers take for 1 or 0, and others for a word";
const UNFIT_SHAPE: &str = "is an object or a list";

/// The largest integer that a double holds exactly. Readers with doubles round larger ones (RFC 7493, 2.2).
const EXACT: u64 = (1 << 53) - 1;

fn integer(magnitude: u64, text: String) -> JsonScalar {
    if magnitude <= EXACT { JsonScalar::Value(text) } else { JsonScalar::Unfit(UNFIT_NUMBER) }
}

/// Two names have the same folded form if a reader that ignores case takes them for one.
fn fold_name(name: &str) -> impl Iterator<Item = char> {
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}
