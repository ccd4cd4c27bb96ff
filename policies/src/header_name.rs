//! Names of header fields: which names are valid, and which names some servers take for one another.

/// Folds case, and replaces every character that is no letter and no digit by `-`. CGI, WSGI and Rack treat `-` and
/// `_` as the same character; lighttpd and older servers do so with all other characters.
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

/// The common form of all spellings that some server takes for the same name.
pub fn normalize(name: &str) -> String {
    name.bytes().map(|byte| char::from(fold_spelling_byte(byte))).collect()
}

/// Whether some server takes both spellings for the same name.
pub fn same_field(one: &str, other: &str) -> bool {
    one.len() == other.len()
        && one
            .bytes()
            .zip(other.bytes())
            .all(|(one, other)| fold_spelling_byte(one) == fold_spelling_byte(other))
}

/// Whether a text is a token, the form of header field names and methods (RFC 9110, section 5.6.2).
pub(crate) fn is_http_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
