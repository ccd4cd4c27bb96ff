//! The long story of each code: what is wrong, why it matters, what to write.

use super::Code;

const STORIES: &str = include_str!("stories.md");

impl Code {
    /// Reads [`Code::number`] back, in upper or lower case.
    pub fn parse(number: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.number().eq_ignore_ascii_case(number))
    }

    /// Three paragraphs: what is wrong, why it matters, what to write.
    pub fn story(self) -> &'static str {
        let all = || STORIES.split("\n## ").skip(1);
        let told = all().find_map(|story| story.strip_prefix(self.number())?.strip_prefix('\n'));
        told.expect("every code has a story").trim_end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_story_of_three_paragraphs() {
        for code in Code::ALL {
            let paragraphs: Vec<&str> = code.story().lines().collect();
            let [what, why, write] = *paragraphs else { panic!("{code}: {paragraphs:?}") };
            assert!(why.starts_with("Why: ") && write.starts_with("Write: "), "{code}");
            assert!([what, why, write].iter().all(|said| said.len() > 20 && said.ends_with('.')), "{code}");
        }
    }

    #[test]
    fn every_story_is_that_of_a_code_and_in_their_order() {
        let told: Vec<&str> = STORIES.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let codes: Vec<&str> = Code::ALL.iter().map(|code| code.number()).collect();
        assert_eq!(told, codes);
    }

    #[test]
    fn a_code_is_read_in_any_case_and_nothing_else_is_one() {
        assert_eq!(Code::parse("fg0203"), Some(Code::UnboundVariable));
        for other in ["FG0299", "0203", "", "POST /", "FG0203 "] {
            assert_eq!(Code::parse(other), None, "{other}");
        }
    }
}
