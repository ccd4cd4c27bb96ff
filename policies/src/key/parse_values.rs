//! Finds the values from which a key was made. Different values never give the same key, so the values are unique.

use super::{
    expand::push_escaped,
    resource::ResourceKey,
    template::{KeyTemplate, KeyTemplatePart},
};
use crate::path::{decode_escape, is_unreserved};

impl KeyTemplate {
    /// The filtered values, from left to right; `None` if this template cannot make the key.
    pub(crate) fn parse_values(&self, key: &ResourceKey) -> Option<Vec<String>> {
        let mut rest = key.as_str();
        let mut values = Vec::new();
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                KeyTemplatePart::Literal(literal) => rest = rest.strip_prefix(&**literal)?,
                KeyTemplatePart::Variable(_) => {
                    let (value, behind) = rest.split_at(value_end(rest, parts.peek().copied())?);
                    values.push(unescape(value)?);
                    rest = behind;
                }
            }
        }
        rest.is_empty().then_some(values)
    }
}

/// The end of the value at the beginning of `rest`. The literal after a value contains a character that no value has.
fn value_end(rest: &str, next: Option<&KeyTemplatePart>) -> Option<usize> {
    let is_of_a_value = |byte: u8| is_unreserved(byte) || byte == b'%';
    match next {
        None => Some(rest.len()),
        Some(KeyTemplatePart::Variable(_)) => None,
        Some(KeyTemplatePart::Literal(literal)) => {
            match literal.bytes().position(|byte| !is_of_a_value(byte)) {
                Some(before) => rest.bytes().position(|byte| !is_of_a_value(byte))?.checked_sub(before),
                // The last literal of the template.
                None => rest.len().checked_sub(literal.len()),
            }
        }
    }
}

fn unescape(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match first {
            b'%' => decode_escape(after)?,
            byte if is_unreserved(*byte) => (*byte, after),
            _ => return None,
        };
        bytes.push(byte);
        rest = after;
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.is_empty())?;
    let mut again = String::new();
    push_escaped(&text, &mut again);
    // A value that is escaped in another way was not made by this template.
    (again == value).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::RequestValues;

    struct TestPathParams(String, String);

    impl RequestValues for TestPathParams {
        fn path(&self, name: &str) -> Option<&str> {
            Some(if name == "a" { &self.0 } else { &self.1 })
        }
    }

    #[test]
    fn key_of_other_template_has_no_values() {
        let values = |template: &str, key: &str| {
            let template = KeyTemplate::parse(template).expect(template);
            template.parse_values(&ResourceKey::parse(key).expect(key))
        };
        assert_eq!(values("order/{path.a}", "order/7"), Some(vec!["7".into()]));
        assert_eq!(values("one-lock", "one-lock"), Some(vec![]));
        for (template, key) in [
            ("order/{path.a}", "orders/7"),
            ("order/{path.a}", "order/"),
            ("order/{path.a}", "order/7/8"),
            ("order/{path.a}/x", "order/7"),
            ("order/{path.a}", "order/%zz"),
            ("order/{path.a}", "order/%2f"),
            ("order/{path.a}", "order/%41"),
            ("one-lock", "one-lock-2"),
        ] {
            assert_eq!(values(template, key), None, "{template} {key}");
        }
    }

    proptest! {
        /// A key yields the values from which it was made.
        #[test]
        fn key_yields_values_of_template(
            a in "[a-z0-9%/:._~ \u{e9}-]{1,12}",
            b in "[a-z0-9%/:._~ \u{e9}-]{1,12}",
            template in prop::sample::select(vec![
                "{path.a}/{path.b}", "o/{path.a}-x:y-{path.b}", "{path.a}.x@{path.b}-end", "a{path.a},{path.b}/",
            ]),
        ) {
            let template = KeyTemplate::parse(template).expect("a template");
            let key = template.expand(&TestPathParams(a.clone(), b.clone())).expect("a key");
            prop_assert_eq!(template.parse_values(&key), Some(vec![a, b]));
        }
    }
}
