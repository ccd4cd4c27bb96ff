//! The parts of an Item (RFC 9651). Each reader returns its part and the bytes behind it.

/// The value of a parameter.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderParameterValue<'v> {
    /// The text between the quotes, with its escapes as they were sent.
    Text(&'v str),
    /// A number without a sign and without leading zeros.
    Number(u64),
    /// A value of another kind.
    Other,
}

type Read<'v, T> = Option<(T, &'v [u8])>;

/// Reads a number of at most 15 digits, without a sign and without leading zeros.
pub(super) fn digits(bytes: &[u8]) -> Read<'_, u64> {
    let (digits, rest) = while_in(bytes, |byte| byte.is_ascii_digit());
    let is_good = (1..=15).contains(&digits.len()) && (digits.len() == 1 || digits[0] != b'0');
    let number = str::from_utf8(digits).ok()?.parse().ok()?;
    is_good.then_some((number, rest))
}

/// Reads the name of a parameter.
pub(super) fn key(bytes: &[u8]) -> Read<'_, &[u8]> {
    let begins = matches!(bytes.first()?, b'a'..=b'z' | b'*');
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*');
    begins.then(|| while_in(bytes, is_inner))
}

/// Reads the value of a parameter.
pub(super) fn bare_item(bytes: &[u8]) -> Read<'_, HeaderParameterValue<'_>> {
    let (first, behind) = bytes.split_first()?;
    let other = |rest| Some((HeaderParameterValue::Other, rest));
    match first {
        b'"' => text(behind),
        b'%' => other(display_text(behind.strip_prefix(b"\"")?)?),
        b'?' => matches!(behind.first()?, b'0' | b'1').then_some((HeaderParameterValue::Other, &behind[1..])),
        b':' => {
            let (_, rest) = while_in(behind, |byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
            other(rest.strip_prefix(b":")?)
        }
        b'@' => other(integer(behind)?),
        b'-' | b'0'..=b'9' => number(bytes),
        b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
            let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
            other(while_in(bytes, is_inner).1)
        }
        _ => None,
    }
}

/// Reads an integer or a decimal.
fn number(bytes: &[u8]) -> Read<'_, HeaderParameterValue<'_>> {
    let rest = integer(bytes)?;
    let Some(fraction) = rest.strip_prefix(b".") else {
        // No parameter of `Fencing-Not-After` has a number with a sign or leading zeros, so such a number
        // counts as another kind of value.
        let own = digits(bytes).map(|(number, rest)| (HeaderParameterValue::Number(number), rest));
        return own.or(Some((HeaderParameterValue::Other, rest)));
    };
    let whole = bytes.len() - rest.len() - usize::from(bytes[0] == b'-');
    let (fraction, rest) = while_in(fraction, |byte| byte.is_ascii_digit());
    ((1..=3).contains(&fraction.len()) && whole <= 12).then_some((HeaderParameterValue::Other, rest))
}

/// The bytes behind an integer, which may have a sign and leading zeros.
fn integer(bytes: &[u8]) -> Option<&[u8]> {
    let (digits, rest) = while_in(bytes.strip_prefix(b"-").unwrap_or(bytes), |byte| byte.is_ascii_digit());
    (1..=15).contains(&digits.len()).then_some(rest)
}

/// Reads a string; `bytes` begin behind its first quote.
fn text(bytes: &[u8]) -> Read<'_, HeaderParameterValue<'_>> {
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            b'"' => {
                return Some((
                    HeaderParameterValue::Text(str::from_utf8(&bytes[..at]).ok()?),
                    &bytes[at + 1..],
                ));
            }
            b'\\' if matches!(bytes.get(at + 1)?, b'"' | b'\\') => at += 2,
            b'\\' => return None,
            b' '..=b'~' => at += 1,
            _ => return None,
        }
    }
}

/// The bytes behind a display string; `bytes` begin behind its first quote.
fn display_text(bytes: &[u8]) -> Option<&[u8]> {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(&bytes[at + 1..]),
            b'%' if bytes.get(at + 1..at + 3)?.iter().all(is_hex) => at += 3,
            b'%' => return None,
            b' '..=b'~' => at += 1,
            _ => return None,
        }
    }
}

fn while_in(bytes: &[u8], is_in: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().take_while(|byte| is_in(**byte)).count())
}
