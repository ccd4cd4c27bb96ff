//! Splits queries, forms and cookies as lenient services do, so that every field is found in which some service could
//! see a name.

use std::borrow::Cow;

use crate::path::decode_escape;

/// The most fields of one source that are compared. By default a service accepts at most a thousand.
pub(super) const MOST: usize = 10_000;

/// The names and values of a form or query, undecoded. Some readers also separate fields at semicolons, so the fields
/// of that reading follow.
pub(super) fn form_fields(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let pieces = text.split(|byte| *byte == b'&').flat_map(|piece| {
        let parts = piece.split(|byte| *byte == b';');
        let more = piece.contains(&b';');
        std::iter::once(piece).chain(parts.filter(move |_| more))
    });
    pieces.filter(|piece| !piece.is_empty()).map(pair)
}

/// The names and values of one `Cookie` line, undecoded. Some readers also separate cookies at commas.
pub(super) fn cookies(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let pieces = line.split(|byte| *byte == b';').flat_map(|piece| {
        let parts = piece.split(|byte| *byte == b',');
        let more = piece.contains(&b',');
        std::iter::once(piece).chain(parts.filter(move |_| more))
    });
    pieces.map(<[u8]>::trim_ascii).filter(|piece| !piece.is_empty()).map(pair)
}

fn pair(piece: &[u8]) -> (&[u8], &[u8]) {
    match piece.iter().position(|byte| *byte == b'=') {
        Some(at) => (&piece[..at], &piece[at + 1..]),
        None => (piece, b""),
    }
}

/// Decodes percent-escapes. An escape without two digits is kept as it is.
pub(super) fn decode_leniently(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return raw.into();
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [first, after @ ..] = rest {
        rest = after;
        decoded.push(match first {
            b'%' => match decode_escape(after) {
                Some((byte, behind)) => {
                    rest = behind;
                    byte
                }
                None => b'%',
            },
            b'+' => b' ',
            other => *other,
        });
    }
    decoded.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded_fields(text: &str) -> Vec<(String, String)> {
        let text = form_fields(text.as_bytes());
        let read = |bytes: &[u8]| String::from_utf8_lossy(&decode_leniently(bytes)).into_owned();
        text.map(|(name, value)| (read(name), read(value))).collect()
    }

    /// Every field that some reader of a form or a cookie could find is found.
    #[test]
    fn every_possible_field_is_found() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(decoded_fields("a=1&&b=x+y%2B&c"), pairs(&[("a", "1"), ("b", "x y+"), ("c", "")]));
        assert_eq!(decoded_fields("a=1;id=2"), pairs(&[("a", "1;id=2"), ("a", "1"), ("id", "2")]));
        assert_eq!(decoded_fields("%69d=%zz%"), pairs(&[("id", "%zz%")]));
        let line: Vec<_> = cookies(b"a=1; id=2,c;;").collect();
        assert_eq!(line, [(&b"a"[..], &b"1"[..]), (b"id", b"2,c"), (b"id", b"2"), (b"c", b"")]);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(form_fields(&bytes).count() <= 2 * bytes.len());
            prop_assert!(cookies(&bytes).count() <= 2 * bytes.len());
        }
    }
}
