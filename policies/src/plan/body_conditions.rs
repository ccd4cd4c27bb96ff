//! The conditions of a route on the body of its requests.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::{ExtractKeyError, JsonPointer, JsonScalar, RouteConditionBody, has_unprintable, is_blank};

/// A condition on one member of a JSON body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyCondition {
    /// The pointer to the member. It leads to no item of a list.
    pub pointer: JsonPointer,
    /// The values that meet the condition: at least one, and all of the same type.
    pub values: Vec<ConditionValue>,
}

/// A value as JSON has it. Values of two types are never equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ConditionValue {
    Boolean(bool),
    /// One that a double holds exactly.
    Integer(i64),
    Text(String),
}

const OTHER_TYPE: &str =
    "has another type than the values of a route, and some servers make one of the other";
const BLOCKED: &str =
    "is looked for behind a value that is neither an object nor `null`, in which some servers find it";
const UNPRINTABLE: &str = "has a control character or a byte order mark in it, which some servers leave out, and at which others end it";
const SIMILAR: &str = "is a value of a route but for case or spaces, and some servers take both for the same";

impl ConditionValue {
    fn from_scalar(scalar: &JsonScalar) -> Option<Self> {
        match scalar {
            JsonScalar::Text(text) => Some(Self::Text(text.clone())),
            JsonScalar::Integer(digits) => digits.parse().ok().map(Self::Integer),
            JsonScalar::Boolean(value) => Some(Self::Boolean(*value)),
            JsonScalar::Null | JsonScalar::Unfit(_) => None,
        }
    }

    pub(crate) fn has_same_type(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Whether two different texts are equal for a reader that ignores case and surrounding spaces.
    fn equals_ignoring_case_and_spaces(&self, other: &Self) -> bool {
        let (Self::Text(one), Self::Text(other)) = (self, other) else { return false };
        let folded = |text: &str| -> String {
            text.trim_matches(is_blank)
                .chars()
                .flat_map(char::to_uppercase)
                .flat_map(char::to_lowercase)
                .collect()
        };
        folded(one) == folded(other)
    }
}

/// Writes the value as JSON.
impl fmt::Display for ConditionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Text(text) => write!(f, "{}", serde_json::Value::from(text.as_str())),
        }
    }
}

impl BodyCondition {
    /// Whether the body meets the condition. A member that is missing or `null` does not.
    ///
    /// # Errors
    /// Returns an error if only some readers could take the value for one of the condition's values.
    pub(super) fn matches(&self, body: &RouteConditionBody) -> Result<bool, ExtractKeyError> {
        let invalid = |why| Err(ExtractKeyError::Invalid { variable: format!("body:{}", self.pointer), why });
        let found = match body.value_at(&self.pointer) {
            None if body.is_blocked(&self.pointer) => return invalid(BLOCKED),
            None | Some(JsonScalar::Null) => return Ok(false),
            Some(JsonScalar::Text(text)) if has_unprintable(text) => return invalid(UNPRINTABLE),
            Some(scalar) => ConditionValue::from_scalar(scalar),
        };
        match found {
            Some(found) if self.values.contains(&found) => Ok(true),
            Some(found) if !self.values.iter().all(|value| value.has_same_type(&found)) => {
                invalid(OTHER_TYPE)
            }
            Some(found) if self.values.iter().any(|value| value.equals_ignoring_case_and_spaces(&found)) => {
                invalid(SIMILAR)
            }
            Some(_) => Ok(false),
            None => invalid(OTHER_TYPE),
        }
    }

