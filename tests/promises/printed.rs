//! What the command line prints for other programs and for readers is valid: starter files, completions, the manual
//! page, the schemas. The commands and files in the documents are, too.
//!
//! This includes policies that are made out of OpenAPI descriptions. The documents are README, the runbook and
//! `deploy/docs`.

use std::{io::Write, process::Stdio};

use fencegate_tests::{
    gateway::{PolicyFile, command},
    guarded::GuardedSite,
    prometheus::deploy,
    runbook::{commands_in, split_words},
};

async fn printed(arguments: &[&str]) -> String {
    let output = command(arguments).await.expect("started");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Every starter file passes `check` and has comments.
#[tokio::test]
async fn every_starter_file_is_valid() {
    for starter in ["minimal", "payments", "inventory", "multi-tenant", "guard", "filter"] {
        let text = printed(&["init", starter]).await;
        assert!(text.starts_with("# ") && text.ends_with('\n'), "{text}");
        let file = PolicyFile::new(&text);
        let said = printed(&["check", &file]).await;
        assert_eq!(said, format!("{file}: good\n"));
    }
    let listed = printed(&["init"]).await;
    for starter in ["minimal", "payments", "inventory", "multi-tenant", "guard", "filter"] {
        assert!(listed.lines().any(|line| line.trim_start().starts_with(&format!("{starter} "))), "{listed}");
    }
    let output = command(&["init", "banking"]).await.expect("started");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// A policy that is made from an OpenAPI description passes `check`, and the command reports what it could not decide.
#[tokio::test]
async fn imported_policy_is_valid() {
    for (document, told) in [
        (
            include_str!("../../gateway/fencegate/src/openapi/testdata/orders.json"),
            "operations 6: without a lock 1",
        ),
        (include_str!("../../gateway/fencegate/src/openapi/testdata/platform.yaml"), "look for DECIDE"),
    ] {
        let description = PolicyFile::new(document);
        let output = command(&["init", "--openapi", &description]).await.expect("started");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let summary = String::from_utf8_lossy(&output.stderr);
        assert!(summary.contains(told), "{summary}");
        let file = PolicyFile::new(&String::from_utf8(output.stdout).expect("text"));
        assert_eq!(printed(&["check", &file]).await, format!("{file}: good\n"));
    }
}

/// A file that is no OpenAPI description is refused with a code, a place and a remedy, and nothing is printed that
/// could be mistaken for a policy.
#[tokio::test]
async fn other_file_is_not_imported() {
    let other = PolicyFile::new("info: {}\nswagger: '2.0'\n");
    let broken = PolicyFile::new("{\"openapi\": \"3.0.0\",\n \"paths\": }");
    for (file, told) in [
        (&*other, &["FG0632", ":2:10", "convert it to OpenAPI 3.0"][..]),
        (&*broken, &["FG0631", ":2:11", "write the description as JSON"]),
        ("/nowhere/openapi.yaml", &["FG0530", "/nowhere/openapi.yaml", "whether the path is right"]),
    ] {
        let output = command(&["init", "--openapi", file]).await.expect("started");
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(told.iter().all(|part| said.contains(part)), "{said}");
    }
    let both = command(&["init", "minimal", "--openapi", &other]).await.expect("started");
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

/// Completions contain every verb, and bash can parse them.
#[tokio::test]
async fn completions_cover_every_verb() {
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]).await;
        for verb in ["run", "guard", "check", "explain", "init", "completions", "man", "era", "demo"] {
            assert!(script.contains(verb), "{shell}: {verb}");
        }
    }
    let script = printed(&["completions", "bash"]).await;
    let mut bash = std::process::Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().expect("bash");
    bash.stdin.take().expect("piped").write_all(script.as_bytes()).expect("written");
    assert!(bash.wait().expect("ended").success());
}

#[tokio::test]
async fn manual_page_lists_every_verb() {
    let page = printed(&["man"]).await;
    assert!(page.contains(".TH fencegate 1") && page.contains(".SH SUBCOMMANDS"), "{page}");
    for verb in ["run", "guard", "check", "explain", "init", "era", "demo"] {
        assert!(page.contains(&format!("fencegate\\-{verb}(1)")), "{verb}: {page}");
    }
}

/// The help of `deploy/quickstart` is printed without cargo and without a package manager: nothing is installed or
/// built for it.
#[tokio::test]
async fn quickstart_help_builds_nothing() {
    let tools = tempfile::tempdir().expect("a folder");
    for tool in ["bash", "sed", "readlink", "dirname"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{tool}"), tools.path().join(tool)).expect("linked");
    }
    for arguments in [&["--help"][..], &["-h"], &["--once", "--help"]] {
        let script = deploy().join("quickstart");
        let output = std::process::Command::new("/usr/bin/bash")
            .arg(script)
            .args(arguments)
            .env_clear()
            .env("PATH", tools.path())
            .output()
            .expect("bash");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("--compare"), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty() && !told.contains("set -euo"), "{output:?}");
    }
}

