//! The name of a resource, and its forms in logs, in `Fencing-Key` and in ZooKeeper.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    fnv::fnv1a,
    path::{decode_escape, is_unreserved, percent_encode},
    permits::PermitIndex,
};

/// The name of a resource, as logs and `Fencing-Key` have it. It is printable ASCII, and its lock segment has at most
/// [`ResourceKey::MAX_SEGMENT`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceKey(Arc<str>);

/// The text is not a key that some template could have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the text is no resource key, which is printable ASCII without spaces and of limited length")]
pub struct InvalidKeyError;

/// The keys of one request are too many, or too long together, for gateways, guards, tickets, services and clients of
/// leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeySetSizeError {
    #[error("there are {count} keys, and there may be {} at once", ResourceKey::MOST_IN_SET)]
    TooMany { count: usize },
    #[error("the keys have {length} bytes together, and may have {}", ResourceKey::MOST_BYTES_IN_SET)]
    TooLong { length: usize },
}

/// A text that a user has entered is not a valid key, or not spelled as requests spell it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseKeyError {
    #[error(transparent)]
    Invalid(#[from] InvalidKeyError),
    #[error("FG0626: no request has a key that is written so; write `{written}`")]
    Misspelled { written: String },
    #[error(
        "FG0626: `#` stands before the number of a permit, and no request has such a key; in a value write `%23`"
    )]
    Permit,
}

impl ResourceKey {
    /// The most bytes of the lock segment: far fewer than a ZooKeeper node name may have, and more than any name needs.
    pub const MAX_SEGMENT: usize = 512;

    /// The most keys of one request. Each key becomes a node in one transaction, and all keys are in one header field.
    pub const MOST_IN_SET: usize = 64;

    /// The most bytes of all keys of one request, without separators. They have to fit into `Fencing-Key` and into a
    /// ticket.
    pub const MOST_BYTES_IN_SET: usize = 8192;

    /// Checks the number and the length of the keys of one request. All code that makes, signs or reads keys uses this
    /// check; the middlewares for services have the same bounds in `deploy/upstream/vectors.json`.
    ///
    /// # Errors
    /// Returns an error if there are more keys than [`ResourceKey::MOST_IN_SET`], or if all of them together have more
    /// bytes than [`ResourceKey::MOST_BYTES_IN_SET`].
    pub fn check_set_size<'k>(keys: impl IntoIterator<Item = &'k str>) -> Result<(), KeySetSizeError> {
        let mut count = 0;
        let mut length = 0;
        for key in keys {
            count += 1;
            length += key.len();
        }
        if count > Self::MOST_IN_SET {
            return Err(KeySetSizeError::TooMany { count });
        }
        if length > Self::MOST_BYTES_IN_SET { Err(KeySetSizeError::TooLong { length }) } else { Ok(()) }
    }

    /// Makes a key from the text of an expanded template; `None` if its lock segment would be too long.
    pub(super) fn new(text: String) -> Option<Self> {
        let key = Self(text.into());
        (key.lock_segment().len() <= Self::MAX_SEGMENT).then_some(key)
    }

    /// Reads a key that another process has written.
    pub fn parse(text: &str) -> Result<Self, InvalidKeyError> {
        let printable = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        printable.then(|| Self::new(text.to_owned())).flatten().ok_or(InvalidKeyError)
    }

    /// Reads a key that a user or a client has written. Values in keys are escaped in one way only, and the literals of
    /// a template contain no `%`. So a key with any other escape is refused, because no request would have it.
    ///
    /// # Errors
    /// Returns an error if the text is no key, or is not spelled as requests spell it; the error then has the right
    /// spelling.
    pub fn parse_user_input(text: &str) -> Result<Self, ParseKeyError> {
        let written = normalize_escapes(text);
        if written != text {
            // If the right spelling is too long, the text is an invalid key and not a misspelled one.
            Self::parse(&written)?;
            return Err(ParseKeyError::Misspelled { written });
        }
        Ok(Self::parse(text)?)
    }

    /// Reads the keys of one request, as [`join_keys`] writes them: at least one, ascending, none twice.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, InvalidKeyError> {
        let keys = text.split(", ").map(Self::parse).collect::<Result<Vec<_>, _>>()?;
        let ascending = keys.is_sorted_by(|key, next| key < next);
        let fits = Self::check_set_size(keys.iter().map(Self::as_str)).is_ok();
        if ascending && fits { Ok(keys) } else { Err(InvalidKeyError) }
    }

    /// The key under which guards, tickets and services identify the holder of one of several permits of this key:
    /// `stock#2`. Each permit has watermarks of its own. `None` if it would be too long.
    ///
    /// Values of a key are escaped, so only a template with a `#` could give the same text. A policy that has both is
    /// refused.
    pub fn for_permit(&self, permit: PermitIndex) -> Option<Self> {
        Self::new(format!("{}{PERMIT}{permit}", self.0))
    }

    /// The keys under which guards, tickets and services identify the holder of this permit. Each permit has watermarks
    /// of its own.
    ///
    /// # Panics
    /// Panics if a key is too long for the number of the permit. Plans and clients give no permits to such a key.
    pub fn all_for_permit<K: FromIterator<Self>>(keys: &[Self], permit: PermitIndex) -> K {
        let shown =
            |key: &Self| key.for_permit(permit).expect("a key with permits has room for their numbers");
        keys.iter().map(shown).collect()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as one segment of a ZooKeeper path. Different keys have different segments, and a segment contains no
    /// slash.
    pub fn lock_segment(&self) -> String {
        let mut segment = String::with_capacity(self.0.len() + 8);
        for (at, byte) in self.0.bytes().enumerate() {
            match byte {
                // ZooKeeper does not accept `.` and `..` as names, so a dot at the beginning is escaped.
                b'.' if at == 0 => segment.extend(percent_encode(byte)),
                _ if is_unreserved(byte) || b":@,;=+".contains(&byte) => segment.push(char::from(byte)),
                _ => segment.extend(percent_encode(byte)),
            }
        }
        segment
    }

    /// Reads [`ResourceKey::lock_segment`] back; `None` if no key has this segment.
    pub fn from_segment(segment: &str) -> Option<Self> {
        let mut text = String::with_capacity(segment.len());
        let mut rest = segment.bytes();
        while let Some(byte) = rest.next() {
            let byte = match byte {
                b'%' => {
                    let mut digit = || char::from(rest.next()?).to_digit(16);
                    char::from_u32(digit()? * 16 + digit()?)?
                }
                byte => char::from(byte),
            };
            text.push(byte);
        }
        Self::parse(&text).ok().filter(|key| key.lock_segment() == segment)
    }

    /// The number of the parent node, one of 256, that contains the lock. It must never change, because all gateways of
    /// an ensemble must agree on it: it is FNV-1a (64 bits) of the key, with its eight bytes folded into one by
    /// exclusive or.
    pub fn lock_shard(&self) -> u8 {
        fnv1a(self.0.as_bytes()).to_be_bytes().into_iter().fold(0, |folded, byte| folded ^ byte)
    }
}

