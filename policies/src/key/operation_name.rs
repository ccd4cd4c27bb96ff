//! Makes the name of an operation from the values of one request. The client chooses these values, and the name may
//! be longer than the name of a ZooKeeper node.

use std::borrow::Cow;

use super::{
    error::{ExtractKeyError, ExtractValueError},
    expand::{apply_filter, push_escaped},
    template::{KeyTemplate, KeyTemplatePart, TemplateValueSource, TemplateVariable},
    values::RequestValues,
};
use crate::header_name::is_spelling_of;

/// The most characters of one value. Clients use random numbers or a few words; the draft of `Idempotency-Key` sets
/// no limit.
const LONGEST: usize = 255;

/// The header field whose value is a structured field: a quoted string, although most clients leave the quotes out
/// (draft-ietf-httpapi-idempotency-key-header, section 2.1).
const QUOTED: &str = "idempotency-key";

impl KeyTemplate {
    /// Makes the name of an operation. Unlike [`KeyTemplate::expand`] it refuses an empty value as invalid and not as
    /// missing, because the client has sent the field.
    pub(crate) fn expand_operation_name(
        &self,
        values: &dyn RequestValues,
    ) -> Result<String, ExtractKeyError> {
        let mut name = String::new();
        for part in &self.parts {
            match part {
                KeyTemplatePart::Literal(literal) => name.push_str(literal),
                KeyTemplatePart::Variable(variable) => {
                    let value = variable.operation_name_value(values).map_err(|bad| variable.error(bad))?;
                    push_escaped(&value, &mut name);
                }
            }
        }
        Ok(name)
    }
}

impl TemplateVariable {
    fn operation_name_value(&self, values: &dyn RequestValues) -> Result<String, ExtractValueError> {
        let value = self.source.value(values)?;
        let value = match &self.source {
            TemplateValueSource::Header(field) if is_spelling_of(field, QUOTED) => {
                unquote(&value)?.into_owned()
            }
            _ => value,
        };
        let value =
            if value.is_empty() { Ok(value) } else { self.filters.iter().try_fold(value, apply_filter) }?;
        match value.chars().count() {
            0 => Err(ExtractValueError::Invalid("is empty")),
            1..=LONGEST => Ok(self.source.restore_client_name_kind(value, values)),
            _ => Err(ExtractValueError::Invalid("is longer than 255 characters")),
        }
    }
}

