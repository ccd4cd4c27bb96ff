//! Reads the time that a client is willing to wait (`Prefer: wait=5`, RFC 7240).

use std::time::Duration;

/// The wait in the `Prefer` lines of a request; `None` if there is none that can be parsed. A malformed preference is
/// ignored, and never a reason to refuse the request.
pub fn parse_wait<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Duration> {
    let preferences = lines.flat_map(|line| split_outside_quotes(line, b','));
    // Only the first preference of a name counts (RFC 7240, section 2), even if it cannot be parsed.
    let value = preferences.filter_map(wait_value).next()?;
    seconds(value)
}

/// Whether the client wants an immediate answer that its request was accepted (RFC 7240, section 4.1).
pub fn has_respond_async<'a>(lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut preferences = lines.flat_map(|line| split_outside_quotes(line, b','));
    preferences.any(|preference| {
        let name = split_outside_quotes(preference, b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"respond-async")
    })
}

/// The value of a `wait` preference, without its parameters; `None` for another preference.
fn wait_value(preference: &[u8]) -> Option<&[u8]> {
    let preference = split_outside_quotes(preference, b';').next()?;
    let equals = preference.iter().position(|byte| *byte == b'=').unwrap_or(preference.len());
    let (name, value) = preference.split_at(equals);
    name.trim_ascii().eq_ignore_ascii_case(b"wait").then(|| value.strip_prefix(b"=").unwrap_or_default())
}

/// Reads whole seconds, up to 2^31 (RFC 9111, section 1.2.2).
fn seconds(value: &[u8]) -> Option<Duration> {
    let digits = value.trim_ascii();
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let more = |seconds: u64, digit: &u8| seconds.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    all_digits.then(|| Duration::from_secs(digits.iter().fold(0, more).min(1 << 31)))
}

/// Splits a text at a separator, except within a quoted string (RFC 9110, section 5.6.4).
fn split_outside_quotes(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |byte| {
        let ends = !quoted && *byte == separator;
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
        ends
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_wait_seconds(lines: &[&str]) -> Option<u64> {
        parse_wait(lines.iter().map(|line| line.as_bytes())).map(|wait| wait.as_secs())
    }

    #[test]
    fn first_wait_counts() {
        for (lines, seconds) in [
            (&["wait=5"][..], Some(5)),
            (&["respond-async, WAIT = 10 ; x=y"], Some(10)),
            (&["return=minimal", "wait=0, wait=9"], Some(0)),
            (&["foo=\"a, wait=3\", wait=4"], Some(4)),
            (&["foo; bar=\"\\\"; , wait=3\"", "wait=007"], Some(7)),
            (&["wait=99999999999999999999999"], Some(1 << 31)),
            (&["wait-for=3, foo; wait=4, wait=5"], Some(5)),
        ] {
            assert_eq!(parse_wait_seconds(lines), seconds, "{lines:?}");
        }
    }

    /// A wait that is not a number of seconds is ignored.
    #[test]
    fn malformed_wait_is_ignored() {
        for lines in [
            &[][..],
            &[""],
            &["wait"],
            &["wait="],
            &["wait=-1"],
            &["wait=1.5"],
            &["wait=5s"],
            &["wait=\"5\""],
            &["wait=1 2"],
            &["wait=x, wait=5"],
            &["foo=\"wait=5"],
        ] {
            assert_eq!(parse_wait_seconds(lines), None, "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn any_lines_parse_without_panic(lines: Vec<Vec<u8>>) {
            let parsed = parse_wait(lines.iter().map(Vec::as_slice));
            prop_assert!(parsed.is_none_or(|wait| wait.as_secs() <= 1 << 31));
        }

        #[test]
        fn number_of_seconds_parses_as_written(seconds in 0..=1_u64 << 31, before in "([a-z]{1,3}=\"([a-z,;= ]|\\\\\")*\" ?[,;] ?){0,3}") {
            let line = format!("{before}x, wait={seconds}");
            prop_assert_eq!(parse_wait_seconds(&[&line]), Some(seconds), "{}", line);
        }
    }
}
