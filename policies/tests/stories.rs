//! The example of each story has exactly the mistake of the story before the correction, and none after it.

use std::{fs, path::Path};

use fencegate_policies::{
    diagnostics::{DiagnosticCode, MistakeExample, Severity},
    file::{load, load_guard},
};

/// The sections of a file: each line that begins in the first column, with the lines below it.
fn sections(text: &str) -> Vec<String> {
    let mut sections: Vec<String> = Vec::new();
    for line in text.lines() {
        let begins = line.starts_with(|first: char| !first.is_whitespace() && first != '#');
        match sections.last_mut() {
            Some(section) if !begins => section.push_str(&format!("{line}\n")),
            _ => sections.push(format!("{line}\n")),
        }
    }
    sections
}

/// The name of a section.
fn name(section: &str) -> &str {
    section.split(':').next().unwrap_or_default()
}

/// The starter file, with its sections replaced by those of the example. An example with `version` and other sections
/// is complete by itself.
fn complete_example(example: &str, starter: &str) -> String {
    let starter = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{starter}.yaml"));
    let starter = fs::read_to_string(starter).expect("it is there");
    let shown = sections(example);
    if shown.len() > 1 && shown.iter().any(|section| name(section) == "version") {
        return example.to_owned();
    }
    let left = sections(&starter);
    let left = left.iter().filter(|section| !shown.iter().any(|one| name(one) == name(section)));
    left.cloned().chain(shown.iter().cloned()).collect()
}

/// The codes reported for an example, and their text. Hints are included only if the example is about one.
fn codes(about: DiagnosticCode, example: &str, starter: &str) -> (Vec<DiagnosticCode>, String) {
    let file = complete_example(example, starter);
    let (mut diagnostics, hints) = match starter {
        "guard" => {
            let loaded = load_guard(&file);
            (loaded.diagnostics, loaded.hints)
        }
        _ => {
            let loaded = load(&file);
            (loaded.diagnostics, loaded.hints)
        }
    };
    if about.severity() == Severity::Hint {
        diagnostics.extend(hints);
    }
    let shown: String = diagnostics.iter().map(|one| one.render("example", &file) + "\n").collect();
    let mut codes: Vec<DiagnosticCode> = diagnostics.into_iter().map(|one| one.code).collect();
    codes.dedup();
    (codes, shown)
}

/// Mistakes that are always accompanied by another one, with that one.
const ALSO: [(DiagnosticCode, DiagnosticCode); 2] = [
    (DiagnosticCode::UnlikeEnforce, DiagnosticCode::Observed),
    (DiagnosticCode::PlainClientName, DiagnosticCode::PlainPeer),
];

/// The codes that a file can have. Codes from FG05 on are reported at start or by a command.
fn file_codes() -> impl Iterator<Item = DiagnosticCode> {
    DiagnosticCode::ALL.iter().copied().filter(|code| code.number() < "FG05")
}

/// Each mistake that a file can have has an example.
#[test]
fn each_code_has_example() {
    let without: Vec<DiagnosticCode> = file_codes().filter(|code| code.example().is_none()).collect();
    assert!(without.is_empty(), "give each a `Before:` and an `After:` in stories.md: {without:?}");
}

/// Each example has its mistake before the correction, and none after it.
#[test]
fn example_fails_before_passes_after() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for code in DiagnosticCode::ALL {
        let Some(MistakeExample { starter, before, after }) = code.example() else { continue };
        count += 1;
        let (mut met, shown) = codes(*code, &before, starter);
        met.retain(|one| !ALSO.contains(&(*code, *one)));
        if met != [*code] {
            wrong.push(format!("{code}: before:\n{shown}"));
        }
        let (met, shown) = codes(*code, &after, starter);
        if !met.is_empty() {
            wrong.push(format!("{code}: after:\n{shown}"));
        }
    }
    assert_eq!(count, file_codes().count(), "an example of what no file alone can show");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
