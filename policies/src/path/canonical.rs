//! The canonical path of a request, or the reason for which it has none.

use super::escape::{decode_escape, is_unreserved, percent_encode};

/// A request path in the canonical spelling, which is matched, used in keys and forwarded.
///
/// A path that two servers read differently lets a request reach a resource without the lock of that resource. Such a
/// path is marked as ambiguous, and refused wherever a fence depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanonicalPath {
    text: String,
    /// The path with every escape decoded, if it differs from `text`. Both have the same segments, because a path
    /// with an encoded slash is ambiguous.
    decoded: Option<String>,
    ambiguity: Option<AmbiguousPathError>,
}

/// The reason for which servers may read a path in different ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmbiguousPathError {
    #[error("the path does not begin with a slash")]
    NotAbsolute,
    #[error("the path has a `.` or `..` segment")]
    DotSegment,
    #[error("the path has an empty segment")]
    EmptySegment,
    #[error("the path has an encoded slash or backslash")]
    EncodedSlash,
    #[error("the path has an encoded percent sign, which a second decoding would read")]
    EncodedPercent,
    #[error("the path has a percent sign without two hexadecimal digits")]
    BadEscape,
    #[error("the path has a backslash, which some servers take for a slash")]
    Backslash,
    #[error("the path has a control character")]
    Control,
    #[error("the path is not UTF-8 once decoded")]
    NotUtf8,
    #[error("the path has a semicolon, after which some servers cut the segment")]
    Parameter,
    #[error("the path has a character that no path has: it has to be percent-encoded")]
    BadByte,
}

impl CanonicalPath {
    /// Parses a path without its query. Never fails: an unfenced route may forward a path that a fenced route must
    /// refuse.
    pub fn parse(raw: &str) -> Self {
        if is_canonical_path(raw) {
            return Self { text: raw.to_owned(), decoded: None, ambiguity: None };
        }
        match canonicalize(raw) {
            Ok((text, decoded)) => {
                Self { decoded: (decoded != text).then_some(decoded), text, ambiguity: None }
            }
            Err(ambiguity) => Self { text: raw.to_owned(), decoded: None, ambiguity: Some(ambiguity) },
        }
    }

    /// The path as it is forwarded: the canonical spelling, or the original text of an ambiguous path.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn ambiguity(&self) -> Option<AmbiguousPathError> {
        self.ambiguity
    }

    /// The decoded segments between the slashes; those of an ambiguous path are not decoded. Routes match decoded
    /// segments, so that an upstream that decodes `%40` sees the same path as the route table.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.decoded_without_slash().into_iter().flat_map(|tail| tail.split('/'))
    }

    /// The decoded path without its first slash.
    pub(super) fn decoded_without_slash(&self) -> Option<&str> {
        self.decoded.as_deref().unwrap_or(&self.text).strip_prefix('/')
    }
}

/// Whether a path is canonical and has no escapes: a quick check for the usual case.
fn is_canonical_path(raw: &str) -> bool {
    let Some(tail) = raw.as_bytes().strip_prefix(b"/") else { return false };
    let good = |segment: &[u8]| {
        !matches!(segment, b"" | b"." | b"..") && segment.iter().all(|byte| check_raw(*byte).is_ok())
    };
    // The slash at the end of a path may be followed by nothing.
    tail.is_empty() || tail.strip_suffix(b"/").unwrap_or(tail).split(|byte| *byte == b'/').all(good)
}

/// The canonical spelling of a path, and the path with every escape decoded.
fn canonicalize(raw: &str) -> Result<(String, String), AmbiguousPathError> {
    let tail = raw.strip_prefix('/').ok_or(AmbiguousPathError::NotAbsolute)?;
    let mut text = String::with_capacity(raw.len());
    let mut decoded = String::with_capacity(raw.len());
    let mut segments = tail.split('/').peekable();
    while let Some(segment) = segments.next() {
        let value = canonicalize_segment(segment, &mut text)?;
        // An empty last segment is a trailing slash. Any other empty segment is refused, because some servers merge
        // slashes.
        if value.is_empty() && segments.peek().is_some() {
            return Err(AmbiguousPathError::EmptySegment);
        }
        decoded.push('/');
        decoded.push_str(&value);
    }
    Ok((text, decoded))
}

