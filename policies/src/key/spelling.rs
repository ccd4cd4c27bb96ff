//! Compares a key that a user has entered with the keys that routes can give.

use super::{
    expand::{apply_filter, push_escaped},
    filter::TemplateValueFilter,
    resource::{PERMIT, ParseKeyError, ResourceKey},
    template::{KeyTemplate, KeyTemplatePart, TemplateValueSource, TemplateVariable},
};
use crate::{client_name::split_kind, path::decode_escape};

/// Checks that a job or a lease may lock this key. A key that no route can give is allowed, unless it has the form of a
/// route's key with values in a spelling that no request gives.
///
/// # Errors
/// Returns an error if a route gives another key for the values in `key`, or if the key looks like that of a permit.
pub(crate) fn check_spelling<'t>(
    key: &ResourceKey,
    templates: impl Iterator<Item = &'t KeyTemplate>,
) -> Result<(), ParseKeyError> {
    let mut other = None;
    for template in templates {
        match template.respell_key(key.as_str()) {
            Some(spelled) if spelled == key.as_str() => return Ok(()),
            spelled => other = other.or(spelled),
        }
    }
    match other {
        _ if key.as_str().contains(PERMIT) => Err(ParseKeyError::Permit),
        Some(written) if ResourceKey::parse(&written).is_ok() => Err(ParseKeyError::Misspelled { written }),
        _ => Ok(()),
    }
}

impl KeyTemplate {
    /// The key that the template gives for the values in `text`. `None` if `text` does not have the form of the
    /// template, or if no request can have such values. A value with a slash does not fit: `account/7/report` may be a
    /// key beside `account/7`.
    fn respell_key(&self, text: &str) -> Option<String> {
        let mut key = String::new();
        let mut rest = text;
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                KeyTemplatePart::Literal(literal) => {
                    rest = rest.strip_prefix(&**literal)?;
                    key.push_str(literal);
                }
                KeyTemplatePart::Variable(variable) => {
                    let length = match parts.peek() {
                        Some(KeyTemplatePart::Literal(behind)) if self.ends_with_literal(behind) => {
                            rest.strip_suffix(&**behind)?.len()
                        }
                        // The search skips the first character, because a value is not empty.
                        Some(KeyTemplatePart::Literal(behind)) => {
                            rest.char_indices().skip(1).find(|(at, _)| rest[*at..].starts_with(&**behind))?.0
                        }
                        Some(KeyTemplatePart::Variable(_)) | None => rest.len(),
                    };
                    let value;
                    (value, rest) = rest.split_at(length);
                    push_escaped(&variable.unescape_value(value)?, &mut key);
                }
            }
        }
        rest.is_empty().then_some(key)
    }

    fn ends_with_literal(&self, literal: &str) -> bool {
        matches!(self.parts.last(), Some(KeyTemplatePart::Literal(last)) if std::ptr::eq(&**last, literal))
    }
}

impl TemplateVariable {
    /// The value that a request has if `written` is in its key, as the template writes it.
    fn unescape_value(&self, written: &str) -> Option<String> {
        if written.contains('/') {
            return None;
        }
        let value = unescape(written)?;
        let value = if self.source == TemplateValueSource::Host { value.to_ascii_lowercase() } else { value };
        let (kind, value) = match self.source {
            TemplateValueSource::ClientName => split_kind(&value),
            _ => ("", &*value),
        };
        let value = self
            .filters
            .iter()
            .try_fold(value.to_owned(), |value, filter: &TemplateValueFilter| apply_filter(value, filter))
            .ok()?;
        (!value.is_empty() && !value.chars().any(char::is_control)).then(|| kind.to_owned() + &value)
    }
}

