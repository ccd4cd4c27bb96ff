//! The examples at the end of the help of each verb.

use clap::Command;

/// Command lines for each path of a verb; they can be typed as they are.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("run", &["fencegate run -c policy.yaml", "fencegate run -c policy.yaml --watch"]),
    (
        "guard",
        &[
            "fencegate guard -c guard.yaml --init --floor 4711 --ensemble 1b4e28ba-2fa1-11d2-883f-0016d3cca427",
            "fencegate guard -c guard.yaml",
        ],
    ),
    ("guard ready", &["fencegate guard ready -c guard.yaml"]),
    (
        "guard show",
        &["fencegate guard show -c guard.yaml", "fencegate guard show account/7 -c guard.yaml -o json"],
    ),
    ("guard resolve", &["fencegate guard resolve 00c9a1b2 --as not-done -c guard.yaml"]),
    ("guard forget", &["fencegate guard forget 00c9a1b2 -c guard.yaml"]),
    ("guard backup", &["fencegate guard backup night.backup -c guard.yaml"]),
    ("guard restore", &["fencegate guard restore night.backup -c guard.yaml --policy policy.yaml"]),
    (
        "guard migrate",
        &[
            "fencegate guard migrate --from redb:/var/lib/fencegate/guard.redb --to postgres -c guard.yaml --dry-run",
        ],
    ),
    (
        "check",
        &[
            "fencegate check policy.yaml",
            "fencegate check policy.yaml --online --strict",
            "fencegate check policy.yaml --request 'POST /v1/orders/42/capture' --variants",
            "fencegate check - < policy.yaml",
        ],
    ),
    ("reload", &["fencegate reload --dry-run --fleet -c policy.yaml", "fencegate reload -c policy.yaml"]),
    ("ready", &["fencegate ready -c policy.yaml --within 2s"]),
    ("members", &["fencegate members -c policy.yaml"]),
    ("locks", &["fencegate locks -c policy.yaml --wanted", "fencegate locks --admin 10.0.0.7:9901 -o json"]),
    (
        "lock",
        &[
            "fencegate lock job/nightly --wait 0s --conflict-exit-code 0 -c policy.yaml -- ./nightly",
            "fencegate lock account/42 --gateway https://gw-1:8443 --bearer-file token -- ./repair-account 42",
        ],
    ),
    ("lock show", &["fencegate lock show account/42 -c policy.yaml"]),
    ("lock break", &["fencegate lock break account/42 --yes -c policy.yaml"]),
    ("lease list", &["fencegate lease list -c policy.yaml --key account/42"]),
    ("lease show", &["fencegate lease show 7c1f09d2 -c policy.yaml"]),
    ("lease revoke", &["fencegate lease revoke 7c1f09d2 --why 'the job hangs' -c policy.yaml"]),
    ("lease break", &["fencegate lease break 7c1f09d2 --why 'the machine is gone' --yes -c policy.yaml"]),
    ("elect", &["fencegate elect billing --again -c policy.yaml -- ./billing-worker"]),
    ("top", &["fencegate top -c policy.yaml", "fencegate top -c policy.yaml -o json"]),
    ("drain", &["fencegate drain --wait -c policy.yaml"]),
    (
        "explain",
        &[
            "fencegate explain -c policy.yaml 'POST /v1/orders/42/capture'",
            "fencegate explain -c policy.yaml 'POST /v1/transfers' -d '{\"from\":\"A\",\"to\":\"B\"}'",
            "fencegate explain -c policy.yaml 'POST /v1/orders/42/capture' --variants",
            "fencegate explain FG0203",
        ],
    ),
    (
        "init",
        &[
            "fencegate init minimal > policy.yaml",
            "fencegate init --openapi openapi.yaml > policy.yaml",
            "fencegate init -o json",
        ],
    ),
    ("schema", &["fencegate schema > policy.schema.json"]),
    ("completions", &["fencegate completions bash > /etc/bash_completion.d/fencegate"]),
    ("man", &["fencegate man | man -l -", "fencegate man --into man1"]),
    ("version", &["fencegate version"]),
    ("era init", &["fencegate era init -c policy.yaml"]),
    ("era show", &["fencegate era show -c policy.yaml"]),
    ("era bump", &["fencegate era bump -c policy.yaml"]),
    ("acl show", &["fencegate acl show -c policy.yaml", "fencegate acl show -c policy.yaml -o json"]),
    ("acl set", &["fencegate acl set -c policy.yaml"]),
    ("once list", &["fencegate once list -c policy.yaml"]),
    ("once resolve", &["fencegate once resolve 00c9a1b2 --as not-done -c policy.yaml"]),
    ("keys new", &["fencegate keys new gateway-key.json"]),
    ("keys public", &["fencegate keys public gateway-key.json > gateway-keys.json"]),
    (
        "verify",
        &[
            "fencegate verify http://127.0.0.1:8000 --request 'POST /v1/accounts/{key}/debit' --fencing-key 'account/{key}'",
            "fencegate verify --list",
        ],
    ),
    ("demo", &["fencegate demo --once", "fencegate demo --compare"]),
];

/// The command, with examples at the end of the help of each verb.
pub(super) fn with_examples(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (path, lines)| {
        let path: Vec<&str> = path.split(' ').collect();
        append(command, &path, lines)
    })
}

fn append(command: Command, path: &[&str], lines: &[&str]) -> Command {
    let [verb, rest @ ..] = path else {
        let before = command.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
        let lines: String = lines.iter().map(|line| format!("\n    {line}")).collect();
        return command.after_help(format!("{before}Examples:{lines}"));
    };
    command.mut_subcommand(verb, |found| append(found, rest, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        // A pipe or a redirection is for the shell, so it is not part of the command line to parse.
        for letter in
            line.split(" | ").next().unwrap_or_default().split(" > ").next().unwrap_or_default().chars()
        {
            match letter {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                other => words.last_mut().expect("one").push(other),
            }
        }
        let words = words.into_iter().take_while(|word| word != "<");
        words.collect()
    }

    /// Every verb has examples in its help, and each of them is a valid command line.
    #[test]
    fn every_verb_has_examples_that_parse() {
        let command = super::super::command();
        let mut without = Vec::new();
        super::super::tests::for_each_command(&command, "", &mut |path, verb| {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            // A verb that only groups other verbs is never typed alone, so it needs no examples.
            if !path.is_empty() && !verb.is_subcommand_required_set() && !help.contains("Examples:") {
                without.push(path.to_owned());
            }
        });
        assert!(without.is_empty(), "{without:?}");
        for (path, lines) in EXAMPLES {
            for line in *lines {
                assert!(line.starts_with(&format!("fencegate {path}")), "{line}");
                let parsed = super::super::command().try_get_matches_from(words(line));
                assert!(
                    parsed.is_ok(),
                    "{line}: {}",
                    parsed.err().map(|error| error.to_string()).unwrap_or_default()
                );
            }
        }
    }
}
