//! The shipped alert rules are valid and fire under their conditions, and each alert links to an existing section of the
//! runbook.

use std::{path::PathBuf, process::Command};

use fencegate_refusal::PROBLEMS;
use serde_json::Value;

fn deploy() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).current_dir(deploy().join("prometheus")).output();
    let output = output.expect("promtool is installed by tests/run");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {text}");
}

/// promtool accepts the shipped Prometheus configuration, and the shipped rules pass their unit tests.
#[test]
fn rules_pass_promtool_tests() {
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&["test", "rules", "rules.test.yml", "rules.day.test.yml"]);
}

/// Each alert has a summary, a description, and as `runbook_url` the complete URL of a runbook section. All URLs share
/// one base, which the head of the rules file names, and the runbook lists each alert by its name.
#[test]
fn alerts_have_summary_and_runbook_section() {
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
        let annotation = |name: &str| alert["annotations"][name].as_str().unwrap_or_default();
        assert!(!annotation("summary").is_empty() && annotation("description").ends_with('.'), "{alert}");
        let section = annotation("runbook_url").strip_prefix(base).and_then(|rest| rest.strip_prefix('#'));
        let known = section.is_some_and(|section| sections.iter().any(|known| known == section));
        assert!(known, "{alert} leads nowhere: {sections:?}");
        // An operator who is paged searches the runbook for the name of the alert.
        let row = format!("| `{}` | [", alert["alert"].as_str().expect("a name"));
        let row = runbook.lines().find(|line| line.starts_with(&row));
        let leads = row.zip(section).is_some_and(|(row, section)| row.ends_with(&format!("](#{section}) |")));
        assert!(leads, "{alert} is not found by its name: {row:?}");
    }
}

/// No rule selects a job by its exact name, because jobs can have other names in a cluster.
#[test]
fn rules_select_no_job_by_name() {
    for file in ["alerts.rules.yml", "recording.rules.yml"] {
        let text = std::fs::read_to_string(deploy().join("prometheus").join(file)).expect("shipped");
        // Only `FencegateDown` selects jobs too, by a pattern and beside another condition.
        let selectors: Vec<&str> = text.lines().filter(|line| line.contains("job=")).collect();
        let known = r#"up{job=~".*fencegate.*"} == 0"#;
        assert!(selectors.iter().all(|line| line.trim() == known), "{file}: {selectors:?}");
    }
}
