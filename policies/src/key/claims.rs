//! The claims of a verified token that a plan reads.

use serde_json::Value;

use super::{
    json::{JsonScalar, JsonValues},
    pointer::{JsonPointer, PointerStep},
};

/// The values of some claims of one token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimValues {
    single: JsonValues,
    /// For each pointer with `*`, the texts to which it leads.
    lists: Vec<(JsonPointer, Vec<String>)>,
}

/// The error for a token whose claims two readers could read in different ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the claims can be read in more than one way")]
pub struct AmbiguousClaimsError;

/// The claim whose words each count as a value (RFC 8693, section 4.2).
const SCOPE: &str = "scope";

impl ClaimValues {
    /// Reads the claims of a token, and keeps the values of `pointers`. `payload`: the claims, whose signature was
    /// verified.
    ///
    /// # Errors
    /// Returns [`AmbiguousClaimsError`], by the rules for a JSON body from which keys are made.
    pub fn parse(payload: &[u8], pointers: &[JsonPointer]) -> Result<Self, AmbiguousClaimsError> {
        let single = pointers.iter().filter(|pointer| !pointer.is_list());
        let single = JsonValues::parse(payload, single, std::iter::empty(), JsonValues::LARGEST_IN_DOUBLE);
        let single = single.map_err(|_| AmbiguousClaimsError)?;
        let mut listed = pointers.iter().filter(|pointer| pointer.is_list()).peekable();
        if listed.peek().is_none() {
            return Ok(Self { single, lists: Vec::new() });
        }
        // `serde_json` keeps only the last of several members with the same name, but such a payload was rejected
        // above.
        let payload: Value = serde_json::from_slice(payload).map_err(|_| AmbiguousClaimsError)?;
        let lists = listed.map(|pointer| {
            let mut texts = Vec::new();
            collect_texts(&payload, pointer.steps(), &mut texts);
            (pointer.clone(), texts)
        });
        Ok(Self { single, lists: lists.collect() })
    }

    /// The value of a claim; `None` if the token does not have it.
    pub(super) fn value_at(&self, pointer: &JsonPointer) -> Option<&JsonScalar> {
        self.single.value_at(pointer)
    }

    /// The value of a claim as text; `None` if the token does not have it, or if it is neither a text nor an integer.
    pub fn text(&self, claim: &JsonPointer) -> Option<&str> {
        match self.value_at(claim)? {
            JsonScalar::Text(text) | JsonScalar::Integer(text) => Some(text),
            JsonScalar::Null | JsonScalar::Boolean(_) | JsonScalar::Unfit(_) => None,
        }
    }

    /// Whether some value of the claim is wanted. The values are the value itself, the words of `scope`, or the items
    /// of a list.
    pub(crate) fn any_text(&self, claim: &JsonPointer, is_wanted: impl Fn(&str) -> bool) -> bool {
        if claim.is_list() {
            let texts = self.lists.iter().find(|(known, _)| known == claim);
            return texts.is_some_and(|(_, texts)| texts.iter().any(|text| is_wanted(text)));
        }
        let Some(text) = self.text(claim) else { return false };
        let is_scope = matches!(claim.steps(), [PointerStep::Member(name)] if **name == *SCOPE);
        is_wanted(text) || is_scope && text.split(' ').any(|word| !word.is_empty() && is_wanted(word))
    }
}

/// Collects the texts to which a pointer leads. Items that are no texts are skipped.
fn collect_texts(value: &Value, steps: &[PointerStep], texts: &mut Vec<String>) {
    match (steps, value) {
        ([], Value::String(text)) => texts.push(text.clone()),
        ([PointerStep::Member(name), rest @ ..], Value::Object(members)) => {
            if let Some(member) = members.get(&**name) {
                collect_texts(member, rest, texts);
            }
        }
        ([PointerStep::EveryItem, rest @ ..], Value::Array(items)) => {
            items.iter().for_each(|item| collect_texts(item, rest, texts));
        }
        _ => {}
    }
}
