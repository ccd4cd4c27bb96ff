//! Makes the path of a lock that is shared with other programs, from the values of a key: `/app/locks/{path.id}`.
//!
//! The other programs decide the names of the nodes. So no value is escaped, and a value that cannot be part of a
//! node's name is refused.

use std::fmt;

use super::{
    error::{ExtractKeyError, ExtractValueError},
    expand,
    filter::TemplateValueFilter,
    glob::TemplateGlob,
    parse::{self, KeyTemplateErrorKind, ParseKeyTemplateError},
    resource::ResourceKey,
    template::{ByteSpan, KeyTemplate, KeyTemplatePart, TemplateValueSource, TemplateVariable},
};
use crate::client_name::split_kind;

/// A template for a lock path. It takes all its values from the key of its fence, so that each key has one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockPathTemplate {
    parts: Vec<LockPathTemplatePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LockPathTemplatePart {
    Literal(Box<str>),
    Value {
        /// The index of the key's variable.
        of: usize,
        /// The filters to apply after those of the key, in this order.
        filters: Vec<TemplateValueFilter>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseLockPathError {
    pub span: ByteSpan,
    pub why: LockPathErrorKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockPathErrorKind {
    /// A variable of the template is malformed.
    Template(KeyTemplateErrorKind),
    /// ZooKeeper accepts no such path, with the reason.
    Path(&'static str),
    /// The key does not contain this value, so one key could have two paths.
    NotInKey(String),
}

impl LockPathTemplate {
    /// The longest path in bytes. When a session ends, all its paths are in one transaction, whose size is limited.
    pub const MOST: usize = 512;

    /// Reads a template. `key`: the key of the same fence.
    pub fn parse(text: &str, key: &KeyTemplate) -> Result<Self, ParseLockPathError> {
        let of = |bad: ParseKeyTemplateError| ParseLockPathError {
            span: bad.span,
            why: LockPathErrorKind::Template(bad.why),
        };
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut at = 0;
        while at < text.len() {
            if text[at..].starts_with('{') {
                let (part, end) = parse::parse_variable(text, at).map_err(of)?;
                if let KeyTemplatePart::Variable(variable) = part {
                    parts.push(resolve_variable(key, &variable)?);
                }
                plain.push('x');
                at = end;
                continue;
            }
            let end = text[at..].find('{').map_or(text.len(), |length| at + length);
            if let Some(brace) = text[at..end].find('}') {
                let start = at + brace;
                let why = KeyTemplateErrorKind::Syntax("a `}` without its `{`");
                return Err(ParseLockPathError {
                    span: start..start + 1,
                    why: LockPathErrorKind::Template(why),
                });
            }
            plain.push_str(&text[at..end]);
            parts.push(LockPathTemplatePart::Literal(text[at..end].into()));
            at = end;
        }
        match znode_path_fault(&plain) {
            Some(why) => Err(ParseLockPathError { span: 0..text.len(), why: LockPathErrorKind::Path(why) }),
            None => Ok(Self { parts }),
        }
    }

    /// Makes the path for `key`, which `template` has made.
    ///
    /// # Errors
    /// Returns an error if the values of the key cannot form a path.
    pub fn expand(&self, template: &KeyTemplate, key: &ResourceKey) -> Result<String, ExtractKeyError> {
        let values = template.parse_values(key);
        let variables = template.variables().collect::<Vec<_>>();
        let values = values.ok_or(ExtractKeyError::LockPath("is not known of a key of another template"))?;
        let mut path = String::new();
        for part in &self.parts {
            match part {
                LockPathTemplatePart::Literal(literal) => path.push_str(literal),
                LockPathTemplatePart::Value { of, filters } => {
                    let variable = variables[*of];
                    // Other programs that share this lock know a client by the name in its certificate, without the
                    // prefix of the kind.
                    let value = match variable.source {
                        TemplateValueSource::ClientName => split_kind(&values[*of]).1.to_owned(),
                        _ => values[*of].clone(),
                    };
                    let value =
                        filters.iter().try_fold(value, expand::apply_filter).and_then(check_znode_name);
                    path.push_str(&value.map_err(|bad| variable.error(bad))?);
                }
            }
        }
        match znode_path_fault(&path) {
            Some(why) => Err(ExtractKeyError::LockPath(why)),
            None => Ok(path),
        }
    }

    /// A glob of all paths that the template can give, and some more.
    pub(crate) fn glob(&self) -> TemplateGlob {
        let literal = |part: &LockPathTemplatePart| match part {
            LockPathTemplatePart::Literal(literal) => Some(literal.to_string()),
            LockPathTemplatePart::Value { .. } => None,
        };
        TemplateGlob::from_parts(self.parts.iter().map(literal), |character| character != '/')
    }
}

impl fmt::Display for LockPathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            LockPathTemplatePart::Literal(literal) => f.write_str(literal),
            LockPathTemplatePart::Value { of, filters } => {
                write!(f, "{{{of}")?;
                filters.iter().try_for_each(|filter| write!(f, " | {filter}"))?;
                f.write_str("}")
            }
        })
    }
}