/// The text with the escapes that values in keys have.
fn normalize_escapes(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = if *first == b'%' { decode_escape(after) } else { None };
        match escaped {
            Some((byte, after)) => {
                if is_unreserved(byte) {
                    written.push(char::from(byte));
                } else {
                    written.extend(percent_encode(byte));
                }
                rest = after;
            }
            None => {
                if *first != b'%' && first.is_ascii_graphic() {
                    written.push(char::from(*first));
                } else {
                    written.extend(percent_encode(*first));
                }
                rest = after;
            }
        }
    }
    written
}

/// The separator between a key and the number of a permit.
pub(crate) const PERMIT: char = '#';

/// Joins keys as in `Fencing-Key` and in logs, with `, ` between them. No key contains a space.
pub fn join_keys(keys: &[ResourceKey]) -> String {
    keys.iter().map(ResourceKey::as_str).collect::<Vec<_>>().join(", ")
}

impl TryFrom<String> for ResourceKey {
    type Error = InvalidKeyError;

    fn try_from(text: String) -> Result<Self, InvalidKeyError> {
        Self::parse(&text)
    }
}

impl From<ResourceKey> for String {
    fn from(key: ResourceKey) -> Self {
        key.as_str().to_owned()
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> ResourceKey {
        ResourceKey::new(text.into()).expect(text)
    }

    /// A lock segment is a valid name of a ZooKeeper node, and can be read back.
    #[test]
    fn lock_segment_is_one_node_name() {
        for (text, segment) in [
            ("order/42", "order%2F42"),
            ("sku:A@b,c;d=e+f", "sku:A@b,c;d=e+f"),
            ("a%2Fb", "a%252Fb"),
            (".", "%2E"),
            ("..", "%2E."),
            ("a.b~c_d-e", "a.b~c_d-e"),
            ("a!b*c", "a%21b%2Ac"),
        ] {
            assert_eq!(key(text).lock_segment(), segment, "{text}");
            assert_eq!(ResourceKey::from_segment(segment), Some(key(text)), "{text}");
        }
        for other in ["", "a!b", "%", "%2", "%2f", "%C3%A9", "a/b", "."] {
            assert_eq!(ResourceKey::from_segment(other), None, "{other}");
        }
    }

    #[test]
    fn length_limit_applies_after_escaping() {
        assert!(ResourceKey::new("x".repeat(512)).is_some());
        assert!(ResourceKey::new("x".repeat(513)).is_none());
        assert!(ResourceKey::new("/".repeat(170)).is_some());
        assert!(ResourceKey::new("/".repeat(171)).is_none());
    }

    /// Each permit has a key of its own, if the key has room for its number.
    #[test]
    fn each_permit_has_own_key() {
        let permit = |number| PermitIndex::new(number).expect("small");
        let of = |text: &str, number| key(text).for_permit(permit(number)).map(|key| key.to_string());
        assert_eq!(of("stock/7", 2).as_deref(), Some("stock/7#2"));
        assert_ne!(of("a", 1), of("a", 11));
        assert_eq!(ResourceKey::parse("stock/7#2"), Ok(key("stock/7").for_permit(permit(2)).expect("short")));
        assert!(of(&"x".repeat(506), 999).is_some() && of(&"x".repeat(507), 999).is_none());
    }

    /// A key that a user enters is accepted only in the spelling of requests.
    #[test]
    fn user_input_needs_request_spelling() {
        for good in ["order/42", "account/x%40y", "a%2Fb", "a:b@c", "a%25", "stock/7#2", "%C3%A9"] {
            assert_eq!(ResourceKey::parse_user_input(good), Ok(key(good)), "{good}");
        }
        for (bad, right) in [
            ("a%2fb", "a%2Fb"),
            ("account/%37", "account/7"),
            ("account/%", "account/%25"),
            ("a%2", "a%252"),
            ("a%zz", "a%25zz"),
            ("caf\u{e9}", "caf%C3%A9"),
            ("caf%c3%a9", "caf%C3%A9"),
            ("a b", "a%20b"),
            ("a\u{7f}", "a%7F"),
            ("%41%2d%7e", "A-~"),
        ] {
            let written = right.to_owned();
            assert_eq!(
                ResourceKey::parse_user_input(bad),
                Err(ParseKeyError::Misspelled { written }),
                "{bad}"
            );
            assert!(ResourceKey::parse_user_input(right).is_ok(), "{right}");
        }
        let long = format!("{}\u{e9}", "x".repeat(510));
        for none in ["", &long] {
            assert_eq!(ResourceKey::parse_user_input(none), Err(ParseKeyError::Invalid(InvalidKeyError)));
        }
    }

    /// The shard of a key never changes: with other numbers, the gateways of a rolling update would look for the same
    /// lock in two places.
    #[test]
    fn shard_of_key_never_changes() {
        for (text, shard) in [("order/42", 0x76), ("order/43", 0x20), ("a", 0xbb)] {
            assert_eq!(key(text).lock_shard(), shard, "{text}");
        }
    }

    /// A list of keys is read back only as it was written.
    #[test]
    fn key_list_parses_only_as_written() {
        let keys = [key("a,b"), key("account/1"), key("account/2")];
        assert_eq!(ResourceKey::parse_list(&join_keys(&keys)), Ok(keys.to_vec()));
        for bad in ["", "a,  b", "b, a", "a, a", "a, ", " a", "a b", "a\u{7f}", "\u{e9}"] {
            assert_eq!(ResourceKey::parse_list(bad), Err(InvalidKeyError), "{bad:?}");
        }
        let many: Vec<String> = (10..75).map(|n| n.to_string()).collect();
        assert!(ResourceKey::parse_list(&many.join(", ")).is_err());
        assert!(ResourceKey::parse_list(&many[..ResourceKey::MOST_IN_SET].join(", ")).is_ok());
        let long: Vec<String> = (10..74).map(|n| format!("{n}{}", "x".repeat(126))).collect();
        assert!(ResourceKey::parse_list(&long.join(", ")).is_ok());
        assert!(ResourceKey::parse_list(&format!("{}x", long.join(", "))).is_err());
    }

    /// The bounds of a set are exact.
    #[test]
    fn set_size_is_bounded() {
        let size = |count: usize, length: usize| {
            let key = "x".repeat(length);
            ResourceKey::check_set_size(std::iter::repeat_n(&*key, count))
        };
        for (count, length) in [(0, 0), (1, 512), (16, 512), (64, 128), (64, 1)] {
            assert_eq!(size(count, length), Ok(()), "{count} {length}");
        }
        assert_eq!(size(65, 1), Err(KeySetSizeError::TooMany { count: 65 }));
        assert_eq!(size(65, 512), Err(KeySetSizeError::TooMany { count: 65 }));
        assert_eq!(size(64, 129), Err(KeySetSizeError::TooLong { length: 8256 }));
    }

    proptest! {
        /// The spelling that an error suggests is accepted.
        #[test]
        fn suggested_spelling_is_accepted(text in "[ -~\u{e9}%]{1,40}") {
            if let Err(ParseKeyError::Misspelled { written }) = ResourceKey::parse_user_input(&text) {
                prop_assert_eq!(ResourceKey::parse_user_input(&written), Ok(key(&written)));
            }
        }

        #[test]
        fn different_keys_have_different_segments(a in "[ -~]{0,40}", b in "[ -~]{0,40}") {
            let one = key(&a);
            let other = key(&b);
            prop_assert_eq!(one.lock_segment() == other.lock_segment(), a == b);
        }

        /// Two keys never have the same segment, because the key can be read back from it.
        #[test]
        fn lock_segment_decodes_to_key(text in "[ -~]{0,100}") {
            let segment = key(&text).lock_segment();
            prop_assert!(!segment.contains('/') && segment != "." && segment != "..");
            let mut read = Vec::new();
            let mut rest = segment.as_bytes();
            while let [first, after @ ..] = rest {
                let (byte, after) =
                    if *first == b'%' { decode_escape(after).expect("an escape") } else { (*first, after) };
                read.push(byte);
                rest = after;
            }
            prop_assert_eq!(read, text.into_bytes());
        }
    }
}
