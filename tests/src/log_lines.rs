//! The rule for every log line of every process under test: a line is one event, and the project's own events have
//! no debug forms of Rust values, because operators read them.

use serde_json::Value;

/// The first line that breaks the rule, with the reason.
pub(crate) fn invalid_line(log: &str) -> Option<String> {
    // The last line may be incomplete, because the process has ended.
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut lines = whole.lines().filter(|line| !line.is_empty());
    lines.find_map(|line| {
        if !line.starts_with('{') {
            return Some(format!("no event of its own: {line}"));
        }
        (has_rust_value(line) && is_said_to_people(line))
            .then(|| format!("a value as a programmer sees it: {line}"))
    })
}

/// True for an event of the project itself at a level that operators read.
fn is_said_to_people(line: &str) -> bool {
    let event: Value = serde_json::from_str(line).unwrap_or_default();
    let ours = event["target"].as_str().is_some_and(|target| target.starts_with("fencegate"));
    ours && ["INFO", "WARN", "ERROR"].iter().any(|level| event["level"] == *level)
}

/// True if the line has the debug form of a Rust value, such as `Some(7)` or `PlanDiff { added: ...`.
fn has_rust_value(line: &str) -> bool {
    let wrapped = ["Some(", "Ok(", "Err("].iter().any(|begin| {
        line.match_indices(begin)
            .any(|(at, _)| !line[..at].ends_with(|before: char| before.is_alphanumeric()))
    });
    let of_fields = line.match_indices(" { ").any(|(at, braces)| {
        let name = &line[..at];
        let behind = &line[at + braces.len()..];
        let name = name.rsplit(|char: char| !char.is_ascii_alphanumeric()).next().unwrap_or_default();
        let field = behind.split(':').next().unwrap_or_default();
        let is_field =
            !field.is_empty() && field.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase());
        name.starts_with(|first: char| first.is_ascii_uppercase()) && is_field
    });
    wrapped || of_fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(level: &str, said: &str) -> String {
        format!(
            "{{\"level\":\"{level}\",\"target\":\"fencegate::serve\",\"fields\":{{\"message\":\"{said}\"}}}}\n"
        )
    }

    /// A log line above debug level with the debug form of a Rust value, or in another format, is reported.
    #[test]
    fn debug_formatting_in_log_is_reported() {
        for said in ["waited Some(33.9µs)", "PlanDiff { added: [] }", "Os { code: 98, kind: AddrInUse }"] {
            assert!(invalid_line(&line("WARN", said)).is_some(), "{said}");
            assert_eq!(invalid_line(&line("DEBUG", said)), None);
        }
        assert!(invalid_line("warning[FG0307]: it passes\n").is_some());
        for said in ["key=acct/42 waited=1.2s", "write `{path.x}` { or not }", "FG0503: Awesome(1)"] {
            assert_eq!(invalid_line(&line("INFO", said)), None, "{said}");
        }
        assert_eq!(invalid_line("{\"level\":\"IN"), None, "cut off");
    }
}
