//! Percent-escapes, and the characters that need none (RFC 3986, 2.1 and 2.3).

/// The byte that two hexadecimal digits stand for, and what follows them.
pub(crate) fn decode_escape(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, rest @ ..] = bytes else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).expect("two hexadecimal digits make one byte");
    Some((byte, rest))
}

/// The bytes of a text with its escapes decoded. What only looks like an escape stays as it is.
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

/// The characters that mean the same with and without an escape (RFC 3986, 2.3).
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// `%2F` for a slash: upper-case digits, as RFC 3986 wants them.
pub(crate) fn percent_encode(byte: u8) -> [char; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    ['%', digit(byte >> 4), digit(byte & 0xF)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Escapes are decoded in either case, and a sign that begins none is a byte as any other.
    #[test]
    fn escapes_are_decoded() {
        assert_eq!(decode_escapes("a%2fb%2F%zz%+f%"), b"a/b/%zz%+f%");
        assert_eq!(decode_escapes("%é%e9"), "%é".bytes().chain([0xe9]).collect::<Vec<_>>());
    }
}
