//! The names of header fields: what one is, and which of them servers take for one another.

/// Case does not count, and a character that is no letter and no digit is `-`: CGI, WSGI and Rack make one variable of
/// `-` and `_`, and lighttpd and older servers of all of them.
fn fold(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

/// `name` is, in some spelling, the field that is called `plainly` (see [`plain`]).
pub fn is_plain(name: &str, plainly: &str) -> bool {
    name.len() == plainly.len() && begins_plain(name, plainly)
}

/// `name` begins so, in some spelling.
pub fn begins_plain(name: &str, plainly: &str) -> bool {
    name.len() >= plainly.len()
        && name.bytes().zip(plainly.bytes()).all(|(given, plain)| fold(given) == plain)
}

/// One spelling for all that some server takes for one name.
pub fn plain(name: &str) -> String {
    name.bytes().map(|byte| char::from(fold(byte))).collect()
}

/// Two spellings that some server takes for one name.
pub fn are_alike(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(|(one, other)| fold(one) == fold(other))
}

/// A header field name or method (RFC 9110, 5.6.2).
pub(crate) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
