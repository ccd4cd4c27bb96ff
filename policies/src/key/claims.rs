//! The claims of a verified token, as far as a plan reads them.

use serde_json::Value;

use super::{
    json::{JsonScalar, JsonValues},
    pointer::{JsonPointer, PointerStep},
};

/// The values of some claims of one token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimValues {
    single: JsonValues,
    /// The texts to which each pointer with `*` leads.
    lists: Vec<(JsonPointer, Vec<String>)>,
}

/// Two readers could take other claims from the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the claims can be read in more than one way")]
pub struct AmbiguousClaimsError;

/// The claim whose words are values by themselves (RFC 8693, 4.2).
const SCOPE: &str = "scope";

impl ClaimValues {
    /// `payload`: the claims of a token whose signature was verified. Only the values of `pointers` are kept.
    ///
    /// # Errors
    /// [`AmbiguousClaimsError`], by the same rules as for a body of which keys are made.
    pub fn parse(payload: &[u8], pointers: &[JsonPointer]) -> Result<Self, AmbiguousClaimsError> {
        let single = pointers.iter().filter(|pointer| !pointer.is_list());
        let single = JsonValues::parse(payload, single, std::iter::empty(), JsonValues::LARGEST_IN_DOUBLE);
        let single = single.map_err(|_| AmbiguousClaimsError)?;
        let mut listed = pointers.iter().filter(|pointer| pointer.is_list()).peekable();
        if listed.peek().is_none() {
            return Ok(Self { single, lists: Vec::new() });
        }
        // No two members have one name, as was found above.
        let payload: Value = serde_json::from_slice(payload).map_err(|_| AmbiguousClaimsError)?;
        let lists = listed.map(|pointer| {
            let mut texts = Vec::new();
            collect_texts(&payload, pointer.steps(), &mut texts);
            (pointer.clone(), texts)
        });
        Ok(Self { single, lists: lists.collect() })
    }

    /// `None` where the token has no such claim.
    pub(super) fn value_at(&self, pointer: &JsonPointer) -> Option<&JsonScalar> {
        self.single.value_at(pointer)
    }

    /// The value of a claim as text; `None` where the token has no such claim, or one that is no text and no integer.
    pub fn text(&self, claim: &JsonPointer) -> Option<&str> {
        match self.value_at(claim)? {
            JsonScalar::Text(text) | JsonScalar::Integer(text) => Some(text),
            JsonScalar::Null | JsonScalar::Boolean(_) | JsonScalar::Unfit(_) => None,
        }
    }

    /// True if some value of the claim is wanted: the value, a word of `scope`, or an item of a list.
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

/// The texts at the end of a pointer. Items that are no texts are passed over.
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
