//! A key template such as `order/{path.order_id | lower}`, and its parts.

use std::{fmt, ops::Range};

use super::{
    filter::TemplateValueFilter,
    glob::TemplateGlob,
    pointer::JsonPointer,
    resource::{PERMIT, ResourceKey},
};
use crate::{
    client_name::CertificateNameKind,
    path::{PathTemplate, is_unreserved},
};

/// A parsed key template. Different filtered values never give the same key: see
/// [`KeyTemplateErrorKind::NotSeparated`](super::KeyTemplateErrorKind::NotSeparated).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    pub(super) parts: Vec<KeyTemplatePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyTemplatePart {
    Literal(Box<str>),
    Variable(TemplateVariable),
}

/// One variable, `{...}`, of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateVariable {
    pub source: TemplateValueSource,
    /// The filters, in the order in which they are applied to the value.
    pub filters: Vec<TemplateValueFilter>,
    /// The place of the source in the text of the template, for carets in messages.
    pub span: ByteSpan,
}

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateValueSource {
    /// A variable of the route's path template.
    Path(Box<str>),
    /// A query parameter with this decoded name.
    Query(Box<str>),
    /// Every query parameter with this decoded name; each of them gives a value.
    QueryList(Box<str>),
    /// A form field in the body with this decoded name.
    Form(Box<str>),
    /// Every form field with this decoded name; each of them gives a value.
    FormList(Box<str>),
    /// A header field; the name is in lower case.
    Header(Box<str>),
    /// Every element of a header field that is a list (RFC 9110, section 5.6.1); the name is in lower case.
    HeaderList(Box<str>),
    /// The host without its port.
    Host,
    /// A string or an integer in a JSON body, or one in each item of a list there.
    Body(JsonPointer),
    /// The name in the client's certificate, which the listener has verified. The settings of the listener choose the
    /// kind of name.
    ClientName,
    /// A string or an integer among the claims of the verified bearer token.
    Jwt(JsonPointer),
}

/// A part of a template's text, in bytes.
pub type ByteSpan = Range<usize>;

/// The parts of a published template: its literals, and `None` for each variable.
fn split_published_template(by_place: &str) -> impl Iterator<Item = Option<&str>> {
    by_place.split_inclusive('}').flat_map(|piece| match piece.split_once('{') {
        Some((literal, variable)) if variable.ends_with('}') => [Some(literal), None].into_iter().take(2),
        _ => [Some(piece), None].into_iter().take(1),
    })
}

impl KeyTemplate {
    /// Whether a key can be short enough: false if it is too long even with the shortest values.
    pub(crate) fn can_fit_key_length(&self) -> bool {
        let shortest = self.parts.iter().map(|part| match part {
            KeyTemplatePart::Literal(literal) => literal,
            KeyTemplatePart::Variable(_) => "x",
        });
        ResourceKey::new(shortest.collect()).is_some()
    }

    /// The template with each path variable replaced by its position in `path`. Two templates that give the same key
    /// for each path then have the same text, whatever the names of their variables. `client_name`: the kind of name
    /// that a client has.
    pub(crate) fn with_positions(
        &self,
        path: &PathTemplate,
        client_name: Option<CertificateNameKind>,
    ) -> String {
        let parts = self.parts.iter().map(|part| match part {
            KeyTemplatePart::Literal(literal) => literal.to_string(),
            KeyTemplatePart::Variable(variable) => {
                let filters: String =
                    variable.filters.iter().map(|filter| format!(" | {}", filter.published())).collect();
                match &variable.source {
                    TemplateValueSource::Path(name) => {
                        format!("{{{}{filters}}}", path.variable_position(name))
                    }
                    TemplateValueSource::ClientName => {
                        let kind = client_name.map_or("", CertificateNameKind::published);
                        format!("{{client.name of {kind}{filters}}}")
                    }
                    source => format!("{{{source}{filters}}}"),
                }
            }
        });
        parts.collect()
    }

