//! Every shipped alert fires on a live system by the accident that it is for, and ends when that is over. The commands of
//! its section in the runbook are run meanwhile, as they are printed.
//!
//! Prometheus runs the shipped rules with [times sixty times as short](fencegate_tests::prometheus::hurried). What takes
//! long all the same is among the faults.

mod everybody;
mod gateways;
mod guards;
mod zookeeper;

use std::{collections::BTreeSet, fs, path::Path};

use fencegate_tests::prometheus::deploy;

/// Names in quotes behind a call of `fires`, in all files of this folder and of that among the faults.
fn brought_about() -> BTreeSet<String> {
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

#[test]
fn no_alert_is_without_an_accident_that_makes_it_fire() {
    let rules = fs::read_to_string(deploy().join("prometheus/alerts.rules.yml")).expect("shipped");
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: BTreeSet<String> = alerts.map(str::to_owned).collect();
    assert_eq!(brought_about(), alerts);
}
