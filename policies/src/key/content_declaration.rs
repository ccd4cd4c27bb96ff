//! Checks the content type and the content coding of a body. A value can only be taken from JSON or a form in UTF-8,
//! without a content coding.
//!
//! The service reads a body as the request declares it. With another declaration, such as a compressed body or another
//! character set, the same bytes would have other values for the service than for the key.

use super::{error::ParseBodyError, form_values::FormEncoding, values::HeaderLookup};
use crate::header_name::is_http_token;

/// The declarations of a request about its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentDeclaration<'a> {
    /// The `Content-Type` field.
    pub kind: HeaderLookup<'a>,
    /// The `Content-Encoding` field.
    pub coding: HeaderLookup<'a>,
}

impl<'a> ContentDeclaration<'a> {
    /// The content type of a body without a content coding; empty if there is none, or more than one.
    fn single_content_type(&self) -> Result<&'a str, ParseBodyError> {
        if self.coding != HeaderLookup::Absent {
            return Err(ParseBodyError::Encoded);
        }
        match self.kind {
            HeaderLookup::One(kind) => Ok(std::str::from_utf8(kind).unwrap_or_default()),
            // Without a content type, or with several, the body counts as undeclared: some servers read it as a form.
            HeaderLookup::Absent | HeaderLookup::Several => Ok(""),
            HeaderLookup::Respelled => Err(ParseBodyError::DeclaredTwice),
        }
    }

    pub(crate) fn require_json(&self) -> Result<(), ParseBodyError> {
        let mut parts = self.single_content_type()?.split(';');
        let named = parts.next().and_then(|named| named.trim().split_once('/'));
        let is_json = named.is_some_and(|(kind, subtype)| {
            let subtype = subtype.to_ascii_lowercase();
            is_http_token(kind)
                && is_http_token(&subtype)
                && (subtype == "json" || subtype.ends_with("+json"))
        });
        if !is_json {
            return Err(ParseBodyError::NotDeclared);
        }
        check_parameters(parts, ParseBodyError::NotDeclared)
    }

    pub(crate) fn require_form(&self) -> Result<FormEncoding<'a>, ParseBodyError> {
        let kind = self.single_content_type()?;
        let mut parts = kind.split(';');
        let named = parts.next().unwrap_or_default().trim();
        if named.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return check_parameters(parts, ParseBodyError::NoForm).map(|()| FormEncoding::Urlencoded);
        }
        if !named.eq_ignore_ascii_case("multipart/form-data") {
            return Err(ParseBodyError::NoForm);
        }
        // The boundary is checked later, when the body is split into parts.
        let is_boundary = |part: &&str| {
            let name = part.split('=').next().unwrap_or_default();
            name.trim().eq_ignore_ascii_case("boundary")
        };
        check_parameters(parts.filter(|part| !is_boundary(part)), ParseBodyError::NoForm)?;
        Ok(FormEncoding::Multipart(kind))
    }
}

/// Checks the parameters of a content type. `malformed`: the error for a parameter that could be taken for another one.
fn check_parameters<'p>(
    parts: impl Iterator<Item = &'p str>,
    malformed: ParseBodyError,
) -> Result<(), ParseBodyError> {
    parts.map(str::trim).filter(|part| !part.is_empty()).try_for_each(|part| check_parameter(part, malformed))
}

/// Checks one parameter. A parameter other than the character set may have any value, if every reader takes it for the
/// same parameter.
fn check_parameter(part: &str, malformed: ParseBodyError) -> Result<(), ParseBodyError> {
    let (name, value) = part.split_once('=').ok_or(malformed)?;
    let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    let name = name.to_ascii_lowercase();
    let text = quoted.unwrap_or(value).to_ascii_lowercase();
    let may_be_text = quoted.is_some() && !name.starts_with("charset");
    if !is_http_token(&name) || !(is_http_token(&text) || may_be_text && is_safe_quoted_text(&text)) {
        return Err(malformed);
    }
    match name.strip_prefix("charset") {
        Some("") if text == "utf-8" || text == "utf8" => Ok(()),
        Some(_) => Err(ParseBodyError::Charset),
        // Some readers search the whole field for `charset=`.
        None if text.contains("charset") => Err(ParseBodyError::Charset),
        None => Ok(()),
    }
}

