//! The explanation of each code: what is wrong, why it matters, what to write, and a file before and after.

use super::DiagnosticCode;

const STORIES: &str = include_str!("stories.md");

/// A file with the mistake, and the same file without the mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MistakeExample {
    /// The starter file that completes the example: `minimal`, or `guard` where the mistake is in the file of a
    /// guard.
    pub starter: &'static str,
    pub before: String,
    pub after: String,
}

const BEFORE: &str = "\nBefore:\n";
const BEFORE_OF_A_GUARD: &str = "\nBefore, in the file of a guard:\n";
const AFTER: &str = "\nAfter:\n";

impl DiagnosticCode {
    /// Reads [`DiagnosticCode::number`] back, in upper or lower case.
    pub fn parse(number: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.number().eq_ignore_ascii_case(number))
    }

    /// The explanation: three paragraphs (what is wrong, why it matters, what to write), and an example if
    /// there is one.
    pub fn explanation(self) -> &'static str {
        let all = || STORIES.split("\n## ").skip(1);
        let told = all().find_map(|story| story.strip_prefix(self.number())?.strip_prefix('\n'));
        told.expect("every code has a story").trim_end()
    }

    /// The example; every mistake that shows in the file alone has one.
    pub fn example(self) -> Option<MistakeExample> {
        let story = self.explanation();
        let shown = |begins, starter| story.split_once(begins).map(|(_, example)| (starter, example));
        let (starter, example) = shown(BEFORE, "minimal").or_else(|| shown(BEFORE_OF_A_GUARD, "guard"))?;
        let (before, after) = example.split_once(AFTER)?;
        Some(MistakeExample { starter, before: dedent(before), after: dedent(after) })
    }
}

/// The lines of an indented Markdown code block, without their indentation.
fn dedent(block: &str) -> String {
    block.lines().filter_map(|line| line.strip_prefix("    ")).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each code has an explanation of three paragraphs: what it means, why it matters, and what to write.
    #[test]
    fn each_code_has_three_paragraphs() {
        for code in DiagnosticCode::ALL {
            let paragraphs: Vec<&str> =
                code.explanation().lines().take_while(|line| !line.is_empty()).collect();
            let [what, why, write] = *paragraphs else { panic!("{code}: {paragraphs:?}") };
            assert!(why.starts_with("Why: ") && write.starts_with("Write: "), "{code}");
            assert!(
                [what, why, write].iter().all(|paragraph| paragraph.len() > 20 && paragraph.ends_with('.')),
                "{code}"
            );
        }
    }

    /// Each explanation belongs to a code, and the explanations are in the order of the codes.
    #[test]
    fn stories_follow_order_of_codes() {
        let headings: Vec<&str> = STORIES.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let codes: Vec<&str> = DiagnosticCode::ALL.iter().map(|code| code.number()).collect();
        assert_eq!(headings, codes);
    }

    /// A code is read in upper and lower case, and no other text is a code.
    #[test]
    fn code_parses_in_any_case() {
        assert_eq!(DiagnosticCode::parse("fg0203"), Some(DiagnosticCode::UnboundVariable));
        for other in ["FG0299", "0203", "", "POST /", "FG0203 "] {
            assert_eq!(DiagnosticCode::parse(other), None, "{other}");
        }
    }
}