/// Decodes the escapes; `None` if the bytes are not UTF-8, so that no request has this value.
fn unescape(written: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, behind) =
            decode_escape(rest.strip_prefix(b"%").unwrap_or_default()).unwrap_or((*first, after));
        bytes.push(byte);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check_key_text(key: &str, templates: &[&str]) -> Result<(), ParseKeyError> {
        let templates: Vec<_> = templates.iter().map(|one| KeyTemplate::parse(one).expect(one)).collect();
        check_spelling(&ResourceKey::parse(key).expect("a key"), templates.iter())
    }

    /// A misspelled key in the form of a route is corrected to the spelling of requests.
    #[test]
    fn misspelled_key_gets_correction() {
        const ACCOUNT: &[&str] = &["account/{path.id}"];
        for (key, templates, right) in [
            ("account/x@y", ACCOUNT, "account/x%40y"),
            ("account/a+b:c", ACCOUNT, "account/a%2Bb%3Ac"),
            ("account/x@y", &["other", "{path.a}/{path.b}"], "account/x%40y"),
            ("account/007", &["account/{path.id | int}"], "account/7"),
            ("till/cn%3A007", &["till/{client.name | int}"], "till/cn%3A7"),
            ("account/A-7", &["account/{path.id | lower}"], "account/a-7"),
            ("account/%20a", &["account/{query.id | trim}"], "account/a"),
            ("Shop.Example/a", &["{host}/a"], "shop.example/a"),
            ("a/x@y@z:b", &["a/{path.x}@{path.y}:b"], "a/x@y%40z:b"),
        ] {
            let written = right.to_owned();
            assert_eq!(check_key_text(key, templates), Err(ParseKeyError::Misspelled { written }), "{key}");
            assert_eq!(check_key_text(right, templates), Ok(()), "{right}");
        }
    }

    /// A key that some route can give, or that has the form of no route, is accepted.
    #[test]
    fn producible_or_unrelated_key_is_accepted() {
        for (key, templates) in [
            ("account/x%40y", &["account/{path.id}"][..]),
            ("account/x@y", &["account/{path.id}", "account/{path.a}@{path.b}"]),
            ("account/A", &["account/{path.id | lower}", "account/{path.id}"]),
            ("account/7/report", &["account/{path.id}"]),
            ("account/", &["account/{path.id}"]),
            ("account/x@y", &["account/{path.id | int}"]),
            ("account/%FF@", &["account/{path.id}"]),
            ("job/nightly@3", &["account/{path.id}"]),
            ("one#lock", &["one#lock"]),
            ("till/cn%3Atill-7", &["till/{client.name | match('till-[0-9]')}"]),
            ("till/cn%3A7", &["till/{client.name | int}"]),
            ("job@1", &[]),
        ] {
            assert_eq!(check_key_text(key, templates), Ok(()), "{key} {templates:?}");
        }
        for permit in ["job/nightly#1", "account/7#2", "one#lock"] {
            assert_eq!(check_key_text(permit, &["account/{path.id}"]), Err(ParseKeyError::Permit));
        }
        assert_eq!(
            check_key_text("account/7%232", &["account/{path.id}"]),
            Ok(()),
            "a value with this character"
        );
    }

    proptest! {
        /// A suggested spelling is accepted, and so is every key that a request can have.
        #[test]
        fn corrected_spelling_is_accepted(a in "[ -~\u{e9}]{1,12}", b in "[ -~]{1,12}") {
            for form in ["a/{path.a}", "{path.a}/z", "{path.a}@{path.b | lower}:x", "q{path.a}x@x{path.b}"] {
                let template = KeyTemplate::parse(form).expect(form);
                let mut one = String::new();
                let mut other = String::new();
                push_escaped(&a, &mut one);
                push_escaped(&b.to_ascii_lowercase(), &mut other);
                let given = form.replace("{path.a}", &one).replace("{path.b | lower}", &other);
                let given = given.replace("{path.b}", &other);
                prop_assert_eq!(template.respell_key(&given), Some(given.clone()));
                let typed = form.replace("{path.a}", &a).replace("{path.b | lower}", &b).replace("{path.b}", &b);
                if let Some(spelled) = template.respell_key(&typed) {
                    prop_assert_eq!(template.respell_key(&spelled), Some(spelled.clone()));
                }
            }
        }
    }
}
