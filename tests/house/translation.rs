//! Compares a translation with its original: each section must have the same commands, code, links and figures.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

/// The marker in a translation after which there is no original.
const OWN: &str = "<!-- From here on there is no English counterpart. -->";

/// The translated part of the document, and the part after the marker.
pub(crate) fn split_at_marker(translation: &str) -> (&str, &str) {
    translation.split_once(OWN).unwrap_or((translation, ""))
}

/// A document, and the folder below the root that contains it.
pub(crate) struct Document<'a> {
    pub(crate) folder: &'a str,
    pub(crate) text: &'a str,
}

/// The differences between two documents that would change what a reader does or sees.
pub(crate) fn differences(original: &Document<'_>, translation: &Document<'_>) -> Vec<String> {
    let ours = sections(original);
    let theirs = sections(translation);
    if ours.len() != theirs.len() {
        return vec![format!("{} sections, and {} translated", ours.len(), theirs.len())];
    }
    let pairs = ours.iter().zip(&theirs).enumerate();
    let told = pairs.flat_map(|(n, (ours, theirs))| {
        let kinds = [
            ("code", &ours.code, &theirs.code),
            ("words of code", &ours.words, &theirs.words),
            ("links", &ours.links, &theirs.links),
            ("figures", &ours.figures, &theirs.figures),
        ];
        kinds.map(|(kind, ours, theirs)| match ours == theirs {
            true => None,
            false => Some(format!("section {n}, {kind}:\n  {ours:?}\n  {theirs:?}")),
        })
    });
    told.flatten().collect()
}

/// The numbers in a text. Code and links are left out; comments in code count.
pub(crate) fn figures(text: &str) -> Vec<String> {
    let comments = code_lines(text).filter_map(|line| line.split_once("  #")).map(|(_, comment)| comment);
    let text =
        text_without_code(&without_code(text).join("\n")) + "\n" + &comments.collect::<Vec<_>>().join("\n");
    let pieces = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    let numbers = pieces.map(|piece| piece.trim_matches('.').to_owned());
    numbers.filter(|number| !number.is_empty()).collect()
}

#[derive(Default)]
struct TranslatedSection {
    /// Lines of code blocks, in their order and without comments.
    code: Vec<String>,
    /// The texts between backticks.
    words: Vec<String>,
    /// The targets of links, as paths from the root.
    links: Vec<String>,
    figures: Vec<String>,
}

fn sections(document: &Document<'_>) -> Vec<TranslatedSection> {
    let mut texts = vec![String::new()];
    for line in document.text.lines() {
        if line.starts_with("## ") {
            texts.push(String::new());
        }
        let last = texts.last_mut().expect("there is one");
        last.push_str(line);
        last.push('\n');
    }
    texts.iter().map(|text| section(document.folder, text)).collect()
}

fn section(folder: &str, text: &str) -> TranslatedSection {
    let prose = without_code(text).join("\n");
    let sorted = |mut all: Vec<String>| {
        all.sort();
        all
    };
    TranslatedSection {
        code: code(text),
        words: sorted(prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()),
        links: sorted(links(folder, &prose)),
        figures: sorted(figures(text)),
    }
}

fn code(text: &str) -> Vec<String> {
    let bare =
        code_lines(text).map(|line| line.split("  #").next().unwrap_or_default().trim_end().to_owned());
    bare.filter(|line| !line.is_empty()).collect()
}

fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut prose = without_code(text).into_iter().peekable();
    text.lines().filter(move |line| prose.next_if_eq(line).is_none())
}

/// The lines outside of code blocks, fenced or indented.
fn without_code(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let outside = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fenced && !fence && !line.starts_with("    ")
    });
    outside.collect()
}

/// The targets of links, without the links between the two documents.
fn links(folder: &str, prose: &str) -> Vec<String> {
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named = targets.map(|target| {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        format!("{}#{heading}", from_root(folder, file).display())
    });
    named.filter(|link| !link.contains("README.zh-CN.md") && link != "README.md#").collect()
}

fn from_root(folder: &str, file: &str) -> PathBuf {
    let mut at = PathBuf::from(folder);
    for step in Path::new(file).components() {
        match step {
            Component::ParentDir => drop(at.pop()),
            step => at.push(step),
        }
    }
    at
}

/// The text without code between backticks and without the targets of links.
fn text_without_code(text: &str) -> String {
    let worded: String = text.split('`').step_by(2).collect();
    let pieces = worded.split("](");
    let said = pieces.enumerate().map(|(n, piece)| match n {
        0 => piece,
        _ => piece.split_once(')').map_or("", |(_, behind)| behind),
    });
    said.collect()
}

/// Compares the titles of a glossary with the first cells of a table. Returns each title with a positive number if
/// cells are missing, and a negative number if cells have no title.
pub(crate) fn term_problems(glossary: &str, translated: &str) -> Vec<String> {
    let mut balance = BTreeMap::<&str, i32>::new();
    for term in glossary.lines().filter_map(|line| line.strip_prefix("#### ")) {
        *balance.entry(term).or_default() += 1;
    }
    let (_, table) = translated.split_once("|---|---|---|\n").unwrap_or_default();
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        *balance.entry(row.split('|').nth(1).unwrap_or_default().trim()).or_default() -= 1;
    }
    let off = balance.into_iter().filter(|(_, count)| *count != 0);
    off.map(|(term, count)| format!("{term}: {count}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command, link, code or figure that differs from the original is reported.
    #[test]
    fn differing_command_or_figure_is_reported() {
        let original =
            "# A\n\n    run it  # 7 now\n\nTwo of 35 `x`.\n\n## B\n\n[more](docs/c.md#d)\n\n```sh\nls\n```\n";
        let same =
            "# 甲\n\n    run it  # 现在 7\n\n`x` 中的 35。\n\n## 乙\n\n[更多](c.md#d)\n\n```sh\nls\n```\n";
        let differs = |text: &str| {
            let original = Document { folder: "", text: original };
            differences(&original, &Document { folder: "docs", text }).len()
        };
        assert_eq!(differs(same), 0);
        for (word, other) in [
            ("run it", "run that"),
            ("35", "36"),
            ("7", "8"),
            ("c.md", "e.md"),
            ("ls", "ps"),
            ("`x`", "x"),
            ("## 乙", "乙"),
        ] {
            assert_eq!(differs(&same.replace(word, other)), 1, "{word}");
        }
    }

    #[test]
    fn untranslated_term_is_reported() {
        let table = "| a | b | c |\n|---|---|---|\n| Key | 键 | - |\n| Lock | 锁 | - |\n";
        assert_eq!(term_problems("#### Key\n#### Mark\n", table), ["Lock: -1", "Mark: 1"]);
    }
}
