//! The leases: locks that clients hold through a gateway for work other than a request. For how long, how many, and
//! which keys each client may hold.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use crate::key::{ResourceKey, TemplateGlob};

/// The settings of the leases that a gateway grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseGrantSettings {
    /// The least time to live: `min_ttl <= default_ttl <= max_ttl <= max_age`. Default 2 s.
    pub min_ttl: Duration,
    /// The longest time to live. Default 60 s.
    pub max_ttl: Duration,
    /// The time to live for clients that request none. Default 15 s, within the bounds.
    pub default_ttl: Duration,
    /// The longest that one request for a lease waits. Default 60 s.
    pub max_wait: Duration,
    /// The greatest age of a lease, renewed or not. Default 24 h.
    pub max_age: Duration,
    /// The most leases of one gateway, including those that wait. Default 10,000.
    pub most: usize,
    /// The most leases of one principal. Default 1,000, or `most` if that is less.
    pub per_principal: usize,
    /// The principals, at least one. All names and all credentials differ.
    pub principals: Vec<LeasePrincipal>,
}

/// A client that may hold leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasePrincipal {
    pub name: Arc<str>,
    pub shows: PrincipalCredential,
    /// The keys that the principal may hold. Empty for an operator without leases of its own.
    pub keys: Vec<KeyPattern>,
    /// True if the principal may list, revoke and break the leases of all principals.
    pub operator: bool,
}

/// The credential by which a principal is recognised.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PrincipalCredential {
    /// The file with the token that requests send as `Authorization: Bearer`.
    Bearer(PathBuf),
    /// The common name of a client certificate that the listener has verified, or one of its alternative names.
    Certificate(Arc<str>),
}

/// The keys that a principal may hold: a single key, or all keys with a common prefix. `{principal}` was replaced
/// when the pattern was parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern(KeyPatternKind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum KeyPatternKind {
    Exact(Arc<str>),
    Prefix(Arc<str>),
}

/// The text is no pattern of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseKeyPatternError {
    #[error("it is empty")]
    Empty,
    #[error("a `*` stands elsewhere than at its end")]
    StarWithin,
    #[error("`{{principal}}` is the only variable that it can have")]
    Variable,
    #[error("no key has such a character: keys are printable ASCII without spaces")]
    Character,
    #[error("it is longer than any key")]
    TooLong,
    #[error(
        "a name that begins with this one is covered, too: nothing stands between `{{principal}}` and `*`"
    )]
    OtherPrincipals,
}

/// The text in a pattern that stands for the name of the principal.
const PLACEHOLDER: &str = "{principal}";

impl KeyPattern {
    /// Reads a pattern. `principal`: the name that replaces `{principal}`.
    ///
    /// # Errors
    /// Returns an error if the pattern covers no key, or other keys than its text suggests.
    pub fn parse(text: &str, principal: &str) -> Result<Self, ParseKeyPatternError> {
        let (begin, open) = text.strip_suffix('*').map_or((text, false), |begin| (begin, true));
        if text.is_empty() {
            return Err(ParseKeyPatternError::Empty);
        }
        if begin.contains('*') {
            return Err(ParseKeyPatternError::StarWithin);
        }
        if begin.replace(PLACEHOLDER, "").contains(['{', '}']) {
            return Err(ParseKeyPatternError::Variable);
        }
        if !begin.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ParseKeyPatternError::Character);
        }
        if open && begin.ends_with(PLACEHOLDER) {
            return Err(ParseKeyPatternError::OtherPrincipals);
        }
        let filled: Arc<str> = begin.replace(PLACEHOLDER, principal).into();
        // The characters were checked above, so a text that is not a key here is too long.
        if !filled.is_empty() && ResourceKey::parse(&filled).is_err() {
            return Err(ParseKeyPatternError::TooLong);
        }
        Ok(Self(if open { KeyPatternKind::Prefix(filled) } else { KeyPatternKind::Exact(filled) }))
    }

    pub fn matches(&self, key: &ResourceKey) -> bool {
        match &self.0 {
            KeyPatternKind::Exact(this) => key.as_str() == &**this,
            KeyPatternKind::Prefix(begin) => key.as_str().starts_with(&**begin),
        }
    }

    /// Whether a pattern matches a key. `written`: the pattern as [`fmt::Display`] writes it.
    pub(crate) fn published_matches(written: &str, key: &ResourceKey) -> bool {
        match written.strip_suffix('*') {
            Some(begin) => key.as_str().starts_with(begin),
            None => key.as_str() == written,
        }
    }

    /// A glob of all keys that a pattern covers. `written`: the pattern as [`fmt::Display`] writes it.
    pub(crate) fn published_glob(written: &str) -> TemplateGlob {
        match written.strip_suffix('*') {
            Some(begin) => TemplateGlob::with_prefix(begin),
            None => TemplateGlob::literal(written),
        }
    }

    /// A glob of all keys that the pattern covers.
    pub(crate) fn glob(&self) -> TemplateGlob {
        match &self.0 {
            KeyPatternKind::Exact(this) => TemplateGlob::literal(this),
            KeyPatternKind::Prefix(begin) => TemplateGlob::with_prefix(begin),
        }
    }
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            KeyPatternKind::Exact(this) => f.write_str(this),
            KeyPatternKind::Prefix(begin) => write!(f, "{begin}*"),
        }
    }
}

impl LeaseGrantSettings {
    /// The default of `min_ttl`.
    pub const MIN_TTL: Duration = Duration::from_secs(2);
    pub const MAX_TTL: Duration = Duration::from_secs(60);
    pub const TTL: Duration = Duration::from_secs(15);
    pub const MAX_WAIT: Duration = Duration::from_secs(60);
    pub const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);
    pub const MOST: usize = 10_000;
    pub const PER_PRINCIPAL: usize = 1000;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, key: &str) -> bool {
        let key = ResourceKey::parse(key).expect(key);
        KeyPattern::parse(pattern, "batch").expect(pattern).matches(&key)
    }

    /// A pattern covers one key, or all keys with a common prefix.
    #[test]
    fn pattern_is_key_or_prefix() {
        for (pattern, key, covered) in [
            ("job/nightly", "job/nightly", true),
            ("job/nightly", "job/nightly/2", false),
            ("job/*", "job/nightly", true),
            ("job/*", "job/", true),
            ("job/*", "job", false),
            ("job/*", "jobs/nightly", false),
            ("*", "anything", true),
            ("order/{principal}/*", "order/batch/7", true),
            ("order/{principal}/*", "order/billing/7", false),
            ("order/{principal}", "order/batch", true),
        ] {
            assert_eq!(matches(pattern, key), covered, "{pattern} {key}");
        }
        let shown = KeyPattern::parse("order/{principal}/*", "batch").expect("a pattern").to_string();
        assert_eq!(shown, "order/batch/*");
    }

    /// A pattern that covers no key, or keys of other principals, is rejected.
    #[test]
    fn invalid_pattern_is_rejected() {
        for (pattern, error) in [
            ("", ParseKeyPatternError::Empty),
            ("a*b", ParseKeyPatternError::StarWithin),
            ("**", ParseKeyPatternError::StarWithin),
            ("{name}/*", ParseKeyPatternError::Variable),
            ("a/{principal", ParseKeyPatternError::Variable),
            ("a b", ParseKeyPatternError::Character),
            ("é", ParseKeyPatternError::Character),
            ("order/{principal}*", ParseKeyPatternError::OtherPrincipals),
            (&"x".repeat(513), ParseKeyPatternError::TooLong),
        ] {
            assert_eq!(KeyPattern::parse(pattern, "batch"), Err(error), "{pattern}");
        }
    }
}