/// Whether a quoted text has no character at which a reader that ignores quotes would end the value.
fn is_safe_quoted_text(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !br#""\;,"#.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn require_json_for(kind: &str) -> Result<(), ParseBodyError> {
        ContentDeclaration { kind: HeaderLookup::One(kind.as_bytes()), coding: HeaderLookup::Absent }
            .require_json()
    }

    /// A content type of JSON in UTF-8 is accepted in every common spelling.
    #[test]
    fn utf8_json_type_is_accepted() {
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
            assert_eq!(require_json_for(kind), Ok(()), "{kind}");
        }
    }

    /// Another content type or charset is rejected.
    #[test]
    fn other_content_type_is_rejected() {
        for (kind, bad) in [
            ("", ParseBodyError::NotDeclared),
            ("json", ParseBodyError::NotDeclared),
            ("application/x-www-form-urlencoded", ParseBodyError::NotDeclared),
            ("application/jsonp", ParseBodyError::NotDeclared),
            ("text/plain; a=application/json", ParseBodyError::NotDeclared),
            ("application/json, text/plain", ParseBodyError::NotDeclared),
            ("application/json; a=b, text/plain", ParseBodyError::NotDeclared),
            ("application/json; a=\"x;charset=utf-7\"", ParseBodyError::NotDeclared),
            ("application/json; charset", ParseBodyError::NotDeclared),
            ("application/json; charset=utf-7", ParseBodyError::Charset),
            ("application/json; charset=utf-16", ParseBodyError::Charset),
            ("application/json; charset=utf-8; charset=utf-7", ParseBodyError::Charset),
            ("application/json; charset*=utf-8", ParseBodyError::Charset),
            ("application/json; charset=\"\"", ParseBodyError::NotDeclared),
            ("application/json; charset=\"utf-8 utf-7\"", ParseBodyError::NotDeclared),
            ("application/json; charset=utf88", ParseBodyError::Charset),
            ("application/json; charsets=utf-8", ParseBodyError::Charset),
            ("application/json; charset*0=\"a b\"", ParseBodyError::NotDeclared),
            ("application/json; a=https://a.example/", ParseBodyError::NotDeclared),
            ("application/json; a=\"x\\\"y\"", ParseBodyError::NotDeclared),
            ("application/json; a=\"x\\y\"", ParseBodyError::NotDeclared),
            ("application/json; a=\"x, text/plain\"", ParseBodyError::NotDeclared),
            ("application/json; a=\"x\ty\"", ParseBodyError::NotDeclared),
            ("application/json; a=\"é\"", ParseBodyError::NotDeclared),
            ("application/json; a=\"", ParseBodyError::NotDeclared),
            ("application/json; a=\"x Charset=utf-7\"", ParseBodyError::Charset),
        ] {
            assert_eq!(require_json_for(kind), Err(bad), "{kind}");
        }
        let json = HeaderLookup::One(b"application/json");
        for (kind, coding, bad) in [
            (HeaderLookup::Absent, HeaderLookup::Absent, ParseBodyError::NotDeclared),
            (HeaderLookup::Several, HeaderLookup::Absent, ParseBodyError::NotDeclared),
            (HeaderLookup::Respelled, HeaderLookup::Absent, ParseBodyError::DeclaredTwice),
            (HeaderLookup::One(b"application/json\xff"), HeaderLookup::Absent, ParseBodyError::NotDeclared),
            (json, HeaderLookup::One(b"gzip"), ParseBodyError::Encoded),
            (json, HeaderLookup::One(b"identity"), ParseBodyError::Encoded),
            (json, HeaderLookup::Several, ParseBodyError::Encoded),
            (json, HeaderLookup::Respelled, ParseBodyError::Encoded),
        ] {
            assert_eq!(ContentDeclaration { kind, coding }.require_json(), Err(bad));
        }
    }

    /// A form is accepted only if its content type is declared once, as a form, and in UTF-8.
    #[test]
    fn only_utf8_form_type_is_accepted() {
        let form = |kind: &'static str| {
            ContentDeclaration { kind: HeaderLookup::One(kind.as_bytes()), coding: HeaderLookup::Absent }
                .require_form()
        };
        for kind in [
            "application/x-www-form-urlencoded",
            "Application/X-WWW-Form-Urlencoded; charset=UTF-8",
            "application/x-www-form-urlencoded;charset=\"utf8\";",
        ] {
            assert_eq!(form(kind), Ok(FormEncoding::Urlencoded), "{kind}");
        }
        for kind in [
            "multipart/form-data; boundary=b",
            "Multipart/Form-Data; charset=utf-8; Boundary=\"a b=\"",
            "multipart/form-data",
        ] {
            assert_eq!(form(kind), Ok(FormEncoding::Multipart(kind)), "{kind}");
        }
        for (kind, bad) in [
            ("", ParseBodyError::NoForm),
            ("application/json", ParseBodyError::NoForm),
            ("multipart/mixed; boundary=b", ParseBodyError::NoForm),
            ("text/plain; a=application/x-www-form-urlencoded", ParseBodyError::NoForm),
            ("application/x-www-form-urlencoded, text/plain", ParseBodyError::NoForm),
            ("application/x-www-form-urlencoded; a=b, text/plain", ParseBodyError::NoForm),
            ("application/x-www-form-urlencoded; charset=iso-8859-1", ParseBodyError::Charset),
            ("application/x-www-form-urlencoded; charset*=utf-8", ParseBodyError::Charset),
            ("multipart/form-data; charset=utf-16; boundary=b", ParseBodyError::Charset),
            ("multipart/form-data; x; boundary=b", ParseBodyError::NoForm),
        ] {
            assert_eq!(form(kind), Err(bad), "{kind}");
        }
        let kind = HeaderLookup::One(b"application/x-www-form-urlencoded");
        for (kind, coding, bad) in [
            (HeaderLookup::Absent, HeaderLookup::Absent, ParseBodyError::NoForm),
            (HeaderLookup::Several, HeaderLookup::Absent, ParseBodyError::NoForm),
            (HeaderLookup::Respelled, HeaderLookup::Absent, ParseBodyError::DeclaredTwice),
            (kind, HeaderLookup::One(b"gzip"), ParseBodyError::Encoded),
        ] {
            assert_eq!(ContentDeclaration { kind, coding }.require_form(), Err(bad));
        }
    }
}
