//! Reads a JSON body once, and keeps the few values of it that keys need.
//!
//! A body in which two readers could find different values has no key. These are refused: two members of the same name,
//! at any depth; another spelling of a member that a pointer names, because some readers ignore case; a NUL in any
//! name, because some readers end a name there; and, at the end of a pointer, a boolean, or a number that some readers
//! round. A list with more items than the pointers name is refused, because the service would process the other items
//! without a lock. If a pointer leads to every item of a list, every item must have a value, and several pointers can
//! keep the values of one item together.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    fmt, mem,
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};

use super::{
    error::{ExtractValueError, ParseBodyError},
    ignored_characters::is_blank,
    pointer::{DEEPEST, JsonPointer, PointerStep},
    resource::ResourceKey,
};

/// The values of one JSON body that the keys of one fence, or the conditions of routes, need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JsonValues {
    leaves: Vec<(JsonPointer, JsonScalar)>,
    /// The pointers to single values on whose way there is a value other than an object or item.
    blocked: Vec<JsonPointer>,
    /// For each pointer to every item of a list, the values of the items.
    lists: Vec<(JsonPointer, JsonPointerValues)>,
    rows: Vec<JsonRows>,
}

/// The values to which several pointers lead, item by item of one list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct JsonRows {
    /// The pointers, which all lead through the items of the same list.
    pointers: Vec<JsonPointer>,
    /// For each pointer, its value in the item that is being read.
    item: Vec<Option<String>>,
    /// The values of each item in the order of the pointers; each combination once. One more than a set of keys may
    /// have is kept, to show that there are too many.
    pub(super) values: BTreeSet<Vec<String>>,
    /// The number of items, including repeated ones.
    pub(super) count: usize,
}

impl JsonRows {
    fn new(pointers: Vec<&JsonPointer>) -> Self {
        let item = vec![None; pointers.len()];
        Self { pointers: pointers.into_iter().cloned().collect(), item, ..Self::default() }
    }

    fn set(&mut self, pointer: &JsonPointer, value: &JsonScalar) {
        if let JsonScalar::Text(value) | JsonScalar::Integer(value) = value
            && let Some(at) = self.pointers.iter().position(|known| known == pointer)
        {
            self.item[at] = Some(value.clone());
        }
    }

    /// Keeps the values of the item. An item that lacks a value is left out here, because the list of that value
    /// reports it.
    fn finish_item(&mut self) {
        let empty = vec![None; self.pointers.len()];
        let row: Option<Vec<_>> = mem::replace(&mut self.item, empty).into_iter().collect();
        if let Some(row) = row {
            self.count += 1;
            if self.values.len() <= ResourceKey::MOST_IN_SET {
                self.values.insert(row);
            }
        }
    }
}

/// The values to which a pointer with `*` leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct JsonPointerValues {
    /// The values, each once. One more than a set of keys may have is kept, to show that there are too many.
    pub(super) values: BTreeSet<String>,
    /// The number of values, including repeated ones.
    pub(super) count: usize,
    /// True if the body has the list; false if it has none, or `null` for it.
    is_present: bool,
    /// The number of items that have led neither to a value nor to an inner list yet.
    open: usize,
    /// The reason for which some value of the list cannot be part of a key.
    unfit: Option<&'static str>,
}

impl JsonPointerValues {
    /// The reason for which some item has no value that can be part of a key.
    pub(super) fn unfit_item_reason(&self) -> Option<&'static str> {
        self.unfit.or((self.open > 0).then_some(UNFIT_ITEM))
    }

    fn add(&mut self, value: JsonScalar) {
        self.open -= 1;
        match value {
            JsonScalar::Null => self.unfit = self.unfit.or(Some(UNFIT_ITEM)),
            JsonScalar::Boolean(_) => self.unfit = self.unfit.or(Some(UNFIT_BOOLEAN)),
            JsonScalar::Unfit(reason) => self.unfit = self.unfit.or(Some(reason)),
            JsonScalar::Text(value) | JsonScalar::Integer(value) => {
                self.count += 1;
                if self.values.len() <= ResourceKey::MOST_IN_SET {
                    self.values.insert(value);
                }
            }
        }
    }
}