/// The text of a quoted string (RFC 8941, section 3.3.3). A value without an opening quote is returned unchanged, so
/// that both forms give the same name.
fn unquote(value: &str) -> Result<Cow<'_, str>, ExtractValueError> {
    let value = value.trim_matches(' ');
    let Some(quoted) = value.strip_prefix('"') else { return Ok(value.into()) };
    let mut text = String::new();
    let mut chars = quoted.chars();
    loop {
        match chars.next() {
            Some('\\') => match chars.next() {
                Some(escaped @ ('"' | '\\')) => text.push(escaped),
                _ => return Err(ExtractValueError::Invalid("has a backslash that escapes nothing")),
            },
            // Only the end of the value may follow the closing quote. A parameter would be ignored, and a second
            // string would make the value a list.
            Some('"') if chars.as_str().is_empty() => return Ok(text.into()),
            Some('"') => return Err(ExtractValueError::Invalid("goes on after its closing quote")),
            Some(char @ ' '..='~') => text.push(char),
            Some(_) => return Err(ExtractValueError::Invalid("is quoted, and not ASCII")),
            None => return Err(ExtractValueError::Invalid("has no closing quote")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::{HeaderLookup, error::RESPELLED};

    struct FixedRequestValues<'a>(&'a [u8]);

    impl RequestValues for FixedRequestValues<'_> {
        fn path(&self, _: &str) -> Option<&str> {
            Some("7")
        }
        fn query(&self) -> Option<&str> {
            Some("empty=&spaced=+")
        }
        fn header<'a>(&'a self, name: &str) -> HeaderLookup<'a> {
            match name {
                "absent" => HeaderLookup::Absent,
                "several" => HeaderLookup::Several,
                "respelled" => HeaderLookup::Respelled,
                _ => HeaderLookup::One(self.0),
            }
        }
        fn request_host(&self) -> Option<&str> {
            Some("a.example")
        }
    }

    fn name(template: &str, field: impl AsRef<[u8]>) -> Result<String, ExtractKeyError> {
        KeyTemplate::parse(template)
            .expect("a template")
            .expand_operation_name(&FixedRequestValues(field.as_ref()))
    }

    /// A header field in another spelling is an invalid name, and not a missing one.
    #[test]
    fn respelled_header_is_not_missing() {
        let refused = name("{header.respelled}", "a");
        assert!(matches!(&refused, Err(ExtractKeyError::Invalid { why: RESPELLED, .. })), "{refused:?}");
    }

    fn idempotency_key(field: impl AsRef<[u8]>) -> Result<String, ExtractKeyError> {
        name("{header.idempotency-key}", field)
    }

    /// A value of `Idempotency-Key` in quotes and the same value without quotes give the same name.
    #[test]
    fn quoted_key_equals_bare_key() {
        for (quoted, bare) in [
            (r#""8e03978e-40d5""#, "8e03978e-40d5"),
            (r#""a b""#, "a b"),
            (r#""a\\b\"c""#, r#"a\b"c"#),
            (r#" "a" "#, " a"),
        ] {
            assert!(idempotency_key(bare).is_ok(), "{bare}");
            assert_eq!(idempotency_key(quoted), idempotency_key(bare), "{quoted}");
        }
        assert_eq!(name("{header.idempotency_key}", r#""a""#).as_deref(), Ok("a"));
        // Only `Idempotency-Key` is a structured field; other fields keep their quotes.
        assert_eq!(name("{header.x-request-id}", r#""a""#).as_deref(), Ok("%22a%22"));
    }

    /// A value with malformed quotes is refused as a name.
    #[test]
    fn malformed_quotes_are_no_name() {
        for field in
            [r#"""#, r#""a"#, r#""a"b"#, r#""a";p=1"#, r#""a", "b""#, r#""a\b""#, r#""a\"#, "\"\u{e9}\""]
        {
            assert!(matches!(idempotency_key(field), Err(ExtractKeyError::Invalid { .. })), "{field}");
        }
    }

    /// An empty value is an invalid name, and not a missing one.
    #[test]
    fn empty_value_is_not_missing() {
        let missing = |found| matches!(found, Err(ExtractKeyError::Missing { .. }));
        let invalid = |found| matches!(found, Err(ExtractKeyError::Invalid { .. }));
        for field in ["", " ", r#""""#, "a\u{1}", "a\tb"] {
            assert!(invalid(idempotency_key(field)), "{field:?}");
        }
        assert!(invalid(idempotency_key(b"\xff")));
        for template in ["{query.empty}", "{query.empty | int}", "{query.spaced | trim}", "{header.several}"]
        {
            assert!(invalid(name(template, "a")), "{template}");
        }
        for template in ["{header.absent}", "{query.absent | int}", "{path.id}/{header.absent}", "{body:/id}"]
        {
            assert!(missing(name(template, "a")), "{template}");
        }
    }

    /// The length of each value in a name is limited, and the length of the name is not.
    #[test]
    fn length_limit_applies_to_each_value() {
        assert!(idempotency_key("\u{e9}".repeat(255)).is_ok());
        assert!(matches!(idempotency_key("a".repeat(256)), Err(ExtractKeyError::Invalid { .. })));
        assert!(idempotency_key(format!("\"{}\"", "a".repeat(255))).is_ok());
        let two = name("{path.id}/{header.a}:{header.b}", "/".repeat(255)).expect("a name");
        assert_eq!(two.len(), "7/:".len() + 2 * 255 * "%2F".len());
    }

    proptest! {
        #[test]
        fn any_field_has_printable_name_or_none(field: Vec<u8>) {
            if let Ok(name) = idempotency_key(&field) {
                prop_assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }

        /// Two quoted values give the same name only if they are equal without quotes.
        #[test]
        fn quotes_keep_names_distinct(one in "[a\"\\\\ ]{1,4}", other in "[a\"\\\\ ]{1,4}") {
            let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
            let a = idempotency_key(quoted(&one));
            let b = idempotency_key(quoted(&other));
            prop_assert!(a.is_ok());
            prop_assert_eq!(a == b, one == other);
        }
    }
}
