//! The rules that restrict which clients may use a route, by their verified identities.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::{
    client_name::ClientName,
    key::{ClaimValues, JsonPointer},
};

/// A client may use the route if it fulfils all conditions of some rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRule {
    /// The condition on the name in the client's certificate.
    pub client_name: Option<IdentityPattern>,
    /// The conditions on claims of the client's token. A rule has at least one condition.
    pub claims: Vec<(JsonPointer, IdentityPattern)>,
}

/// The names that a condition accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityPattern {
    /// Every name.
    Any,
    Exact(Box<str>),
    /// `a/*`: all names that begin with `a/` and are longer.
    Below(Box<str>),
    /// `*.a`: all names that end with `.a` and are longer.
    Under(Box<str>),
}

impl AccessRule {
    /// Whether a client fulfils all conditions. `client_name` and `claims`: the verified identities of the
    /// client.
    pub fn allows(&self, client_name: Option<&ClientName>, claims: Option<&ClaimValues>) -> bool {
        // The kind of the name is not compared: the listener accepts only one kind, and so do the gateways
        // that forward names.
        let is_named = self
            .client_name
            .as_ref()
            .is_none_or(|wanted| client_name.is_some_and(|name| wanted.matches(name.without_kind())));
        let has_claim = |(claim, wanted): &(JsonPointer, IdentityPattern)| {
            claims.is_some_and(|claims| claims.any_text(claim, |text| wanted.matches(text)))
        };
        is_named && self.claims.iter().all(has_claim)
    }
}

impl IdentityPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Returns the reason if a `*` is at a place where it has no meaning.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() || text.trim() != text || text.contains(char::is_control) {
            return Err("it is empty, or has spaces around it");
        }
        let stars = text.matches('*').count();
        match text {
            "*" => Ok(Self::Any),
            _ if stars == 0 => Ok(Self::Exact(text.into())),
            _ if stars == 1 && text.ends_with("/*") => Ok(Self::Below(text.trim_end_matches('*').into())),
            _ if stars == 1 && text.starts_with("*.") => Ok(Self::Under(text.trim_start_matches('*').into())),
            _ => Err("a `*` stands alone, at the end behind a `/`, or at the beginning before a `.`"),
        }
    }

    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(wanted) => **wanted == *name,
            Self::Below(before) => name.strip_prefix(&**before).is_some_and(|rest| !rest.is_empty()),
            Self::Under(behind) => name.strip_suffix(&**behind).is_some_and(|rest| !rest.is_empty()),
        }
    }

    /// The pattern in lower case, for names that are compared without regard to case.
    #[must_use]
    pub(crate) fn to_lowercase(&self) -> Self {
        match self {
            Self::Any => Self::Any,
            Self::Exact(text) => Self::Exact(text.to_ascii_lowercase().into()),
            Self::Below(text) => Self::Below(text.to_ascii_lowercase().into()),
            Self::Under(text) => Self::Under(text.to_ascii_lowercase().into()),
        }
    }
}

/// Writes the pattern as a policy does.
impl fmt::Display for IdentityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(text) => f.write_str(text),
            Self::Below(before) => write!(f, "{before}*"),
            Self::Under(behind) => write!(f, "*{behind}"),
        }
    }
}

/// A rule as operators see it.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveAccessRule {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, String>,
}

impl EffectiveAccessRule {
    pub(super) fn new(rule: &AccessRule) -> Self {
        let AccessRule { client_name, claims } = rule;
        Self {
            client_name: client_name.as_ref().map(ToString::to_string),
            claims: claims.iter().map(|(claim, wanted)| (claim.to_string(), wanted.to_string())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_name::CertificateNameKind;

    fn pattern(text: &str) -> IdentityPattern {
        IdentityPattern::parse(text).expect(text)
    }

    /// A pattern accepts the names that it describes, and is displayed as it was read.
    #[test]
    fn pattern_accepts_written_names() {
        for (text, accepted, refused) in [
            ("*", &["a", "spiffe://a/b"][..], &[][..]),
            ("a", &["a"], &["A", "a/", "ab", ""]),
            (
                "spiffe://a/*",
                &["spiffe://a/b", "spiffe://a/b/c"],
                &["spiffe://a", "spiffe://a/", "spiffe://ab/c"],
            ),
            ("*.a.example", &["b.a.example", "c.b.a.example"], &["a.example", ".a.example", "ba.example"]),
        ] {
            assert_eq!(pattern(text).to_string(), text);
            assert!(accepted.iter().all(|name| pattern(text).matches(name)), "{text}");
            assert!(!refused.iter().any(|name| pattern(text).matches(name)), "{text}");
        }
        assert_eq!(pattern("*.A").to_lowercase(), pattern("*.a"));
    }

    #[test]
    fn star_elsewhere_is_refused() {
        for text in ["", " a", "a*", "*a", "a/*/b", "**", "*/*", "*.a.*", "a\n"] {
            assert!(IdentityPattern::parse(text).is_err(), "{text}");
        }
    }

    /// A rule is fulfilled only if all of its conditions are, each by a verified value.
    #[test]
    fn rule_needs_all_conditions() {
        let pointers =
            ["/scope", "/groups/*", "/sub", "/n"].map(|text| JsonPointer::parse(text).expect(text));
        let payload = br#"{"scope": "read pay", "groups": ["a", 7, "b"], "sub": "till-7", "n": 42, "other": {"sub": "x"}}"#;
        let claims = ClaimValues::parse(payload, &pointers).expect("plain");
        let [scope, groups, sub, number] = pointers;
        let rule = |client_name: Option<&str>, claims: &[(&JsonPointer, &str)]| AccessRule {
            client_name: client_name.map(pattern),
            claims: claims.iter().map(|(claim, wanted)| ((*claim).clone(), pattern(wanted))).collect(),
        };
        let named = ClientName::new(CertificateNameKind::Uri, "spiffe://a/till");
        let named = named.as_ref();
        for (rule, allowed) in [
            (rule(Some("spiffe://a/*"), &[]), true),
            (rule(Some("spiffe://b/*"), &[]), false),
            (rule(None, &[(&scope, "pay")]), true),
            (rule(None, &[(&scope, "read pay")]), true),
            (rule(None, &[(&scope, "pa")]), false),
            (rule(None, &[(&groups, "b")]), true),
            (rule(None, &[(&groups, "7")]), false),
            (rule(None, &[(&number, "42")]), true),
            (rule(None, &[(&sub, "*")]), true),
            (rule(Some("*"), &[(&sub, "till-7"), (&groups, "a")]), true),
            (rule(Some("*"), &[(&sub, "till-7"), (&groups, "c")]), false),
        ] {
            assert_eq!(rule.allows(named, Some(&claims)), allowed, "{rule:?}");
            assert_eq!(rule.allows(None, Some(&claims)), allowed && rule.client_name.is_none(), "{rule:?}");
            assert_eq!(rule.allows(named, None), allowed && rule.claims.is_empty(), "{rule:?}");
            assert!(!rule.allows(None, None), "{rule:?}");
        }
    }

    /// A rule contains the name as the certificate has it, without its kind.
    #[test]
    fn rule_is_written_without_kind() {
        let till = ClientName::new(CertificateNameKind::CommonName, "tills/7").expect("a name");
        for (text, allowed) in [("tills/7", true), ("tills/*", true), ("*", true), ("cn:tills/7", false)] {
            let rule = AccessRule { client_name: Some(pattern(text)), claims: Vec::new() };
            assert_eq!(rule.allows(Some(&till), None), allowed, "{text}");
        }
    }
}