    /// Whether this condition holds for every body that meets `other`.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.pointer == other.pointer && other.values.iter().all(|value| self.values.contains(value))
    }

    /// Whether no body can meet both conditions.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        self.pointer == other.pointer && !other.values.iter().any(|value| self.values.contains(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ParseBodyError;

    fn condition(pointer: &str, values: &[ConditionValue]) -> BodyCondition {
        BodyCondition { pointer: JsonPointer::parse(pointer).expect(pointer), values: values.to_vec() }
    }

    fn texts(texts: &[&str]) -> Vec<ConditionValue> {
        texts.iter().map(|text| ConditionValue::Text((*text).to_owned())).collect()
    }

    fn parse(condition: &BodyCondition, body: &str) -> Result<RouteConditionBody, ParseBodyError> {
        RouteConditionBody::parse(body.as_bytes(), None, [&condition.pointer].into_iter(), false)
    }

    /// Whether the body meets the condition; `None` if the body is refused.
    fn matches(condition: &BodyCondition, body: &str) -> Option<bool> {
        condition.matches(&parse(condition, body).expect(body)).ok()
    }

    /// A member decides only if every reader takes its value for one of the condition, or none does.
    #[test]
    fn member_decides_only_where_readers_agree() {
        let kind = condition("/kind", &texts(&["sale", "refund"]));
        for (body, outcome) in [
            (r#"{"kind": "sale"}"#, Some(true)),
            (r#"{"kind": "\u0072efund", "x": [1.5]}"#, Some(true)),
            (r#"{"kind": "other"}"#, Some(false)),
            (r#"{"kind": null}"#, Some(false)),
            ("{}", Some(false)),
            (r#"{"x": {"kind": "sale"}}"#, Some(false)),
            (r#"{"kind": "Sale"}"#, None),
            (r#"{"kind": " sale"}"#, None),
            (r#"{"kind": 1}"#, None),
            (r#"{"kind": true}"#, None),
            (r#"{"kind": ["sale"]}"#, None),
            (r#"{"kind": {"kind": "sale"}}"#, None),
            (r#"{"kind": "\ufeffsale"}"#, None),
            (r#"{"kind": "sale\u00a0"}"#, None),
            (r#"{"kind": "sale\u0000"}"#, None),
            (r#"{"kind": "sale\u0000x"}"#, None),
            (r#"{"kind": "other\u0008"}"#, None),
            (r#"{"kind": "o\ufeffther"}"#, None),
        ] {
            assert_eq!(matches(&kind, body), outcome, "{body}");
        }
        let inner = condition("/order/kind", &texts(&["sale"]));
        for (body, outcome) in [
            (r#"{"order": {"kind": "sale"}}"#, Some(true)),
            (r#"{"order": {}}"#, Some(false)),
            (r#"{"order": null}"#, Some(false)),
            (r#"{"order": [{"kind": "sale"}]}"#, None),
            (r#"{"order": []}"#, None),
            (r#"{"order": "{\"kind\": \"sale\"}"}"#, None),
            (r#"{"order": 7}"#, None),
            (r#"{"order": true}"#, None),
        ] {
            assert_eq!(matches(&inner, body), outcome, "{body}");
        }
        let number = condition("/n", &[ConditionValue::Integer(7)]);
        for (body, outcome) in [
            (r#"{"n": 7}"#, Some(true)),
            (r#"{"n": 8}"#, Some(false)),
            (r#"{"n": "7"}"#, None),
            (r#"{"n": 7.0}"#, None),
            (r#"{"n": 9007199254740993}"#, None),
        ] {
            assert_eq!(matches(&number, body), outcome, "{body}");
        }
        let dry = condition("/dry", &[ConditionValue::Boolean(true)]);
        for (body, outcome) in [
            (r#"{"dry": true}"#, Some(true)),
            (r#"{"dry": false}"#, Some(false)),
            (r#"{"dry": "true"}"#, None),
        ] {
            assert_eq!(matches(&dry, body), outcome, "{body}");
        }
    }

    /// A body that readers could read in different ways is refused, and neither meets nor fails a condition.
    #[test]
    fn ambiguous_body_is_refused() {
        let kind = condition("/kind", &texts(&["sale"]));
        for (body, bad) in [
            ("", ParseBodyError::NotJson),
            ("kind=sale", ParseBodyError::NotJson),
            (r#"{"kind": "sale", "kind": "x"}"#, ParseBodyError::DuplicateMember),
            (r#"{"kind": "sale", "Kind": "x"}"#, ParseBodyError::Respelled),
            (r#"{"kind": "sale", "kind\u0000": "x"}"#, ParseBodyError::NulInName),
            (r#"{"kind": "sale", "\ufeffkind": "x"}"#, ParseBodyError::Respelled),
            (r#"{"kind": "sale", "kind\t": "x"}"#, ParseBodyError::Respelled),
            ("\u{feff}{\"kind\": \"sale\"}", ParseBodyError::NotJson),
            (r#"[{"kind": "sale"}]"#, ParseBodyError::NotObject),
            ("\n []", ParseBodyError::NotObject),
            ("7", ParseBodyError::NotObject),
        ] {
            assert_eq!(parse(&kind, body), Err(bad), "{body}");
        }
    }
}
