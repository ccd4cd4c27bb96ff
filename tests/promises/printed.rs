//! What the command line prints for others to use: starter files, completions, the manual page.

use std::{io::Write, process::Stdio};

use fencegate_tests::{
    gateway::{command, write_policy},
    scratch,
};
use tempfile::TempDir;

async fn printed(arguments: &[&str]) -> String {
    let output = command(arguments).await.expect("started");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test]
async fn every_starter_file_is_good_and_has_comments() {
    for starter in ["payments", "inventory", "multi-tenant", "guard"] {
        let text = printed(&["init", starter]).await;
        assert!(text.starts_with("# ") && text.ends_with('\n'), "{text}");
        let home = TempDir::new_in(scratch::folder()).expect("a folder");
        let file = write_policy(home.path(), &text).display().to_string();
        let said = printed(&["check", &file]).await;
        assert_eq!(said, format!("{file}: good\n"));
    }
    let output = command(&["init", "banking"]).await.expect("started");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[tokio::test]
async fn completions_know_every_verb_and_bash_can_read_them() {
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
async fn the_manual_page_lists_every_verb() {
    let page = printed(&["man"]).await;
    assert!(page.contains(".TH fencegate 1") && page.contains(".SH SUBCOMMANDS"), "{page}");
    for verb in ["run", "guard", "check", "explain", "init", "era", "demo"] {
        assert!(page.contains(&format!("fencegate\\-{verb}(1)")), "{verb}: {page}");
    }
}

#[tokio::test]
async fn the_schemas_are_those_that_are_committed() {
    for (arguments, file) in [
        (&["schema"][..], include_str!("../../policies/schema.json")),
        (&["schema", "--guard"], include_str!("../../policies/schema.guard.json")),
    ] {
        assert_eq!(printed(arguments).await, file);
    }
}
