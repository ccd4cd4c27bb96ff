//! The shipped rules with all their durations divided by sixty, so that a minute in production becomes a second in a
//! test.

use std::fmt::Write as _;

/// The divisor of all durations.
const TIMES: u64 = 60;

/// The longest time that a rule looks back, before the division. Longer times are cut to it, because tests wait
/// until alerts end. Times of a day or more are only divided.
const LONGEST_MILLIS: u64 = 10 * 60 * 1000;
const DAY_MILLIS: u64 = 86_400_000;

/// Divides the durations in a file of rules: `for: 5m` becomes `for: 5000ms`, `[10m]` and `[1h]` become `[10000ms]`.
/// Numbers in expressions, texts, and names such as `rate5m` stay the same.
pub fn speed_up(rules: &str) -> String {
    let mut written = String::with_capacity(rules.len());
    let mut rest = rules;
    let mut before = '\n';
    while let Some(next) = rest.chars().next() {
        let found = matches!(before, '[' | ':' | ' ').then(|| duration(rest)).flatten();
        let length = match found {
            Some((millis, length)) => {
                let looks_back = before == '[' && millis < DAY_MILLIS;
                let millis = if looks_back { millis.min(LONGEST_MILLIS) } else { millis };
                write!(written, "{}ms", millis / TIMES).expect("memory");
                length
            }
            None => {
                written.push(next);
                next.len_utf8()
            }
        };
        before = rest[..length].chars().next_back().expect("not empty");
        rest = &rest[length..];
    }
    written
}

/// Parses a duration at the beginning of a text. Returns its milliseconds, and the number of bytes that it takes.
fn duration(text: &str) -> Option<(u64, usize)> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let mut behind = text[digits..].chars();
    let unit = match behind.next()? {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let ends = behind.next().is_none_or(|c| matches!(c, ']' | ':' | ' ' | ')' | '\n'));
    ends.then_some((number * unit * 1000, digits + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The durations in rules are divided by sixty. Numbers, names and quoted text stay the same.
    #[test]
    fn only_durations_are_shortened() {
        let rules = "for: 5m\nx: sum_over_time((a > 8)[10m:15s]) > 20 offset 15m unless x:rate5m + p99_5m * 86400\n[1d] [1h] # 15 s";
        let expected = "for: 5000ms\nx: sum_over_time((a > 8)[10000ms:250ms]) > 20 offset 15000ms unless x:rate5m + p99_5m * 86400\n[1440000ms] [10000ms] # 15 s";
        assert_eq!(speed_up(rules), expected);
    }
}