/// The value to which a pointer leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JsonScalar {
    Null,
    Text(String),
    /// An integer, in its canonical spelling.
    Integer(String),
    /// A boolean. A key cannot contain it, but a condition can compare it.
    Boolean(bool),
    /// A value that cannot be part of a key, with the reason.
    Unfit(&'static str),
}

impl JsonScalar {
    /// The value as a part of a key. A text and an integer with the same characters give the same key.
    pub(super) fn key_text(&self) -> Result<&str, ExtractValueError> {
        match self {
            Self::Null => Err(ExtractValueError::Missing),
            Self::Text(value) | Self::Integer(value) => Ok(value),
            Self::Boolean(_) => Err(ExtractValueError::Invalid(UNFIT_BOOLEAN)),
            Self::Unfit(reason) => Err(ExtractValueError::Invalid(reason)),
        }
    }
}

impl JsonValues {
    /// The largest integer that a double holds exactly. Readers with doubles round larger ones (RFC 7493, 2.2).
    pub(crate) const LARGEST_IN_DOUBLE: u64 = (1 << 53) - 1;
    /// The largest signed integer of 64 bits.
    pub(crate) const LARGEST_IN_64_BITS: u64 = i64::MAX.unsigned_abs();

    /// Reads the values of `pointers` from a body. Memory is bounded by the names of members and by the values of
    /// `pointers`, however many values the body has.
    ///
    /// `joined`: sets of pointers whose values are kept together for each item; each set is among `pointers`, and leads
    /// through the items of one list. `largest`: the largest magnitude of an integer that the service reads exactly.
    pub(crate) fn parse<'p>(
        bytes: &[u8],
        pointers: impl Iterator<Item = &'p JsonPointer>,
        joined: impl Iterator<Item = Vec<&'p JsonPointer>>,
        largest: u64,
    ) -> Result<Self, ParseBodyError> {
        let mut asked: Vec<&JsonPointer> = Vec::new();
        for pointer in pointers {
            if !asked.contains(&pointer) {
                asked.push(pointer);
            }
        }
        let lists = asked.iter().filter(|pointer| pointer.is_list());
        let lists = lists.map(|pointer| ((*pointer).clone(), JsonPointerValues::default())).collect();
        let rows = joined.filter(|pointers| !pointers.is_empty()).map(JsonRows::new).collect();
        let body = Self { leaves: Vec::new(), blocked: Vec::new(), lists, rows };
        let mut findings = FoundJsonValues { body, largest, bad: None };
        let root = JsonVisitor { asked, depth: 0, findings: &mut findings };
        let mut json = serde_json::Deserializer::from_slice(bytes);
        match root.deserialize(&mut json).and_then(|()| json.end()) {
            Ok(()) => Ok(findings.body),
            Err(_) => Err(findings.bad.unwrap_or(ParseBodyError::NotJson)),
        }
    }

    /// The value of a pointer. `None` if the body does not have it, or was not read for this pointer.
    pub(crate) fn value_at(&self, pointer: &JsonPointer) -> Option<&JsonScalar> {
        self.leaves.iter().find(|(known, _)| known == pointer).map(|(_, leaf)| leaf)
    }

    /// Whether a scalar, or a list in the place of an object, is on the way of the pointer. Some readers find a value
    /// there, such as that of the first item.
    pub(super) fn is_blocked(&self, pointer: &JsonPointer) -> bool {
        self.blocked.contains(pointer)
    }

    /// The values of all items, for a pointer with `*`; `None` if the body has no such list, or `null` for it.
    pub(super) fn list_at(&self, pointer: &JsonPointer) -> Option<&JsonPointerValues> {
        let (_, list) = self.lists.iter().find(|(known, _)| known == pointer)?;
        (list.is_present || list.unfit.is_some()).then_some(list)
    }

    /// The values of each item together, for pointers that were passed to `parse` as `joined`.
    pub(super) fn rows_at(&self, pointers: &[&JsonPointer]) -> Option<&JsonRows> {
        self.rows.iter().find(|rows| rows.pointers.iter().eq(pointers.iter().copied()))
    }
}

/// The values that have been found so far.
struct FoundJsonValues {
    body: JsonValues,
    /// The largest magnitude of an integer that counts as a value.
    largest: u64,
    /// The reason for which the visitor stopped, if it is no error of the parser itself.
    bad: Option<ParseBodyError>,
}