    /// The literals of the template, with `{}` for each variable. Two templates of the same shape give the same key for
    /// the same values.
    pub(crate) fn shape(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            KeyTemplatePart::Literal(literal) => literal,
            KeyTemplatePart::Variable(_) => "{}",
        });
        parts.collect()
    }

    /// A glob of all keys that the template can give, and some more.
    pub(crate) fn glob(&self) -> TemplateGlob {
        let literal = |part: &KeyTemplatePart| match part {
            KeyTemplatePart::Literal(literal) => Some(literal.to_string()),
            KeyTemplatePart::Variable(_) => None,
        };
        let of_a_value =
            |character: char| u8::try_from(character).is_ok_and(|byte| is_unreserved(byte) || byte == b'%');
        TemplateGlob::from_parts(self.parts.iter().map(literal), of_a_value)
    }

    /// A glob of the keys of all permits of this template's keys.
    pub(crate) fn permit_glob(&self) -> TemplateGlob {
        self.glob().with_number(PERMIT)
    }

    /// A glob of the keys of a published template, whose variables are named by their positions.
    pub(crate) fn published_glob(by_place: &str) -> TemplateGlob {
        let of_a_value =
            |character: char| u8::try_from(character).is_ok_and(|byte| is_unreserved(byte) || byte == b'%');
        TemplateGlob::from_parts(
            split_published_template(by_place).map(|literal| literal.map(str::to_owned)),
            of_a_value,
        )
    }

    /// The [shape](Self::shape) of a published template.
    pub(crate) fn published_shape(by_place: &str) -> String {
        split_published_template(by_place).map(|literal| literal.unwrap_or("{}")).collect()
    }

    /// Whether the template may give this key. Also true for some keys that it cannot give, because only the text
    /// before the first value and after the last value is compared.
    pub fn may_produce(&self, key: &ResourceKey) -> bool {
        let key = key.as_str();
        let literal = |part: Option<&KeyTemplatePart>| match part {
            Some(KeyTemplatePart::Literal(literal)) => literal.to_string(),
            _ => String::new(),
        };
        if self.variables().next().is_none() {
            return key == literal(self.parts.first());
        }
        let before = literal(self.parts.first());
        let behind = literal(self.parts.last());
        key.len() >= before.len() + behind.len() && key.starts_with(&before) && key.ends_with(&behind)
    }

    /// The variables, from left to right.
    pub fn variables(&self) -> impl Iterator<Item = &TemplateVariable> {
        self.parts.iter().filter_map(|part| match part {
            KeyTemplatePart::Literal(_) => None,
            KeyTemplatePart::Variable(variable) => Some(variable),
        })
    }

    /// The variables that have a value for each item of a list, from left to right. A request has a key for each item.
    /// Several such variables take their values from the same item: see [`TemplateValueSource::is_of_same_list`].
    pub fn lists(&self) -> impl Iterator<Item = &TemplateVariable> {
        self.variables().filter(|variable| variable.source.is_list())
    }

    /// Whether a request has a key for each item of a list.
    pub fn has_list(&self) -> bool {
        self.lists().next().is_some()
    }

    /// The pointers by which several variables take their values from one item, each once; empty if at most one
    /// variable takes a value from an item.
    pub(crate) fn joined_pointers(&self) -> Vec<&JsonPointer> {
        if self.lists().nth(1).is_none() {
            return Vec::new();
        }
        let mut joined: Vec<&JsonPointer> = Vec::new();
        for pointer in self.lists().filter_map(TemplateVariable::pointer) {
            if !joined.contains(&pointer) {
                joined.push(pointer);
            }
        }
        joined
    }

    /// The claims that the key takes from a token.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &JsonPointer> {
        self.variables().filter_map(TemplateVariable::claim)
    }

    /// The pointers of the values that the key takes from a JSON body.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = &JsonPointer> {
        self.variables().filter_map(TemplateVariable::pointer)
    }

    /// The names of the fields that the key takes from a form in the body.
    pub(crate) fn form_fields(&self) -> impl Iterator<Item = &str> {
        self.variables().filter_map(TemplateVariable::form_field)
    }

    /// Whether the key depends on the body.
    pub(crate) fn reads_body(&self) -> bool {
        self.pointers().next().is_some() || self.form_fields().next().is_some()
    }
}

