//! Renders a diagnostic for a terminal: code, place, the faulty line with a caret, and the remedy.

use std::fmt::{self, Write};

use super::{Diagnostic, SourceSpan};

impl Diagnostic {
    /// The diagnostic as text of one or several lines, without a newline at its end.
    ///
    /// `file`: the name to show. `source`: the text that was loaded.
    pub fn render(&self, file: &str, source: &str) -> String {
        let mut text = String::new();
        self.write(&mut text, file, source).expect("a string takes all that is written");
        text
    }

    fn write(&self, out: &mut String, file: &str, source: &str) -> fmt::Result {
        write!(out, "{}[{}]: {}", self.severity, self.code, Printable(&self.message))?;
        let Some(place) = self.place else {
            write!(out, "\n  --> {}", Printable(file))?;
            return self.remedy.iter().try_for_each(|remedy| write!(out, "\n   = {}", Printable(remedy)));
        };
        let line = source.lines().nth(place.line.saturating_sub(1)).unwrap_or_default();
        let gutter = place.line.to_string().len();
        write!(out, "\n{:gutter$}--> {}:{}:{}", "", Printable(file), place.line, place.column)?;
        write!(out, "\n{} | {}", place.line, Printable(line))?;
        write!(out, "\n{:gutter$} | {}{}", "", indent(line, place), "^".repeat(place.width.max(1)))?;
        self.remedy.iter().try_for_each(|remedy| write!(out, " {}", Printable(remedy)))
    }
}

/// The indentation of the caret: as wide as the text before the place. A tab stays a tab, so that the caret stands
/// below its character.
fn indent(line: &str, place: SourceSpan) -> String {
    let before = place.column.saturating_sub(1);
    let blank = |char| if char == '\t' { '\t' } else { ' ' };
    line.chars().map(blank).chain(std::iter::repeat(' ')).take(before).collect()
}

/// A text of the file, with control characters replaced so that it cannot control a terminal.
struct Printable<'a>(&'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            |char: char| if char.is_control() && char != '\t' { char::REPLACEMENT_CHARACTER } else { char };
        self.0.chars().map(shown).try_for_each(|char| f.write_char(char))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::DiagnosticCode;

    fn diagnostic_at(line: usize, column: usize, width: usize) -> Diagnostic {
        Diagnostic::new(DiagnosticCode::UnboundVariable, "`x` is wrong").at(SourceSpan {
            line,
            column,
            width,
        })
    }

    /// The caret stands below the faulty text.
    #[test]
    fn caret_marks_wrong_text() {
        let source = format!("{}key: {{x}}\n", "\n".repeat(37));
        assert_eq!(
            diagnostic_at(38, 6, 3).with_remedy("did you mean `y`?").render("a.yaml", &source),
            "error[FG0203]: `x` is wrong\n  --> a.yaml:38:6\n38 | key: {x}\n   |      ^^^ did you mean `y`?"
        );
        assert_eq!(
            diagnostic_at(1, 3, 1).render("a.yaml", "\tkey\r\n"),
            "error[FG0203]: `x` is wrong\n --> a.yaml:1:3\n1 | \tkey\n  | \t ^"
        );
    }

    #[test]
    fn diagnostic_without_place_names_file() {
        let diagnostic =
            Diagnostic::new(DiagnosticCode::SessionNegotiated, "4s, not 12s").with_remedy("ask for less");
        assert_eq!(
            diagnostic.render("a.yaml", ""),
            "warning[FG0501]: 4s, not 12s\n  --> a.yaml\n   = ask for less"
        );
    }

    /// No escape sequence of a file reaches the terminal.
    #[test]
    fn rendered_file_moves_no_cursor() {
        let text = diagnostic_at(1, 1, 1).render("a\u{1b}.yaml", "\u{1b}[2Jkey");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    /// A place beyond the end of the text is rendered without an error.
    #[test]
    fn place_beyond_text_is_rendered() {
        assert!(diagnostic_at(9, 9, 0).render("a.yaml", "").ends_with("9 | \n  |         ^"));
    }
}
