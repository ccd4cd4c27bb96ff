//! Groups the verbs in the help of the program by their purpose. clap itself only makes one list.

use std::fmt::Write as _;

use clap::Command;

/// The verbs below each heading, in the order in which a new user needs them.
const GROUPS: &[(&str, &[&str])] = &[
    ("See and try", &["demo", "init", "check", "explain"]),
    ("Serve", &["run", "guard", "ready", "reload", "drain"]),
    ("Look at running gateways", &["members", "locks", "lock", "lease", "top"]),
    ("Run a command under a lock", &["lock", "elect"]),
    ("Set up an installation", &["era", "acl", "keys"]),
    ("Operations and services", &["once", "verify"]),
    ("For editors and shells", &["schema", "completions", "man", "version", HELP]),
];

/// The verb that clap adds by itself.
const HELP: &str = "help";
const WRITES: &str = "a string takes what it is given";
const HELP_ABOUT: &str = "Print this message, or the help of a verb.";

/// The command, with its verbs listed in groups.
pub(super) fn with_verb_groups(command: Command) -> Command {
    let styles = command.get_styles();
    let header = *styles.get_header();
    let literal = *styles.get_literal();
    let width = GROUPS.iter().flat_map(|(_, verbs)| *verbs).map(|verb| verb.len()).max().unwrap_or(0);
    let mut lists = String::new();
    for (heading, verbs) in GROUPS {
        writeln!(lists, "{header}{heading}:{header:#}").expect(WRITES);
        for verb in *verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about);
            let about = about.map_or_else(|| HELP_ABOUT.to_owned(), ToString::to_string);
            let about = about.trim_end_matches('.');
            writeln!(lists, "  {literal}{verb:width$}{literal:#}  {about}").expect(WRITES);
        }
        lists.push('\n');
    }
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{lists}\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Each verb stands in one group with its description, and the groups contain nothing else.
    #[test]
    fn every_verb_is_in_a_group() {
        let mut command = super::super::command();
        let known: BTreeSet<String> =
            command.get_subcommands().map(|verb| verb.get_name().to_owned()).chain([HELP.into()]).collect();
        let listed: BTreeSet<String> =
            GROUPS.iter().flat_map(|(_, verbs)| *verbs).map(|verb| (*verb).to_owned()).collect();
        assert_eq!(known, listed);
        let help = command.render_help().to_string();
        for (heading, verbs) in GROUPS {
            let list = help.split(&format!("\n{heading}:\n")).nth(1).expect("the heading");
            let list = list.split("\n\n").next().expect("a list");
            assert_eq!(list.lines().count(), verbs.len(), "{help}");
            for (line, verb) in list.lines().zip(*verbs) {
                let mut words = line.split_whitespace();
                assert_eq!(words.next(), Some(*verb), "{help}");
                assert!(words.count() > 2, "`{verb}` says what it is for: {help}");
            }
        }
        assert!(help.contains("\nOptions:\n") && help.contains("--log-format"), "{help}");
    }
}
