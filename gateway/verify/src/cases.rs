//! All cases, in the order in which they are run.

mod crash;
mod forged;
mod in_time;
mod probe;
mod race;
mod readers;
mod sequential;
mod several;
mod width;

use super::case::TestCase;

const GROUPS: [&[TestCase]; 9] = [
    sequential::CASES,
    forged::CASES,
    width::CASES,
    several::CASES,
    readers::CASES,
    in_time::CASES,
    probe::CASES,
    race::CASES,
    crash::CASES,
];

pub fn all() -> impl Iterator<Item = &'static TestCase> {
    GROUPS.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Each case has a plain name of its own and texts that explain it.
    #[test]
    fn cases_have_unique_names_and_texts() {
        let mut names = HashSet::new();
        for case in all() {
            assert!(names.insert(case.name), "{} is there twice", case.name);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(case.name.chars().all(plain), "{}", case.name);
            for text in [case.title, case.money, case.mend] {
                assert!(text.len() > 20 && !text.ends_with('.'), "{}: {text}", case.name);
            }
        }
        assert!(names.len() >= 30, "{}", names.len());
    }
}
