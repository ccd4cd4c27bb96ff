//! The commands that the program can print, as they stand in its sources.

use std::{fs, path::Path};

/// A command as the sources print it after `fencegate`. Parts in braces are filled in when it is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HintCommand {
    pub(super) file: String,
    pub(super) template: String,
}

const VERBS: [&str; 21] = [
    "run",
    "guard",
    "check",
    "reload",
    "ready",
    "members",
    "locks",
    "lock",
    "elect",
    "top",
    "drain",
    "explain",
    "init",
    "schema",
    "completions",
    "man",
    "era",
    "acl",
    "once",
    "keys",
    "verify",
];

/// Placeholders for values that the program does not have, or has only when it prints.
pub(super) const PLACEHOLDERS: [&str; 6] = ["E", "UUID", "POLICY", "CODE", "KEYFILE", "FILE"];

impl HintCommand {
    /// True if `typed` is this command with its placeholders filled in.
    pub(super) fn matches(&self, typed: &str) -> bool {
        let Some(typed) = typed.strip_prefix("fencegate ") else { return false };
        let open = |word| if PLACEHOLDERS.contains(&word) { "{}" } else { word };
        let template = self.template.split(' ').map(open).collect::<Vec<_>>().join(" ");
        if !template.contains('{') {
            let mut words = template.split(' ');
            let mut typed = typed.split(' ');
            return words.all(|word| typed.next() == Some(word));
        }
        let mut pieces =
            template.split_inclusive('}').map(|piece| piece.split('{').next().unwrap_or_default());
        let Some(mut rest) = typed.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
        pieces.all(|piece| {
            let behind = rest.split_once(piece).map(|(_, behind)| behind);
            rest = behind.unwrap_or_default();
            behind.is_some()
        })
    }
}

/// The commands that the sources of all crates except the tests can print.
pub(super) fn printed_in_sources() -> Vec<HintCommand> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut printed = Vec::new();
    for crates in ["gateway", "policies"] {
        each_source(&top.join(crates), &mut |file, text| {
            let name = file.strip_prefix(&top).unwrap_or(file).display().to_string();
            let all = commands(&program_text(text), &name);
            printed.extend(all.into_iter().map(|template| HintCommand { file: name.clone(), template }));
        });
    }
    assert!(printed.len() > 40, "not all were found: {printed:#?}");
    printed
}

fn each_source(folder: &Path, visit: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        // The examples in help texts name addresses and files that do not exist. A unit test beside them parses each
        // one.
        let is_test =
            ["tests", "tests.rs", "target", "cli/examples.rs"].iter().any(|name| path.ends_with(name));
        if path.is_dir() && !is_test {
            each_source(&path, visit);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            visit(&path, &fs::read_to_string(&path).expect("readable"));
        }
    }
}

/// The source text without comments and tests, and with each string literal in one line.
fn program_text(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut whole = String::new();
    for line in lines {
        match whole.strip_suffix("\\\n").map(str::len) {
            Some(continued) => {
                whole.truncate(continued);
                whole.push_str(line.trim_start());
            }
            None => whole.push_str(line),
        }
        whole.push('\n');
    }
    whole
}

/// Commands made by `command_hint::command_line`, and commands that stand in a text.
fn commands(text: &str, file: &str) -> Vec<String> {
    const MADE: &str = "command_hint::command_line(";
    let made = text.match_indices(MADE).map(|(at, _)| {
        let arguments = &text[at + MADE.len()..];
        let literal = arguments.split('"').nth(1).unwrap_or_default();
        let before = arguments.split('"').next().unwrap_or_default();
        let plain = before.chars().filter(|char| !char.is_whitespace()).collect::<String>();
        let in_place = ["CommandHintTarget::Gateway,", "CommandHintTarget::Guard,"].iter().any(|of| {
            plain
                .strip_prefix("command_hint::")
                .unwrap_or(&plain)
                .strip_prefix(of)
                .is_some_and(|rest| rest.is_empty() || rest == "&format!(")
        });
        assert!(
            in_place,
            "{file}: write the command as a text where it is made, so that it can be found: {before}"
        );
        literal.to_owned()
    });
    const NAME: &str = "fencegate ";
    let written = text.match_indices(NAME).filter_map(|(at, _)| {
        let before = &text[..at];
        let behind = &text[at + NAME.len()..];
        let verb = behind.split(|char: char| !char.is_ascii_lowercase()).next().unwrap_or_default();
        // Two matches are no commands: the first line of a file, and the name of a report.
        let is_none = before.ends_with("b\"") || before.ends_with("=\\\"");
        let ends = |char: char| ['`', '"', '\\', '\n', ';', '('].contains(&char);
        let template = behind.split(ends).next().unwrap_or_default().trim_end();
        (VERBS.contains(&verb) && !is_none).then(|| template.to_owned())
    });
    made.chain(written).collect()
}

/// A command is found both where `command_line` makes it and where it stands in a text.
#[test]
fn commands_are_found_in_sources() {
    let source = "
        // `fencegate era init` is no text of the program
        let one = command_hint::command_line(CommandHintTarget::Gateway, &format!(\"locks --after {}\", quoted(last)));
        #[error(\"make it with `fencegate era \\
                 init -c POLICY`, once\")]
    ";
    assert_eq!(commands(&program_text(source), "x"), ["locks --after {}", "era init -c POLICY"]);
    let printed = |template: &str| HintCommand { file: String::new(), template: template.to_owned() };
    assert!(printed("locks --after {}").matches("fencegate locks --after a/7 -c x.yaml"));
    assert!(printed("era bump --at-least E").matches("fencegate era bump --at-least 7"));
    assert!(printed("{verb} --at-least {}").matches("fencegate era init --at-least 7"));
    assert!(
        !printed("era bump").matches("fencegate era show")
            && !printed("era bump --force").matches("fencegate era bump")
    );
}
