//! The name of a client whose certificate the listener has verified.

use std::sync::Arc;

use crate::words::words;

/// The kind of name in a certificate that names its client. A client whose certificate has no name of this kind, or
/// more than one, has no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateNameKind {
    /// The alternative name that is a URI, such as a SPIFFE ID.
    Uri,
    /// The alternative name that is a DNS name, in lower case.
    Dns,
    /// The common name of the subject.
    CommonName,
}

words! { CertificateNameKind { Uri = "uri", Dns = "dns", CommonName = "cn" } }

impl CertificateNameKind {
    /// The kind for a word of a policy; the reverse of [`Self::as_str`].
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
    }

    /// The kind as it is written into the lock rules that gateways compare. For common names it is `cn:`, so that it
    /// differs from `cn` of builds that made other keys of common names.
    pub(crate) fn published(self) -> &'static str {
        match self {
            Self::Uri | Self::Dns => self.as_str(),
            Self::CommonName => COMMON_NAME,
        }
    }
}

/// The name of a client, with its kind: two names of two kinds are never equal, and no text is the name of two kinds.
///
/// A URI has a scheme, and a DNS name no colon. A common name may have the form of either, so `cn:` stands before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientName(Arc<str>);

/// The prefix of a common name. It is unambiguous, because [`ClientName::new`] takes no URI with this scheme.
const COMMON_NAME: &str = "cn:";

impl ClientName {
    /// The longest name, in bytes, as it stands in a certificate.
    const LONGEST: usize = 512;

    /// The name of a client, if the certificate has exactly one name of this kind and `name` is it. `None` for a name
    /// that two readers could read differently, that has not the form of its kind, or that is longer than 512 bytes. A
    /// valid name is printable ASCII, without spaces at its ends.
    pub fn new(kind: CertificateNameKind, name: &str) -> Option<Self> {
        let is_usable = (1..=Self::LONGEST).contains(&name.len())
            && name.bytes().all(|byte| (b' '..=b'~').contains(&byte))
            && name.trim_matches(' ') == name;
        let has_form = match kind {
            CertificateNameKind::Uri => uri_scheme(name)
                .is_some_and(|scheme| !scheme.eq_ignore_ascii_case(CertificateNameKind::CommonName.as_str())),
            // `*` is not allowed, because such a name stands for many hosts.
            CertificateNameKind::Dns => {
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            }
            CertificateNameKind::CommonName => true,
        };
        (is_usable && has_form).then(|| match kind {
            CertificateNameKind::Uri => Self(name.into()),
            // DNS names are compared without regard to case, so they are kept in lower case.
            CertificateNameKind::Dns => Self(name.to_ascii_lowercase().into()),
            CertificateNameKind::CommonName => Self([COMMON_NAME, name].concat().into()),
        })
    }

    pub fn kind(&self) -> CertificateNameKind {
        if self.0.starts_with(COMMON_NAME) {
            CertificateNameKind::CommonName
        } else if self.0.contains(':') {
            CertificateNameKind::Uri
        } else {
            CertificateNameKind::Dns
        }
    }

    /// The name with its kind, for keys and for the service: a URI or a DNS name as it is, `cn:` before a common name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without its kind, for a place where only one kind is possible. A DNS name is in lower case.
    pub fn without_kind(&self) -> &str {
        split_kind(&self.0).1
    }

    /// The prefix of the kind: `cn:` for a common name, else nothing.
    pub(crate) fn prefix(&self) -> &'static str {
        split_kind(&self.0).0
    }
}

/// Splits a text that [`ClientName::as_str`] has returned into the prefix of its kind and the name alone, also after a
/// filter has changed the text.
pub(crate) fn split_kind(text: &str) -> (&'static str, &str) {
    text.strip_prefix(COMMON_NAME).map_or(("", text), |name| (COMMON_NAME, name))
}

/// The scheme of a URI (RFC 3986, 3.1).
fn uri_scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then_some(scheme)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A name is written with its kind, and `without_kind` returns it without.
    #[test]
    fn name_has_its_kind() {
        for (kind, written, name, alone) in [
            (
                CertificateNameKind::Uri,
                "spiffe://shop/Till/7",
                "spiffe://shop/Till/7",
                "spiffe://shop/Till/7",
            ),
            (CertificateNameKind::Uri, "urn:uuid:1", "urn:uuid:1", "urn:uuid:1"),
            (CertificateNameKind::Dns, "Till-7.Shop.Example", "till-7.shop.example", "till-7.shop.example"),
            (CertificateNameKind::Dns, "till_7", "till_7", "till_7"),
            (CertificateNameKind::CommonName, "till 7", "cn:till 7", "till 7"),
            (
                CertificateNameKind::CommonName,
                "spiffe://shop/Till/7",
                "cn:spiffe://shop/Till/7",
                "spiffe://shop/Till/7",
            ),
            (
                CertificateNameKind::CommonName,
                "till-7.shop.example",
                "cn:till-7.shop.example",
                "till-7.shop.example",
            ),
            (CertificateNameKind::CommonName, "cn:a", "cn:cn:a", "cn:a"),
        ] {
            let made = ClientName::new(kind, written).expect(written);
            assert_eq!((made.as_str(), made.without_kind(), made.kind()), (name, alone, kind));
            assert_eq!(made.prefix().to_owned() + alone, name);
            assert_eq!(CertificateNameKind::from_word(kind.as_str()), Some(kind));
        }
    }

    /// A text that is not of the form of its kind, or that two readers could read differently, is no name.
    #[test]
    fn malformed_name_is_none() {
        let long = format!("a:{}", "a".repeat(511));
        for (kind, texts) in [
            (
                CertificateNameKind::Uri,
                &[
                    "", "a", "//a", ":a", "1:a", "a b:c", "cn:a", "CN:a", " a:b", "a:b ", "a:\0", "a:\u{e9}",
                    &long,
                ][..],
            ),
            (CertificateNameKind::Dns, &["", "*.a", "a:b", "a b", "a/b", "a@b", "caf\u{e9}", &long]),
            (CertificateNameKind::CommonName, &["", " a", "a ", "a\r\nb", "caf\u{e9}", &"a".repeat(513)]),
        ] {
            for text in texts {
                assert_eq!(ClientName::new(kind, text), None, "{kind:?} {text:?}");
            }
        }
        assert_eq!(CertificateNameKind::from_word("email"), None);
    }

    proptest! {
        /// Names of different kinds never have the same text.
        #[test]
        fn kinds_share_no_name(one in "(cn:|CN:|a:|[a-c.]){0,6}", other in "(cn:|CN:|a:|[a-c.]){0,6}") {
            let kinds = [CertificateNameKind::Uri, CertificateNameKind::Dns, CertificateNameKind::CommonName];
            for ours in kinds {
                for theirs in kinds.into_iter().filter(|theirs| *theirs != ours) {
                    if let (Some(one), Some(other)) = (ClientName::new(ours, &one), ClientName::new(theirs, &other)) {
                        prop_assert_ne!(one.as_str(), other.as_str());
                        prop_assert_eq!((one.kind(), other.kind()), (ours, theirs));
                    }
                }
            }
        }
    }
}
