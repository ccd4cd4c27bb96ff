//! Every shipped alert fires on a live system after the accident that it is for, and resolves when the accident is over.
//! Meanwhile the commands of its runbook section are run as they are printed.
//!
//! Prometheus runs the shipped rules with [times sixty times as short](fencegate_tests::prometheus::hurried). Alerts
//! that take long all the same are tested among the faults.
//!
//! Every shipped alert must have such a test, here or among the faults.

mod everybody;
mod gateways;
mod guards;
mod zookeeper;

use std::{collections::BTreeSet, fs, path::Path};

use fencegate_tests::prometheus::deploy;

/// The alert names in calls of `wait_firing`, in all files of this folder and of `alerts_fire` among the faults.
fn tested_alerts() -> BTreeSet<String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["promises/alerts_fire", "faults/alerts_fire"].map(|folder| tests.join(folder));
    let files = folders.into_iter().flat_map(|folder| fs::read_dir(folder).expect("our own"));
    let texts = files.map(|file| fs::read_to_string(file.expect("our own").path()).expect("our own"));
    texts
        .flat_map(|text| {
            let called =
                text.split(".wait_firing(\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default());
            called.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// Every shipped alert is waited for by a test of this module or of `alerts_fire` among the faults.
#[test]
fn every_alert_has_live_test() {
    let rules = fs::read_to_string(deploy().join("prometheus/alerts.rules.yml")).expect("shipped");
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: BTreeSet<String> = alerts.map(str::to_owned).collect();
    assert_eq!(tested_alerts(), alerts);
}
