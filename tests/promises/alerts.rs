//! The shipped alert rules say what they should, and each leads to a section of the runbook that exists.

use std::{path::PathBuf, process::Command};

use fencegate::refusal::PROBLEMS;
use serde_json::Value;

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

/// Alertmanager, Grafana and pagers know `runbook_url`, and open it: it is a whole address, on the same page of ours as the
/// types of problems, with one base for all, which the head of the file tells how to change.
#[test]
fn every_alert_says_what_it_means_and_leads_to_a_section_of_the_runbook() {
    let base = PROBLEMS.replace("PROBLEMS.md", "RUNBOOK.md");
    let base = base.as_str();
    let text = std::fs::read_to_string(deploy().join("prometheus/alerts.rules.yml")).expect("shipped");
    assert!(
        text.lines().take_while(|line| line.starts_with('#')).any(|line| line.contains(base)),
        "no word of it"
    );
    let runbook = std::fs::read_to_string(deploy().join("RUNBOOK.md")).expect("shipped");
    let sections: Vec<String> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|title| title.to_lowercase().replace(' ', "-"))
        .collect();
    let rules: Value = serde_saphyr::from_str(&text).expect("YAML");
    let groups = rules["groups"].as_array().expect("groups").iter();
    let alerts: Vec<&Value> = groups.flat_map(|group| group["rules"].as_array().expect("rules")).collect();
    assert!(alerts.len() > 28, "not all were found: {alerts:?}");
    for alert in alerts {
        let told = |name: &str| alert["annotations"][name].as_str().unwrap_or_default();
        assert!(!told("summary").is_empty() && told("description").ends_with('.'), "{alert}");
        let section = told("runbook_url").strip_prefix(base).and_then(|rest| rest.strip_prefix('#'));
        let known = section.is_some_and(|section| sections.iter().any(|known| known == section));
        assert!(known, "{alert} leads nowhere: {sections:?}");
    }
}

/// The targets of a cluster may have jobs with other names, and every alert has to work for them.
#[test]
fn no_rule_asks_for_a_job_by_name() {
    for file in ["alerts.rules.yml", "recording.rules.yml"] {
        let text = std::fs::read_to_string(deploy().join("prometheus").join(file)).expect("shipped");
        // One alert has a second way to find its targets.
        let asked: Vec<&str> = text.lines().filter(|line| line.contains("job=")).collect();
        let known = r#"up{job=~".*fencegate.*"} == 0"#;
        assert!(asked.iter().all(|line| line.trim() == known), "{file}: {asked:?}");
    }
}
