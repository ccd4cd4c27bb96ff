//! Tests of `tests/changed`, which prints whether a change is of documents alone, so that a run can leave out other
//! tests.

use std::{fs, path::Path, process::Command};

use fencegate_testkit::scratch;

use super::root;

fn git(tree: &Path, arguments: &[&str]) {
    let who = ["-c", "user.name=tests", "-c", "user.email=tests@fencegate.invalid"];
    let status = Command::new("git").arg("-C").arg(tree).args(who).args(arguments).status().expect("git");
    assert!(status.success(), "git {arguments:?}");
}

fn commit(tree: &Path, file: &str) {
    let text = fs::read_to_string(tree.join(file)).expect("committed");
    fs::write(tree.join(file), format!("{text}\n")).expect("our own tree");
    git(tree, &["commit", "--quiet", "--all", "--message", "Change"]);
}

fn run_changed(tree: &Path, since: &str) -> String {
    let said = Command::new(tree.join("tests/changed")).arg(since).output().expect("started");
    assert!(said.status.success(), "{said:?}");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

/// A change of documents alone is reported as `documents`, and every other change as `all`.
#[test]
fn document_only_change_is_recognised() {
    let home = scratch::temp_dir();
    let tree = home.path().join("tree");
    let from = root();
    let to = tree.display().to_string();
    git(&from, &["clone", "--quiet", "--shared", &from.display().to_string(), &to]);
    commit(&tree, "README.md");
    commit(&tree, "deploy/docs/ADOPTION.md");
    assert_eq!(run_changed(&tree, "HEAD~2"), "documents");
    commit(&tree, "deploy/quickstart");
    assert_eq!(run_changed(&tree, "HEAD~3"), "all");
    assert_eq!(run_changed(&tree, "HEAD~1"), "all");
    assert_eq!(run_changed(&tree, "HEAD"), "all", "who asks about no change may mean another commit");
}