impl TemplateVariable {
    /// The claim, if the value is one.
    pub fn claim(&self) -> Option<&JsonPointer> {
        match &self.source {
            TemplateValueSource::Jwt(claim) => Some(claim),
            _ => None,
        }
    }

    /// The pointer, if the value is in a JSON body.
    pub fn pointer(&self) -> Option<&JsonPointer> {
        match &self.source {
            TemplateValueSource::Body(pointer) => Some(pointer),
            _ => None,
        }
    }

    /// The name of the field, if the value is in a form.
    pub(crate) fn form_field(&self) -> Option<&str> {
        match &self.source {
            TemplateValueSource::Form(name) | TemplateValueSource::FormList(name) => Some(name),
            _ => None,
        }
    }
}

impl TemplateValueSource {
    /// The words for sources, before the dot or colon.
    pub const WORDS: [&str; 8] = ["path", "query", "header", "host", "body", "form", "client", "jwt"];

    /// Whether the gateway has verified the value.
    pub(crate) fn is_verified(&self) -> bool {
        matches!(self, Self::ClientName | Self::Jwt(_))
    }

    /// Whether both values are taken from the items of the same list in a JSON body.
    pub(crate) fn is_of_same_list(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Body(one), Self::Body(other)) => {
                one.is_list() && one.steps_to_items() == other.steps_to_items()
            }
            _ => false,
        }
    }

    /// Whether a request may have several values.
    pub fn is_list(&self) -> bool {
        match self {
            Self::QueryList(_) | Self::FormList(_) | Self::HeaderList(_) => true,
            Self::Body(pointer) => pointer.is_list(),
            Self::Path(_)
            | Self::Query(_)
            | Self::Form(_)
            | Self::Header(_)
            | Self::Host
            | Self::ClientName
            | Self::Jwt(_) => false,
        }
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            KeyTemplatePart::Literal(literal) => f.write_str(literal),
            KeyTemplatePart::Variable(variable) => {
                write!(f, "{{{}", variable.source)?;
                variable.filters.iter().try_for_each(|filter| write!(f, " | {filter}"))?;
                f.write_str("}")
            }
        })
    }
}

