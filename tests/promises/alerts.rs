//! The shipped alert rules say what they should, and each leads to a section of the runbook that exists.

use std::{path::PathBuf, process::Command};

fn deploy() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).current_dir(deploy().join("prometheus")).output();
    let output = output.expect("promtool is installed by tests/run");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

#[test]
fn the_rules_are_sound_and_fire_when_they_should() {
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&["test", "rules", "rules.test.yml"]);
}

#[test]
fn every_alert_leads_to_a_section_of_the_runbook() {
    let rules = std::fs::read_to_string(deploy().join("prometheus/alerts.rules.yml")).expect("shipped");
    let runbook = std::fs::read_to_string(deploy().join("RUNBOOK.md")).expect("shipped");
    let sections: Vec<String> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|title| title.to_lowercase().replace(' ', "-"))
        .collect();
    let alerts = rules.matches("- alert:").count();
    let anchors: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("runbook: deploy/RUNBOOK.md#")).collect();
    assert_eq!(anchors.len(), alerts);
    for anchor in anchors {
        assert!(sections.iter().any(|section| section == anchor), "no section for #{anchor}: {sections:?}");
    }
}
