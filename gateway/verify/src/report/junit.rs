//! The report as JUnit's XML, which most CI systems read.

use std::fmt::Write;

use super::{CaseReport, VerifyReport};
use crate::{case_result::CaseResult, service::TestedService};

pub fn render_junit(service: &TestedService, report: &VerifyReport) -> String {
    let counts = report.counts();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    let urls: Vec<&str> = service.instances.iter().map(|one| one.url.as_str()).collect();
    writeln!(
        xml,
        "<testsuite name=\"fencegate verify {}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\">",
        escape_xml(&urls.join(" ")),
        report.entries.len(),
        counts.failed,
        counts.undecided,
        counts.skipped,
        report.took.as_secs_f64()
    )
    .expect("memory takes every byte");
    for entry in &report.entries {
        xml.push_str(&case(entry));
    }
    xml.push_str("</testsuite>\n</testsuites>\n");
    xml
}

/// An undecided case counts as an error, which is neither a failure nor a pass.
fn case(entry: &CaseReport) -> String {
    let case = entry.case;
    let head = format!(
        "<testcase classname=\"fencegate.verify.{}\" name=\"{}: {}\" time=\"{:.3}\"",
        case.group.as_str(),
        escape_xml(case.name),
        escape_xml(case.title),
        entry.took.as_secs_f64()
    );
    let inner = match &entry.verdict {
        CaseResult::Passed(_) => return format!("{head}/>\n"),
        CaseResult::Skipped(reason) => format!("<skipped message=\"{}\"/>", escape_xml(reason)),
        CaseResult::Failed(reason) => render_element("failure", reason, entry),
        CaseResult::Undecided(reason) => render_element("error", reason, entry),
    };
    format!("{head}>\n{inner}\n</testcase>\n")
}

fn render_element(element: &str, reason: &str, entry: &CaseReport) -> String {
    let text = super::text::render_entry(entry);
    format!(
        "<{element} type=\"{element}\" message=\"{}\">{}</{element}>",
        escape_xml(reason),
        escape_xml(&text)
    )
}

/// Escapes text and attributes in double quotes. Characters that XML 1.0 cannot contain become U+FFFD (section 2.2).
fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No text ends its element or attribute in the JUnit report.
    #[test]
    fn escaped_text_ends_no_element() {
        assert_eq!(escape_xml("a<b>&\"c\"\n]]>"), "a&lt;b&gt;&amp;&quot;c&quot;&#10;]]&gt;");
        assert_eq!(escape_xml("\u{1b}[1m\0"), "\u{fffd}[1m\u{fffd}");
    }
}