/// Finds the variable of the key that a lock path names. Filters that the key does not have are applied to the value
/// in the key.
fn resolve_variable(
    key: &KeyTemplate,
    variable: &TemplateVariable,
) -> Result<LockPathTemplatePart, ParseLockPathError> {
    let known = key
        .variables()
        .position(|known| known.source == variable.source && variable.filters.starts_with(&known.filters));
    let Some(of) = known else {
        let name = variable.source.to_string();
        return Err(ParseLockPathError {
            span: variable.span.clone(),
            why: LockPathErrorKind::NotInKey(name),
        });
    };
    let before = key.variables().nth(of).map_or(0, |known| known.filters.len());
    Ok(LockPathTemplatePart::Value { of, filters: variable.filters[before..].to_vec() })
}

/// Returns a value that can be one segment of a path without an escape.
fn check_znode_name(value: String) -> Result<String, ExtractValueError> {
    if value.is_empty() {
        return Err(ExtractValueError::Missing);
    }
    if value.contains('/') {
        return Err(ExtractValueError::Invalid("has a `/`, and names one node"));
    }
    if !value.chars().all(is_znode_name_char) {
        return Err(ExtractValueError::Invalid("has a character that no node of ZooKeeper has in its name"));
    }
    Ok(value)
}

/// Whether ZooKeeper allows a character in a node name, by `PathUtils.validatePath` (3.8 and 3.9). ZooKeeper checks
/// UTF-16 units and refuses surrogates.
fn is_znode_name_char(character: char) -> bool {
    !matches!(character, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The reason for which ZooKeeper would refuse a path.
fn znode_path_fault(path: &str) -> Option<&'static str> {
    let Some(tail) = path.strip_prefix('/') else { return Some("does not begin with `/`") };
    if tail.is_empty() {
        return Some("is the top of the tree");
    }
    if path.len() > LockPathTemplate::MOST {
        return Some("is longer than 512 bytes");
    }
    if tail.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Some("has an empty or a dot segment, or a slash at its end");
    }
    if !path.chars().all(is_znode_name_char) {
        return Some("has a character that no node of ZooKeeper has in its name");
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> KeyTemplate {
        KeyTemplate::parse(text).expect(text)
    }

    fn path(template: &str, of: &str, made: &str) -> Result<String, ExtractKeyError> {
        let key = key(of);
        let path = LockPathTemplate::parse(template, &key).expect(template);
        path.expand(&key, &ResourceKey::parse(made).expect(made))
    }

    /// A lock path contains the common name without `cn:`, because other programs know the client by it.
    #[test]
    fn lock_path_has_name_without_kind() {
        let of = "till/{client.name}/{path.id}";
        let path = |made| path("/app/{client.name | lower}-{path.id}", of, made);
        assert_eq!(path("till/cn%3ATill%207/cn%3Ax"), Ok("/app/till 7-cn:x".into()));
        assert_eq!(path("till/till-7.example/1"), Ok("/app/till-7.example-1".into()));
    }

    /// A lock path contains the unescaped values of the key.
    #[test]
    fn lock_path_has_unescaped_values() {
        let of = "order/{path.shop}/{path.id}";
        assert_eq!(path("/app/locks/{path.id}", of, "order/a/%C3%A9%3A1"), Ok("/app/locks/\u{e9}:1".into()));
        assert_eq!(path("/app/{path.shop}-{path.id}", of, "order/a/7"), Ok("/app/a-7".into()));
        assert_eq!(path("/app/{path.id}{path.shop}", of, "order/a/7"), Ok("/app/7a".into()));
        assert_eq!(path("/one", of, "order/a/7"), Ok("/one".into()));
        assert_eq!(path("/app/{path.id | lower}", of, "order/a/X"), Ok("/app/x".into()));
    }

    /// A value that cannot be a node name is refused.
    #[test]
    fn invalid_node_name_is_refused() {
        for made in ["o/%2F", "o/a%2Fb", "o/%00", "o/%0A", "o/%EE%80%80", "o/%F0%9F%98%80"] {
            assert!(
                matches!(path("/app/{path.x}", "o/{path.x}", made), Err(ExtractKeyError::Invalid { .. })),
                "{made}"
            );
        }
        for made in ["o/.", "o/.."] {
            assert!(
                matches!(path("/app/{path.x}", "o/{path.x}", made), Err(ExtractKeyError::LockPath(_))),
                "{made}"
            );
            assert!(path("/app/a{path.x}", "o/{path.x}", made).is_ok(), "{made}");
        }
        let long = format!("o/{}", "x".repeat(508));
        assert_eq!(path("/{path.x}", "o/{path.x}", &long).map(|path| path.len()), Ok(509));
        assert!(matches!(path("/apps/{path.x}", "o/{path.x}", &long), Err(ExtractKeyError::LockPath(_))));
        assert!(matches!(path("/app/{path.x}", "o/{path.x}", "p/7"), Err(ExtractKeyError::LockPath(_))));
    }

    /// A lock path whose value is not in the key is refused, because one key would have two lock paths.
    #[test]
    fn path_value_must_be_in_key() {
        let error =
            |template: &str, of: &str| LockPathTemplate::parse(template, &key(of)).map_err(|bad| bad.why);
        let not = |name: &str| Err(LockPathErrorKind::NotInKey(name.to_owned()));
        assert_eq!(error("/app/{path.shop}", "order/{path.id}"), not("path.shop"));
        assert_eq!(error("/app/{path.id}", "order/{path.id | lower}"), not("path.id"));
        assert!(error("/app/{path.id | lower}", "order/{path.id | lower}").is_ok());
        assert_eq!(error("/app/{path.id | trim}", "order/{path.id | lower}"), not("path.id"));
    }

    /// A lock path that ZooKeeper would refuse is rejected.
    #[test]
    fn lock_path_must_suit_zookeeper() {
        for bad in ["", "/", "app", "/app/", "/app//x", "/./x", "/app/..", "/a\u{7f}", "/{path.id}/"] {
            let error = LockPathTemplate::parse(bad, &key("o/{path.id}")).map_err(|bad| bad.why);
            assert!(matches!(error, Err(LockPathErrorKind::Path(_))), "{bad:?}: {error:?}");
        }
        for bad in ["/a}", "/{", "/{path.id", "/{nothing.x}", "/{path.id|upper}"] {
            let error = LockPathTemplate::parse(bad, &key("o/{path.id}")).map_err(|bad| bad.why);
            assert!(matches!(error, Err(LockPathErrorKind::Template(_))), "{bad:?}: {error:?}");
        }
        assert!(LockPathTemplate::parse("/app/a%20b \u{e9}", &key("o/{path.id}")).is_ok());
    }

    proptest! {
        /// The path contains the original value, not its escaped form.
        #[test]
        fn value_passes_unchanged(value in "[a-zA-Z0-9%+:.,~ _-]{1,20}") {
            prop_assume!(value != "." && value != "..");
            let mut made = "o/".to_owned();
            expand::push_escaped(&value, &mut made);
            prop_assert_eq!(path("/app/{path.x}", "o/{path.x}", &made), Ok(format!("/app/{value}")));
        }
    }
}
