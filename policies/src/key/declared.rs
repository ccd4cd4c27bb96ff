//! Checks what a request declares about its body. A key can be taken from JSON in UTF-8 only, without a content
//! coding.
//!
//! The service reads a body as the request declares it. Declared as a form, as compressed, or in another character
//! set, the same bytes would have other values for the service than in the key.

use super::{json::BadBody, values::Field};
use crate::spelling::is_token;

/// What a request declares about its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said<'a> {
    /// `Content-Type`.
    pub kind: Field<'a>,
    /// `Content-Encoding`.
    pub coding: Field<'a>,
}

impl Said<'_> {
    pub(crate) fn is_json(&self) -> Result<(), BadBody> {
        if self.coding != Field::Absent {
            return Err(BadBody::Encoded);
        }
        let kind = match self.kind {
            Field::One(kind) => std::str::from_utf8(kind).unwrap_or_default(),
            // Some servers read a body without a `Content-Type` as a form.
            Field::Absent | Field::Several => "",
            Field::Respelled => return Err(BadBody::SaidOtherwise),
        };
        let mut parts = kind.split(';');
        let named = parts.next().and_then(|named| named.trim().split_once('/'));
        let is_json = named.is_some_and(|(kind, subtype)| {
            let subtype = subtype.to_ascii_lowercase();
            is_token(kind) && is_token(&subtype) && (subtype == "json" || subtype.ends_with("+json"))
        });
        if !is_json {
            return Err(BadBody::NotSaid);
        }
        parts.map(str::trim).filter(|part| !part.is_empty()).try_for_each(parameter)
    }
}

/// A parameter that is no character set may have any value, if every reader takes it for the same parameter.
fn parameter(part: &str) -> Result<(), BadBody> {
    let (name, value) = part.split_once('=').ok_or(BadBody::NotSaid)?;
    let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    let name = name.to_ascii_lowercase();
    let text = quoted.unwrap_or(value).to_ascii_lowercase();
    let may_be_text = quoted.is_some() && !name.starts_with("charset");
    if !is_token(&name) || !(is_token(&text) || may_be_text && is_text(&text)) {
        return Err(BadBody::NotSaid);
    }
    match name.strip_prefix("charset") {
        Some("") if text == "utf-8" || text == "utf8" => Ok(()),
        Some(_) => Err(BadBody::Charset),
        // Some readers look for `charset=` anywhere in the field.
        None if text.contains("charset") => Err(BadBody::Charset),
        None => Ok(()),
    }
}

/// Characters that may stand between quotes: none at which a reader without quotes would end the value.
fn is_text(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !br#""\;,"#.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(kind: &str) -> Result<(), BadBody> {
        Said { kind: Field::One(kind.as_bytes()), coding: Field::Absent }.is_json()
    }

    #[test]
    fn json_in_utf_8_is_what_it_says() {
        for kind in [
            "application/json",
            "Application/JSON",
            "text/json",
            "application/vnd.pay+json",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
            "application/json; profile=pay.v1; Charset=utf-8;",
            " application/json ; charset=utf-8",
            "application/json; charset=utf8",
            "application/json; charset=\"UTF8\"",
            "application/json; charset=Utf-8",
            "application/vnd.api+json; ext=\"https://jsonapi.org/ext/atomic\"",
            "application/vnd.api+json; ext=\"https://jsonapi.org/ext/atomic https://a.example/b\"; charset=utf-8",
            "application/ld+json; profile=\"https://www.w3.org/ns/activitystreams\"",
            "application/json; profile=\"\"",
        ] {
            assert_eq!(said(kind), Ok(()), "{kind}");
        }
    }

    #[test]
    fn anything_else_is_not() {
        for (kind, bad) in [
            ("", BadBody::NotSaid),
            ("json", BadBody::NotSaid),
            ("application/x-www-form-urlencoded", BadBody::NotSaid),
            ("application/jsonp", BadBody::NotSaid),
            ("text/plain; a=application/json", BadBody::NotSaid),
            ("application/json, text/plain", BadBody::NotSaid),
            ("application/json; a=b, text/plain", BadBody::NotSaid),
            ("application/json; a=\"x;charset=utf-7\"", BadBody::NotSaid),
            ("application/json; charset", BadBody::NotSaid),
            ("application/json; charset=utf-7", BadBody::Charset),
            ("application/json; charset=utf-16", BadBody::Charset),
            ("application/json; charset=utf-8; charset=utf-7", BadBody::Charset),
            ("application/json; charset*=utf-8", BadBody::Charset),
            ("application/json; charset=\"\"", BadBody::NotSaid),
            ("application/json; charset=\"utf-8 utf-7\"", BadBody::NotSaid),
            ("application/json; charset=utf88", BadBody::Charset),
            ("application/json; charsets=utf-8", BadBody::Charset),
            ("application/json; charset*0=\"a b\"", BadBody::NotSaid),
            ("application/json; a=https://a.example/", BadBody::NotSaid),
            ("application/json; a=\"x\\\"y\"", BadBody::NotSaid),
            ("application/json; a=\"x\\y\"", BadBody::NotSaid),
            ("application/json; a=\"x, text/plain\"", BadBody::NotSaid),
            ("application/json; a=\"x\ty\"", BadBody::NotSaid),
            ("application/json; a=\"é\"", BadBody::NotSaid),
            ("application/json; a=\"", BadBody::NotSaid),
            ("application/json; a=\"x Charset=utf-7\"", BadBody::Charset),
        ] {
            assert_eq!(said(kind), Err(bad), "{kind}");
        }
        let json = Field::One(b"application/json");
        for (kind, coding, bad) in [
            (Field::Absent, Field::Absent, BadBody::NotSaid),
            (Field::Several, Field::Absent, BadBody::NotSaid),
            (Field::Respelled, Field::Absent, BadBody::SaidOtherwise),
            (Field::One(b"application/json\xff"), Field::Absent, BadBody::NotSaid),
            (json, Field::One(b"gzip"), BadBody::Encoded),
            (json, Field::One(b"identity"), BadBody::Encoded),
            (json, Field::Several, BadBody::Encoded),
            (json, Field::Respelled, BadBody::Encoded),
        ] {
            assert_eq!(Said { kind, coding }.is_json(), Err(bad));
        }
    }
}