/// Appends the canonical spelling of one segment to `text`. Returns the decoded segment.
fn canonicalize_segment(segment: &str, text: &mut String) -> Result<String, AmbiguousPathError> {
    text.push('/');
    let mut value = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'%' {
            let (byte, after) = decode_escape(rest).ok_or(AmbiguousPathError::BadEscape)?;
            rest = after;
            push_escaped(byte, text)?;
            value.push(byte);
        } else {
            check_raw(*first)?;
            text.push(char::from(*first));
            value.push(*first);
        }
    }
    let value = String::from_utf8(value).map_err(|_| AmbiguousPathError::NotUtf8)?;
    // Control characters beyond ASCII (U+0080 to U+009F) are visible only after decoding.
    if value.chars().any(char::is_control) {
        return Err(AmbiguousPathError::Control);
    }
    if value == "." || value == ".." { Err(AmbiguousPathError::DotSegment) } else { Ok(value) }
}

/// Appends an escaped byte. Decodes escapes that are not needed (RFC 3986, section 6.2.2.2), refuses escapes that
/// could be decoded twice, and keeps the others.
fn push_escaped(byte: u8, text: &mut String) -> Result<(), AmbiguousPathError> {
    match byte {
        b'/' | b'\\' => return Err(AmbiguousPathError::EncodedSlash),
        b'%' => return Err(AmbiguousPathError::EncodedPercent),
        b';' => return Err(AmbiguousPathError::Parameter),
        _ if byte.is_ascii_control() => return Err(AmbiguousPathError::Control),
        _ if is_unreserved(byte) => text.push(char::from(byte)),
        _ => text.extend(percent_encode(byte)),
    }
    Ok(())
}