impl FoundJsonValues {
    fn list(&mut self, pointer: &JsonPointer) -> Option<&mut JsonPointerValues> {
        self.body.lists.iter_mut().find(|(known, _)| known == pointer).map(|(_, list)| list)
    }

    /// Adds the value of a pointer in the item that is being read.
    fn add_list_value(&mut self, pointer: &JsonPointer, value: JsonScalar) {
        for rows in &mut self.body.rows {
            rows.set(pointer, &value);
        }
        if let Some(list) = self.list(pointer) {
            list.add(value);
        }
    }
}

/// One value that the parser visits.
struct JsonVisitor<'w, 'p> {
    /// The pointers that lead to this value or through it.
    asked: Vec<&'p JsonPointer>,
    /// The number of steps of these pointers that lead to this value.
    depth: usize,
    findings: &'w mut FoundJsonValues,
}

impl<'p> JsonVisitor<'_, 'p> {
    /// Keeps the value if a pointer ends here.
    fn record(self, leaf: impl Fn() -> JsonScalar) {
        let mut is_kept = false;
        for pointer in self.asked {
            let ends = pointer.steps().len() == self.depth;
            match self.findings.list(pointer) {
                Some(_) if ends => self.findings.add_list_value(pointer, leaf()),
                // The way of the pointer is blocked: some readers could find the list inside this value, others take
                // this value for the only item.
                Some(list) if leaf() != JsonScalar::Null => list.unfit = list.unfit.or(Some(UNFIT_LIST)),
                None if ends && !is_kept => {
                    is_kept = true;
                    self.findings.body.leaves.push((pointer.clone(), leaf()));
                }
                None if !ends && leaf() != JsonScalar::Null => {
                    self.findings.body.blocked.push(pointer.clone());
                }
                _ => {}
            }
        }
    }

    fn record_integer(self, magnitude: u64, text: String) {
        let is_exact = magnitude <= self.findings.largest;
        self.record(|| match is_exact {
            true => JsonScalar::Integer(text.clone()),
            false => JsonScalar::Unfit(UNFIT_NUMBER),
        });
    }

    /// Marks the lists that pointers find at this value.
    fn enter_lists(&mut self) {
        for pointer in &self.asked {
            let step = pointer.steps().get(self.depth);
            let Some(list) = self.findings.list(pointer) else {
                if step.is_some_and(|step| step.index().is_none()) {
                    self.findings.body.blocked.push((*pointer).clone());
                }
                continue;
            };
            match step {
                Some(PointerStep::EveryItem) if !list.is_present => list.is_present = true,
                Some(PointerStep::EveryItem) => list.open -= 1,
                Some(step) if step.index().is_some() => {}
                Some(_) => list.unfit = list.unfit.or(Some(UNFIT_LIST)),
                // The pointer ends at this object or list, which `record` reports as its value.
                None => {}
            }
        }
    }

    fn descend(&mut self, pointers: Vec<&'p JsonPointer>) -> JsonVisitor<'_, 'p> {
        JsonVisitor { asked: pointers, depth: self.depth + 1, findings: self.findings }
    }

    /// The pointers whose next step is `name`; and whether the next step of some pointer is another spelling of `name`.
    fn pointers_for(&self, name: &str) -> (Vec<&'p JsonPointer>, bool) {
        let next = |pointer: &&&'p JsonPointer| {
            pointer.steps().get(self.depth).and_then(PointerStep::json_member_name)
        };
        let pointers = self.asked.iter().filter(|pointer| next(pointer) == Some(name)).copied().collect();
        let other = |next: &str| next != name && fold_name(next).eq(fold_name(name));
        (pointers, self.asked.iter().any(|pointer| next(&pointer).is_some_and(other)))
    }

    /// The pointers that lead to the item with this index.
    fn pointers_for_item(&self, index: usize) -> Vec<&'p JsonPointer> {
        let leads = |pointer: &&'p JsonPointer| match pointer.steps().get(self.depth) {
            Some(PointerStep::EveryItem) => true,
            // `007` and `+7` are names of members, and never the index of an item.
            Some(step) => step.index() == Some(index) && step.json_member_name() == Some(&*index.to_string()),
            None => false,
        };
        self.asked.iter().copied().filter(leads).collect()
    }

    /// The number of items of this value that the pointers name; `None` if they name none.
    fn pointed_item_limit(&self) -> Option<usize> {
        let next = |pointer: &&'p JsonPointer| pointer.steps().get(self.depth).and_then(PointerStep::index);
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

/// One item of a list. Each existing item needs a value for each of its pointers, so it is counted as open here.
struct JsonItemSeed<'w, 'p>(JsonVisitor<'w, 'p>);

impl<'de> DeserializeSeed<'de> for JsonItemSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        let Self(JsonVisitor { asked, depth, findings }) = self;
        let mut is_innermost = false;
        for pointer in &asked {
            if pointer.steps().get(depth - 1) == Some(&PointerStep::EveryItem)
                && let Some(list) = findings.list(pointer)
            {
                list.open += 1;
                is_innermost |= pointer.steps_to_items().len() == depth;
            }
        }
        let innermost: Vec<&JsonPointer> = match is_innermost && !findings.body.rows.is_empty() {
            true => asked.iter().copied().filter(|pointer| pointer.steps_to_items().len() == depth).collect(),
            false => Vec::new(),
        };
        JsonVisitor { asked, depth, findings: &mut *findings }.deserialize(json)?;
        let ended = |rows: &&mut JsonRows| rows.pointers.iter().all(|pointer| innermost.contains(&pointer));
        findings.body.rows.iter_mut().filter(ended).for_each(JsonRows::finish_item);
        Ok(())
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

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.record(|| JsonScalar::Boolean(value));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.record_integer(value, value.to_string());
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.record_integer(value.unsigned_abs(), value.to_string());
        Ok(())
    }

    /// The parser calls this for a fraction, an exponent, `-0`, and an integer of more than 64 bits.
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.record(|| JsonScalar::Unfit(UNFIT_NUMBER));
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.record(|| JsonScalar::Text(value.to_owned()));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        if self.depth == DEEPEST {
            return Err(self.fail(ParseBodyError::TooDeep));
        }
        let named = self.pointed_item_limit();
        self.enter_lists();
        for index in 0_usize.. {
            let pointers = self.pointers_for_item(index);
            if items.next_element_seed(JsonItemSeed(self.descend(pointers)))?.is_none() {
                break;
            }
            if named.is_some_and(|named| index >= named) {
                return Err(self.fail(ParseBodyError::TooLong));
            }
        }
        self.asked.retain(|pointer| pointer.steps().len() == self.depth);
        self.record(|| JsonScalar::Unfit(UNFIT_SHAPE));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        if self.depth == DEEPEST {
            return Err(self.fail(ParseBodyError::TooDeep));
        }
        // An object counts like a list here, because PHP makes the same array of `{"0": ...}` and of a list.
        let named = self.pointed_item_limit();
        for pointer in &self.asked {
            if pointer.steps().get(self.depth) == Some(&PointerStep::EveryItem)
                && let Some(list) = self.findings.list(pointer)
            {
                list.unfit = list.unfit.or(Some(UNFIT_LIST));
            }
        }
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
        self.asked.retain(|pointer| pointer.steps().len() == self.depth);
        self.record(|| JsonScalar::Unfit(UNFIT_SHAPE));
        Ok(())
    }
}

/// The name of a member. It is copied only if it contains escapes.
#[derive(PartialEq, Eq, Hash, Deserialize)]
struct JsonMemberName<'a>(#[serde(borrow)] Cow<'a, str>);

const UNFIT_NUMBER: &str = "is a number that not every reader of JSON takes for the same integer";
const UNFIT_BOOLEAN: &str = "is a boolean, which some readers take for 1 or 0, and others for a word";
const UNFIT_SHAPE: &str = "is an object or a list";
const UNFIT_ITEM: &str = "is missing in an item of its list";
const UNFIT_LIST: &str = "has something else than a list in the place of a list";

/// Folds a name. Two names are equal then if some reader takes them for the same: one that ignores case, or one that
/// removes blanks and control characters around a name.
pub(super) fn fold_name(name: &str) -> impl Iterator<Item = char> {
    let seen = name.trim_matches(|character: char| is_blank(character) || character.is_control());
    seen.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}
