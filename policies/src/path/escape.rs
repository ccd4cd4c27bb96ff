//! Percent-escapes, and the characters that need none (RFC 3986, 2.1 and 2.3).

/// Decodes the two hexadecimal digits at the beginning. Returns the byte, and the bytes after the digits.
pub(crate) fn decode_escape(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, rest @ ..] = bytes else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).expect("two hexadecimal digits make one byte");
    Some((byte, rest))
}

/// The bytes of a text with its escapes decoded. A `%` without two digits stays as it is.
pub fn decode_escapes(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = if *first == b'%' { decode_escape(after) } else { None };
        let (byte, after) = escaped.unwrap_or((*first, after));
        decoded.push(byte);
        rest = after;
    }
    decoded
}

/// Whether a character has the same meaning with and without an escape (RFC 3986, section 2.3).
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// The escape of a byte, such as `%2F` for a slash. RFC 3986 recommends upper-case digits.
pub(crate) fn percent_encode(byte: u8) -> [char; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    ['%', digit(byte >> 4), digit(byte & 0xF)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Escapes are decoded with digits in upper and lower case, and a `%` that begins no escape is kept.
    #[test]
    fn escapes_are_decoded() {
        assert_eq!(decode_escapes("a%2fb%2F%zz%+f%"), b"a/b/%zz%+f%");
        assert_eq!(decode_escapes("%é%e9"), "%é".bytes().chain([0xe9]).collect::<Vec<_>>());
    }
}