impl fmt::Display for TemplateValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(name) => write!(f, "path.{name}"),
            Self::Query(name) => write!(f, "query.{name}"),
            Self::QueryList(name) => write!(f, "query.{name}*"),
            Self::Form(name) => write!(f, "form.{name}"),
            Self::FormList(name) => write!(f, "form.{name}*"),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::HeaderList(name) => write!(f, "header.{name}*"),
            Self::Host => f.write_str("host"),
            Self::Body(pointer) => write!(f, "body:{pointer}"),
            Self::ClientName => f.write_str("client.name"),
            Self::Jwt(pointer) => write!(f, "jwt:{pointer}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_has_one_written_form() {
        for (text, written) in [
            ("order/{path.order_id}", "order/{path.order_id}"),
            ("{host}/{ header.X-Account|trim|lower }", "{host}/{header.x-account | trim | lower}"),
            ("{client.name|lower}/{path.a}", "{client.name | lower}/{path.a}"),
            (
                "{jwt:/sub}/{jwt:/https:~1~1a.example~1tenant|lower}",
                "{jwt:/sub}/{jwt:/https:~1~1a.example~1tenant | lower}",
            ),
            ("{query.account-id | int}", "{query.account-id | int}"),
            (
                "{path.a|match( '[a-z|]{1,40}' )|without('.json','.x}')}/{path.b|uuid}",
                "{path.a | match('[a-z|]{1,40}') | without('.json', '.x}')}/{path.b | uuid}",
            ),
            ("{path.a | nfc | casefold}", "{path.a | nfc | casefold}"),
            ("{body:/o'clock}/{path.a | lower}", "{body:/o'clock}/{path.a | lower}"),
            ("the-one-lock", "the-one-lock"),
            ("a{path.a}-x:y-{path.b}z", "a{path.a}-x:y-{path.b}z"),
            ("{body:/a.b/0/c:d e~1f|int}/{body:/}", "{body:/a.b/0/c:d e~1f | int}/{body:/}"),
            ("sku/{body:/items/*/sku|lower}", "sku/{body:/items/*/sku | lower}"),
            ("sku/{query.sku*}/{header.X-Shop}", "sku/{query.sku*}/{header.x-shop}"),
            ("sku/{header.X-Skus*}", "sku/{header.x-skus*}"),
            ("sku/{query.sku[]*}", "sku/{query.sku[]*}"),
            ("{form.account[id]|int}/{form.*}", "{form.account[id] | int}/{form.*}"),
            ("sku/{form.sku*}", "sku/{form.sku*}"),
        ] {
            assert_eq!(KeyTemplate::parse(text).expect(text).to_string(), written);
        }
    }

    /// The variables of a published template are recognised, whatever their filters contain.
    #[test]
    fn published_template_has_plain_variables() {
        let path = PathTemplate::parse("/v1/{id}/{b}").expect("a path");
        let template =
            KeyTemplate::parse("a/{path.id | match('[a-z]{1,4}')}:{path.b | casefold}").expect("a key");
        let published = template.with_positions(&path, None);
        assert!(published.starts_with("a/{1 | match('[a-z]%7B1,4%7D')}:{2 | casefold "), "{published}");
        assert_eq!(KeyTemplate::published_shape(&published), "a/{}:{}");
        assert_eq!(template.shape(), "a/{}:{}");
    }

    /// Gateways that use different kinds of client names publish different templates of the same shape.
    #[test]
    fn published_client_name_has_its_kind() {
        let path = PathTemplate::parse("/v1/{id}").expect("a path");
        let template = KeyTemplate::parse("a/{client.name | lower}/{path.id}").expect("a key");
        let published = |kind| template.with_positions(&path, Some(kind));
        assert_eq!(published(CertificateNameKind::Uri), "a/{client.name of uri | lower}/{1}");
        assert_eq!(published(CertificateNameKind::CommonName), "a/{client.name of cn: | lower}/{1}");
        assert_eq!(KeyTemplate::published_shape(&published(CertificateNameKind::Dns)), template.shape());
    }

    /// `may_produce` is true for every key that the template gives.
    #[test]
    fn template_may_produce_own_keys() {
        for (template, key, may) in [
            ("account/{path.id}", "account/7", true),
            ("account/{path.id}", "konto/7", false),
            ("a/{path.id}/{path.b}/z", "a/1/2/z", true),
            ("a/{path.id}/z", "a/z", false),
            ("{host}", "anything", true),
            ("one-lock", "one-lock", true),
            ("one-lock", "one-lock/7", false),
        ] {
            let template = KeyTemplate::parse(template).expect(template);
            let key = ResourceKey::parse(key);
            assert_eq!(template.may_produce(&key.expect("a key")), may, "{template}");
        }
    }

    /// The span of a variable is the place of its source.
    #[test]
    fn variable_has_span_of_source() {
        let span =
            |text: &str| KeyTemplate::parse(text).expect(text).variables().next().expect("one").span.clone();
        assert_eq!(span("a/{path.b}"), 3..9);
        assert_eq!(span("a/{ path.b | lower}"), 4..10);
    }
}
