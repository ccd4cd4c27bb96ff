//! The errors of a request that has no key, and of a body from which no value can be taken.

use super::{
    pointer::DEEPEST,
    resource::{KeySetSizeError, ResourceKey},
};

/// The reason for which a request has no key. The client is at fault, and no message repeats text of the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtractKeyError {
    /// The value of the variable is absent or empty.
    #[error("`{variable}` has no value")]
    Missing { variable: String },
    #[error("`{variable}` {why}")]
    Invalid { variable: String, why: &'static str },
    /// The client has shown no certificate, or none with a name of the configured kind.
    #[error("the client has shown no certificate with a name that counts")]
    NoClientName,
    /// The request has no bearer token.
    #[error("the request has no bearer token")]
    NoToken,
    /// The list of the variable is empty or absent.
    #[error("`{variable}` is an empty list")]
    EmptyList { variable: String },
    #[error("the key is longer than {} bytes", ResourceKey::MAX_SEGMENT)]
    TooLong,
    #[error("the request names {count} resources, and may name {most} at once (`max_keys`)")]
    TooManyKeys { count: usize, most: usize },
    #[error(
        "the keys of the request have {length} bytes together, and may have {}",
        ResourceKey::MOST_BYTES_IN_SET
    )]
    SetTooLong { length: usize },
    /// The values of the key cannot form a lock path.
    #[error("the lock path {0}")]
    LockPath(&'static str),
}

/// The reason for which no value can be taken from a body. The client is at fault, and no message repeats text of the
/// client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseBodyError {
    #[error(
        "the body is not declared as JSON: `Content-Type` has to be `application/json` or end in `+json`"
    )]
    NotDeclared,
    #[error(
        "the body is not declared as a form: `Content-Type` has to be `application/x-www-form-urlencoded` or `multipart/form-data`"
    )]
    NoForm,
    #[error(
        "the request has `Content-Type` in another spelling, which some servers take for the same and others do not see"
    )]
    DeclaredTwice,
    #[error("the body is declared to be in another character set than UTF-8")]
    Charset,
    #[error("the body has a `Content-Encoding`")]
    Encoded,
    #[error("the body is not JSON")]
    NotJson,
    /// The body is not an object. A list may be several requests in one.
    #[error("the body is not one JSON object, and the route depends on its members")]
    NotObject,
    #[error("the body has an object with two members of one name")]
    DuplicateMember,
    #[error(
        "the body has a member that a key or a route asks for in a second spelling, which some servers take for the same"
    )]
    Respelled,
    #[error("the body has a member with NUL in its name, which some servers take for the name before it")]
    NulInName,
    #[error("the body is nested deeper than {DEEPEST} levels")]
    TooDeep,
    #[error(
        "the body has a list with more items than the keys name, or an object with more members in its place"
    )]
    TooLong,
    #[error("the form is not UTF-8")]
    FormNotUtf8,
    #[error("the form begins with a byte order mark, which some servers leave out")]
    ByteOrderMark,
    #[error(
        "the form has a field `_charset_`, by which some servers choose another character set than UTF-8"
    )]
    FormCharset,
    #[error("servers would take the form for other parts, or it has more than 1000 of them")]
    UnclearParts,
}

impl From<KeySetSizeError> for ExtractKeyError {
    fn from(bad: KeySetSizeError) -> Self {
        match bad {
            KeySetSizeError::TooMany { count } => Self::TooManyKeys { count, most: ResourceKey::MOST_IN_SET },
            KeySetSizeError::TooLong { length } => Self::SetTooLong { length },
        }
    }
}

/// The reason for which one value cannot be part of a key.
pub(super) enum ExtractValueError {
    Missing,
    Invalid(&'static str),
    /// The client has no name from a certificate.
    NoClientName,
    /// The request has no verified token.
    NoToken,
}

pub(super) const NOT_UTF8: &str = "is not UTF-8";
/// Node, WSGI and Tomcat read the bytes of a header field as ISO 8859-1, and WSGI does so with a query, too. Other
/// servers read both as UTF-8.
pub(super) const NOT_ASCII: &str =
    "has a character beyond ASCII that is not escaped, which servers read in different character sets";
pub(super) const TWICE: &str = "is there more than once";
pub(super) const RESPELLED: &str = "is there in another spelling, which some servers take for the same";
