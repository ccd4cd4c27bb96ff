//! Names of header fields: which names are valid, and which names some servers take for one another.

/// Folds case, and makes `-` of every character that is no letter and no digit. CGI, WSGI and Rack treat `-` and `_`
/// as one character; lighttpd and older servers do so with all other characters.
fn fold_spelling_byte(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

/// True if `name` is a spelling of the field `plainly` (see [`normalize`]).
pub fn is_spelling_of(name: &str, plainly: &str) -> bool {
    name.len() == plainly.len() && starts_with_spelling(name, plainly)
}

/// True if `name` begins with `plainly`, in some spelling.
pub fn starts_with_spelling(name: &str, plainly: &str) -> bool {
    name.len() >= plainly.len()
        && name.bytes().zip(plainly.bytes()).all(|(given, plain)| fold_spelling_byte(given) == plain)
}

/// The common form of all spellings that some server takes for one name.
pub fn normalize(name: &str) -> String {
    name.bytes().map(|byte| char::from(fold_spelling_byte(byte))).collect()
}

/// True if some server takes both spellings for one name.
pub fn same_field(one: &str, other: &str) -> bool {
    one.len() == other.len()
        && one
            .bytes()
            .zip(other.bytes())
            .all(|(one, other)| fold_spelling_byte(one) == fold_spelling_byte(other))
}

/// A header field name or method (RFC 9110, 5.6.2).
pub(crate) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
