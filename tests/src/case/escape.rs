//! Bytes as cases write them: printable text with escapes.

/// Decodes `\r \n \t \0 \\ \xHH`, and `\{3*ab}` for `ababab`.
///
/// # Errors
/// Returns an error if an escape does not exist.
pub(super) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend(rest[..at].bytes());
        rest = decode_escape(&rest[at + 1..], &mut bytes)?;
    }
    bytes.extend(rest.bytes());
    Ok(bytes)
}

/// Decodes one escape, from behind its backslash, and returns the rest of the text.
fn decode_escape<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, String> {
    let wrong = || format!("no escape: `\\{}`", text.chars().take(4).collect::<String>());
    if let Some(repeated) = text.strip_prefix('{') {
        let (inner, rest) = repeated.split_once('}').ok_or_else(wrong)?;
        let (count, piece) = inner.split_once('*').ok_or_else(wrong)?;
        let count: usize = count.parse().map_err(|_| wrong())?;
        bytes.extend(unescape(piece)?.repeat(count));
        return Ok(rest);
    }
    if let Some(digits) = text.strip_prefix('x') {
        let pair = digits.get(..2).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(pair, 16).map_err(|_| wrong())?);
        return Ok(&digits[2..]);
    }
    let byte = match text.as_bytes().first() {
        Some(b'r') => b'\r',
        Some(b'n') => b'\n',
        Some(b't') => b'\t',
        Some(b'0') => 0,
        Some(b'\\') => b'\\',
        _ => return Err(wrong()),
    };
    bytes.push(byte);
    Ok(&text[1..])
}

/// Decodes one line of a message, which ends with CRLF unless the line ends with a single backslash.
///
/// # Errors
/// Returns an error if an escape does not exist.
pub(super) fn decode_line(text: &str) -> Result<Vec<u8>, String> {
    let open = text.len() - text.trim_end_matches('\\').len();
    if open % 2 == 1 {
        return unescape(&text[..text.len() - 1]);
    }
    let mut bytes = unescape(text)?;
    bytes.extend(b"\r\n");
    Ok(bytes)
}

/// Encodes bytes for the message of a failed test. Long runs are cut in the middle.
pub(super) fn escape(bytes: &[u8]) -> String {
    const MOST: usize = 1200;
    if bytes.len() <= MOST {
        return bytes.escape_ascii().to_string().replace("\\r\\n", "\\r\\n\n      ");
    }
    let head = &bytes[..MOST / 2];
    let tail = &bytes[bytes.len() - MOST / 4..];
    format!("{} ... {} bytes ... {}", escape(head), bytes.len(), escape(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of a case is decoded to the bytes of its text and escapes, and an unknown escape is an error.
    #[test]
    fn line_unescapes_to_shown_bytes() {
        assert_eq!(decode_line("Host: a"), Ok(b"Host: a\r\n".to_vec()));
        assert_eq!(decode_line(""), Ok(b"\r\n".to_vec()));
        assert_eq!(decode_line("a\\n\\"), Ok(b"a\n".to_vec()));
        assert_eq!(decode_line("a\\\\"), Ok(b"a\\\r\n".to_vec()));
        assert_eq!(decode_line("\\x00\\0\\xff\\{2*a\\r}\\"), Ok(b"\0\0\xffa\ra\r".to_vec()));
        assert!(
            decode_line("\\q").is_err() && decode_line("\\x1").is_err() && decode_line("\\{a*b}").is_err()
        );
    }
}
