//! A request as the user writes it, with placeholders for the key and for a new name.

use bytes::Bytes;
use hyper::{
    Method,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};

/// A request with placeholders.
#[derive(Debug, Clone)]
pub struct RequestTemplate {
    method: Method,
    target: String,
    fields: Vec<(HeaderName, String)>,
    body: String,
}

/// The values for the placeholders.
#[derive(Debug, Clone, Default)]
pub struct RequestTemplateValues<'a> {
    pub key: &'a str,
    pub other: &'a str,
    pub operation: &'a str,
}

/// A request whose placeholders are filled.
#[derive(Debug, Clone)]
pub struct RenderedRequest {
    pub method: Method,
    /// Path and query.
    pub target: String,
    pub fields: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRequestTemplateError {
    #[error(
        "`{0}` is no request: write `'POST /v1/accounts/{{key}}/debit'`; places are `{{key}}`, `{{other}}` and `{{operation}}`"
    )]
    Line(String),
    #[error("`{0}` is no header field: write `'name: value'`")]
    Field(String),
    #[error(
        "`{0}` names no key: write `{{key}}` where the service looks for it, in the path, a field or the body"
    )]
    NoKey(String),
}

const KEY: &str = "{key}";
const OTHER: &str = "{other}";
const OPERATION: &str = "{operation}";

impl RequestTemplateValues<'_> {
    pub fn fill(&self, text: &str) -> String {
        text.replace(KEY, self.key).replace(OTHER, self.other).replace(OPERATION, self.operation)
    }
}

impl RequestTemplate {
    /// A template of a request. `line`: method and target. `fields`: each `name: value`.
    ///
    /// # Errors
    /// Returns an error if such a request cannot be sent.
    pub fn new(line: &str, fields: &[String], body: &str) -> Result<Self, ParseRequestTemplateError> {
        let no_line = || ParseRequestTemplateError::Line(line.to_owned());
        let [method, target] = *line.split_ascii_whitespace().collect::<Vec<_>>() else {
            return Err(no_line());
        };
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| no_line())?;
        let example = RequestTemplateValues { key: "k", other: "o", operation: "n" }.fill(target);
        if !target.starts_with('/') || example.contains(['{', '}']) || example.parse::<hyper::Uri>().is_err()
        {
            return Err(no_line());
        }
        let fields = fields
            .iter()
            .map(|field| read(field).ok_or_else(|| ParseRequestTemplateError::Field(field.clone())));
        let mut fields = fields.collect::<Result<Vec<_>, _>>()?;
        if !body.is_empty() && !fields.iter().any(|(name, _)| *name == CONTENT_TYPE) {
            fields.push((CONTENT_TYPE, "application/json".to_owned()));
        }
        Ok(Self { method, target: target.to_owned(), fields, body: body.to_owned() })
    }

    /// Checks that the request names a key.
    ///
    /// # Errors
    /// Returns an error if no placeholder names the key, because every request would concern the same resource
    /// then.
    pub fn with_key(self) -> Result<Self, ParseRequestTemplateError> {
        if self.mentions(KEY) { Ok(self) } else { Err(ParseRequestTemplateError::NoKey(self.to_string())) }
    }

    pub fn names_two_keys(&self) -> bool {
        self.mentions(OTHER)
    }

    pub fn names_operations(&self) -> bool {
        self.mentions(OPERATION)
    }

    pub fn has_body(&self) -> bool {
        !self.body.is_empty()
    }

    fn mentions(&self, place: &str) -> bool {
        let fields = self.fields.iter().map(|(_, value)| value.as_str());
        [self.target.as_str(), &self.body].into_iter().chain(fields).any(|text| text.contains(place))
    }

    pub fn render(&self, places: &RequestTemplateValues<'_>) -> RenderedRequest {
        let value = |text: &str| {
            HeaderValue::from_bytes(places.fill(text).as_bytes()).expect("looked at when it was read")
        };
        RenderedRequest {
            method: self.method.clone(),
            target: places.fill(&self.target),
            fields: self.fields.iter().map(|(name, text)| (name.clone(), value(text))).collect(),
            body: places.fill(&self.body).into(),
        }
    }
}

impl std::fmt::Display for RequestTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.target)
    }
}

fn read(field: &str) -> Option<(HeaderName, String)> {
    let (name, value) = field.split_once(':')?;
    let value = value.trim_matches([' ', '\t']);
    HeaderValue::from_bytes(value.as_bytes()).ok()?;
    Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each placeholder is filled, and other braces stay.
    #[test]
    fn placeholders_are_filled_other_braces_kept() {
        let fields = ["x-account: {key}".to_owned()];
        let body = r#"{"operation":"{operation}","to":"{other}"}"#;
        let template =
            RequestTemplate::new("POST /v1/{key}/debit?a={operation}", &fields, body).expect("good");
        let filled = template.render(&RequestTemplateValues { key: "k1", other: "k2", operation: "op" });
        assert_eq!(filled.target, "/v1/k1/debit?a=op");
        assert_eq!(filled.body, r#"{"operation":"op","to":"k2"}"#);
        assert_eq!(filled.fields[0].1, "k1");
        assert_eq!(filled.fields[1], (CONTENT_TYPE, HeaderValue::from_static("application/json")));
    }

    /// A template that could not be sent is rejected, and so is one without a key where it needs one.
    #[test]
    fn unsendable_template_is_rejected() {
        for line in ["", "POST", "POST v1", "POST /a b", "P@ST /a", "POST /{id}/{key}", "POST /a\u{7}"] {
            assert!(RequestTemplate::new(line, &[], "").is_err(), "{line}");
        }
        assert!(RequestTemplate::new("GET /", &["no colon".to_owned()], "").is_err());
        assert!(RequestTemplate::new("GET /", &["a: \u{7}".to_owned()], "").is_err());
        let same = RequestTemplate::new("POST /v1/pay", &[], "{}").and_then(RequestTemplate::with_key);
        assert!(matches!(same, Err(ParseRequestTemplateError::NoKey(_))), "{same:?}");
    }
}