#[tokio::test]
async fn printed_schemas_match_committed_files() {
    for (arguments, file) in [
        (&["schema"][..], include_str!("../../policies/schema.json")),
        (&["schema", "--guard"], include_str!("../../policies/schema.guard.json")),
    ] {
        assert_eq!(printed(arguments).await, file);
    }
}

/// The commands in a document: lines of its code blocks, and texts in backticks.
pub(super) fn documented_commands(name: &str) -> Vec<String> {
    let path = deploy().join("..").join(name);
    commands_in(&std::fs::read_to_string(&path).expect("shipped"))
}

/// The documents whose commands and files are checked.
const DOCUMENTS: [&str; 22] = [
    "README.md",
    "policies/README.md",
    "policies/guide/checking.md",
    "policies/guide/guards.md",
    "policies/guide/keys.md",
    "policies/guide/levels.md",
    "policies/guide/once.md",
    "policies/guide/reload.md",
    "policies/guide/waiting.md",
    "deploy/RUNBOOK.md",
    "deploy/docs/ADOPTION.md",
    "deploy/docs/CLIENTS.md",
    "deploy/docs/COMMANDS.md",
    "deploy/docs/COMPARISON.md",
    "deploy/docs/LOCK.md",
    "deploy/docs/PROMISES.md",
    "deploy/docs/PROXY.md",
    "deploy/docs/SERVICES.md",
    // `fencegate explain` prints this file.
    "policies/src/diagnostics/stories.md",
    "deploy/docs/VERSIONS.md",
    "deploy/package/README.md",
    "deploy/helm/README.md",
];

/// Every command in the documents is accepted by the program that it names.
#[tokio::test]
async fn documented_commands_exist() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let gateway = guarded.gateway("gw-1", &guard).await;
    let mut count = 0;
    for document in DOCUMENTS {
        for told in documented_commands(document) {
            let words = split_words(&told);
            let [program, rest @ ..] = words.as_slice() else { continue };
            count += 1;
            match program.as_str() {
                // With `--help` appended a command is parsed and not run, and unknown verbs and options are still
                // refused. Another test runs the commands of the runbook.
                "fencegate" => {
                    // The words behind `--` belong to another program.
                    let ours = rest.iter().map(String::as_str).take_while(|word| *word != "--");
                    let rest = ours.filter(|word| *word != "...");
                    let rest = rest.map(|word| if word == "E" { "1" } else { word });
                    let asked: Vec<&str> = rest.chain(["--help"]).collect();
                    let said = command(&asked).await.expect("started");
                    assert!(said.status.success(), "{document}: `{told}`: {said:?}");
                }
                "curl" => {
                    let address = rest.iter().find(|word| word.starts_with("127.0.0.1")).expect("an address");
                    let (port, path) = address.split_once('/').expect("a path");
                    let process = if port.ends_with(":9902") { &*guard } else { &*gateway };
                    assert!(port.ends_with(":9901") || port.ends_with(":9902"), "{document}: `{told}`");
                    assert_eq!(process.admin(&format!("/{path}")).await.status, 200, "{document}: `{told}`");
                }
                "systemctl" => {
                    let unit = rest.last().expect("a unit");
                    let file = match unit.split_once('@') {
                        Some((unit, _)) => format!("{unit}@.service"),
                        None if unit.ends_with(".timer") => unit.clone(),
                        None => format!("{unit}.service"),
                    };
                    assert!(deploy().join("systemd").join(&file).exists(), "{document}: `{told}`: no {file}");
                }
                file => {
                    let file = file.split('#').next().unwrap_or_default();
                    assert!(deploy().join("..").join(file).exists(), "{document}: `{told}`: no {file}");
                }
            }
        }
    }
    assert!(count > 60, "not all were found: {count}");
}

/// The README of each middleware has a `fencegate verify` line for its sample. The line says in which form the sample
/// expects keys, because every request would be refused without that.
#[tokio::test]
async fn middleware_readmes_have_line_of_verify() {
    for language in ["python", "go", "java", "node", "rust"] {
        let file = deploy().join("upstream").join(language).join("README.md");
        let text = std::fs::read_to_string(&file).expect("shipped").replace("\\\n", "");
        let line = text.lines().find(|line| line.starts_with("    fencegate verify "));
        let line = line.unwrap_or_else(|| panic!("{}: no line", file.display()));
        assert!(line.contains("--fencing-key 'account/{key}'"), "{line}");
        let words = split_words(line);
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).chain(["--list"]).collect();
        let output = command(&arguments).await.expect("started");
        assert!(output.status.success(), "{line}: {output:?}");
    }
}

/// Files that are printed in a document are complete and valid.
#[tokio::test]
async fn documented_yaml_blocks_are_valid() {
    let mut count = 0;
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(deploy().join("..").join(document)).expect("shipped");
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            let file = PolicyFile::new(block);
            let said = command(&["check", &file]).await.expect("started");
            assert!(said.status.success(), "{document}:\n{block}\n{said:?}");
            count += 1;
        }
    }
    assert!(count >= 12, "not all were found: {count}");
}