/// Accepts the characters of a path segment (RFC 3986, section 3.3) except `%` and `;`.
fn check_raw(byte: u8) -> Result<(), AmbiguousPathError> {
    match byte {
        _ if is_unreserved(byte) => Ok(()),
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b':' | b'@' => Ok(()),
        b';' => Err(AmbiguousPathError::Parameter),
        b'\\' => Err(AmbiguousPathError::Backslash),
        _ if byte.is_ascii_control() => Err(AmbiguousPathError::Control),
        _ => Err(AmbiguousPathError::BadByte),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equivalent_spellings_have_one_canonical_form() {
        for (raw, text, decoded) in [
            ("/", "/", "/"),
            ("/v1/orders/42", "/v1/orders/42", "/v1/orders/42"),
            ("/v1/orders/42/", "/v1/orders/42/", "/v1/orders/42/"),
            ("/%76%31/%6Frders/%7e", "/v1/orders/~", "/v1/orders/~"),
            ("/a%c3%a9", "/a%C3%A9", "/aé"),
            ("/a%20b", "/a%20b", "/a b"),
            ("/a%40b", "/a%40b", "/a@b"),
            ("/a@b:c,d=e+f", "/a@b:c,d=e+f", "/a@b:c,d=e+f"),
            ("/a%3Fb", "/a%3Fb", "/a?b"),
            ("/...", "/...", "/..."),
        ] {
            let path = CanonicalPath::parse(raw);
            assert_eq!(path.ambiguity(), None, "{raw}");
            assert_eq!(path.as_str(), text, "{raw}");
            assert_eq!(path.decoded.as_deref().unwrap_or(text), decoded, "{raw}");
        }
    }

    /// A path that two servers read in different ways is ambiguous, and is kept as it was sent.
    #[test]
    fn ambiguous_path_is_kept_unchanged() {
        for (raw, error) in [
            ("", AmbiguousPathError::NotAbsolute),
            ("*", AmbiguousPathError::NotAbsolute),
            ("v1", AmbiguousPathError::NotAbsolute),
            ("/a/../b", AmbiguousPathError::DotSegment),
            ("/a/%2E%2e/b", AmbiguousPathError::DotSegment),
            ("/a/.", AmbiguousPathError::DotSegment),
            ("/.%2e", AmbiguousPathError::DotSegment),
            ("//a", AmbiguousPathError::EmptySegment),
            ("/a//", AmbiguousPathError::EmptySegment),
            ("/a%2fb", AmbiguousPathError::EncodedSlash),
            ("/a%5Cb", AmbiguousPathError::EncodedSlash),
            ("/a%252Fb", AmbiguousPathError::EncodedPercent),
            ("/a%00b", AmbiguousPathError::Control),
            ("/a%7Fb", AmbiguousPathError::Control),
            ("/a%0D%0Ab", AmbiguousPathError::Control),
            ("/a%C2%85b", AmbiguousPathError::Control),
            ("/a\tb", AmbiguousPathError::Control),
            ("/a%", AmbiguousPathError::BadEscape),
            ("/a%2", AmbiguousPathError::BadEscape),
            ("/a%zz", AmbiguousPathError::BadEscape),
            ("/a%+1", AmbiguousPathError::BadEscape),
            ("/a\\b", AmbiguousPathError::Backslash),
            ("/a%ff", AmbiguousPathError::NotUtf8),
            ("/a%C0%AFb", AmbiguousPathError::NotUtf8),
            ("/a;v=1", AmbiguousPathError::Parameter),
            ("/a%3Bv", AmbiguousPathError::Parameter),
            ("/a b", AmbiguousPathError::BadByte),
            ("/a{b}", AmbiguousPathError::BadByte),
            ("/a?b", AmbiguousPathError::BadByte),
            ("/a#b", AmbiguousPathError::BadByte),
            ("/aé", AmbiguousPathError::BadByte),
        ] {
            let path = CanonicalPath::parse(raw);
            assert_eq!(path.ambiguity(), Some(error), "{raw:?}");
            assert_eq!(path.as_str(), raw);
        }
    }

    proptest! {
        #[test]
        fn canonical_path_is_own_canonical_form(raw in "\\PC{0,30}|(/(%[0-9a-fA-F]{2}|[a-z.~@;%]){0,8}){0,5}") {
            let path = CanonicalPath::parse(&raw);
            let again = CanonicalPath::parse(path.as_str());
            prop_assert_eq!(&path, &again);
        }

        /// The quick check accepts no path that the full check would change.
        #[test]
        fn quick_check_agrees_with_full_check(raw in "(/([a-zA-Z.~@;%,-]|%2e){0,4}){0,5}|\\PC{0,30}") {
            let long = canonicalize(&raw);
            let short = long.as_ref().is_ok_and(|(text, decoded)| *text == raw && *decoded == raw);
            prop_assert_eq!(is_canonical_path(&raw), short);
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes: Vec<u8>) {
            let raw = String::from_utf8_lossy(&bytes);
            let path = CanonicalPath::parse(&raw);
            prop_assert!(path.ambiguity().is_some() || path.as_str().starts_with('/'));
        }

        /// An upstream that decodes the forwarded path gets the segments that the route table has matched.
        #[test]
        fn decoded_canonical_form_gives_segments(raw in "(/(%[2-7][0-9a-f]|[a-z]){1,6}){1,4}") {
            let path = CanonicalPath::parse(&raw);
            if path.ambiguity().is_some() {
                return Ok(());
            }
            let mut decoded = Vec::new();
            let mut rest = path.as_str().as_bytes();
            while let [first, after @ ..] = rest {
                let (byte, after) =
                    if *first == b'%' { decode_escape(after).expect("canonical") } else { (*first, after) };
                decoded.push(byte);
                rest = after;
            }
            let joined: String = path.segments().map(|segment| format!("/{segment}")).collect();
            prop_assert_eq!(decoded, joined.into_bytes());
        }
    }
}
