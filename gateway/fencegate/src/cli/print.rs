//! Prints texts: starter files, schemas, completion scripts, the manual page.

use std::{io, path::Path};

use clap::{Command, ValueEnum};
use fencegate_policies::schema;
use serde_json::{Value, json};

/// A file that works once its addresses are changed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum StarterPolicy {
    /// The least that does something: a lock per order in front of one service that compares nothing.
    Minimal,
    /// A gateway before a service with a guard; captures happen at most once.
    Payments,
    /// A gateway before a service that compares tokens; readers beside writers, two keys at once.
    Inventory,
    /// A gateway before the services of many tenants, told apart by host; values from the environment.
    MultiTenant,
    /// The guard beside the payment service.
    Guard,
    /// A filter beside one instance of a service: it refuses what comes too late, and has no store.
    Filter,
}

impl StarterPolicy {
    /// The text of the starter. Each starter is one of the tested examples, so there is no second copy to
    /// keep current.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Minimal => include_str!("../../../../policies/examples/minimal.yaml"),
            Self::Payments => include_str!("../../../../policies/examples/payments.yaml"),
            Self::Inventory => include_str!("../../../../policies/examples/inventory.yaml"),
            Self::MultiTenant => include_str!("../../../../policies/examples/multi-tenant.yaml"),
            Self::Guard => include_str!("../../../../policies/examples/guard.yaml"),
            Self::Filter => include_str!("../../../../policies/examples/filter.yaml"),
        }
    }
}

/// The names of the starters, each with a line of help.
pub(super) fn starters() -> String {
    let all = StarterPolicy::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let lines = all.map(|one| {
        let help = one.get_help().map(ToString::to_string).unwrap_or_default();
        format!("  {:13} {help}\n", one.get_name())
    });
    format!(
        "{}\nPrint one into a file, edit it, check it:\n  fencegate init minimal > policy.yaml\n  \
         fencegate check policy.yaml\nOr have one made out of the OpenAPI description of a service:\n  \
         fencegate init --openapi FILE > policy.yaml\n",
        lines.collect::<String>()
    )
}

/// One starter with its text, or all starters without their texts.
pub(super) fn starters_json(one: Option<StarterPolicy>) -> String {
    let describe = |starter: &StarterPolicy| -> Option<Value> {
        let shown = starter.to_possible_value()?;
        let help = shown.get_help().map(ToString::to_string).unwrap_or_default();
        Some(json!({ "name": shown.get_name(), "help": help }))
    };
    let document = match one {
        Some(starter) => {
            let mut document = describe(&starter).unwrap_or_default();
            document["policy"] = starter.text().into();
            document
        }
        None => {
            let all = StarterPolicy::value_variants().iter().filter_map(describe);
            json!({ "starters": all.collect::<Vec<_>>() })
        }
    };
    format!("{document:#}")
}

/// The schema. A test compares it with the fields that the reader of policies accepts.
pub(super) fn policy_json_schema(guard: bool) -> &'static str {
    match guard {
        false => schema::GATEWAY,
        true => schema::GUARD,
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(super) fn completions(mut command: Command, shell: Shell) -> Vec<u8> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "fencegate", &mut script);
    script
}

/// The manual page of the command alone. [`write_manuals`] writes the pages of its verbs.
pub(super) fn manual(command: Command) -> Vec<u8> {
    let mut page = Vec::new();
    clap_mangen::Man::new(without_help_subcommand(command))
        .render(&mut page)
        .expect("memory takes every byte");
    page
}

/// Writes the manual page of the command and of each verb into `folder`.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub(super) fn write_manuals(command: Command, folder: &Path) -> io::Result<()> {
    clap_mangen::generate_to(without_help_subcommand(command), folder)
}

/// Removes the verb `help`: it prints what `--help` does, and needs no page.
fn without_help_subcommand(command: Command) -> Command {
    command.disable_help_subcommand(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starters_are_listed_for_programs() {
        let all: Value = serde_json::from_str(&starters_json(None)).expect("JSON");
        let names: Vec<_> =
            all["starters"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["minimal", "payments", "inventory", "multi-tenant", "guard", "filter"]);
        for starter in StarterPolicy::value_variants() {
            let one: Value = serde_json::from_str(&starters_json(Some(*starter))).expect("JSON");
            assert_eq!(one["policy"], starter.text());
            assert!(all["starters"].as_array().expect("a list").iter().any(|listed| {
                listed["name"] == one["name"] && listed["help"] == one["help"] && one["help"] != ""
            }));
        }
    }

    /// Each page that the manual page of the command names exists, and has the options of its verb.
    #[test]
    fn manual_pages_exist_for_named_verbs() {
        let folder = tempfile::tempdir().expect("a folder");
        write_manuals(super::super::command(), folder.path()).expect("written");
        let page = String::from_utf8(manual(super::super::command())).expect("text");
        let named: Vec<_> = page.lines().filter_map(|line| line.strip_suffix("(1)")).collect();
        assert!(named.len() > 20, "{page}");
        for name in named {
            let file = folder.path().join(format!("{}.1", name.replace('\\', "")));
            assert!(file.is_file(), "{}", file.display());
        }
        let lock = std::fs::read_to_string(folder.path().join("fencegate-lock.1")).expect("written");
        assert!(lock.contains("conflict") && lock.contains("FENCING_TOKEN"), "{lock}");
    }
}
