//! `deploy/METRICS.md` lists the metrics that a process exposes, and nothing else.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::PathBuf};

use fencegate_metrics::AllMetricFamilies;
use fencegate_policies::file;
use fencegate_process::registry::MetricDesc;

const HEAD: &str = "\
# Metrics

What `/metrics` on the admin listener shows, of a gateway (port 9901) and of a guard (port 9902), in the text format of
Prometheus. Labels come from the configuration or from fixed lists, never from a request: traffic cannot make series.
Requests that no route took have `route=\"none\"`. Times are seconds, sizes bytes. A reason or refusal is one word in
metrics, logs and answers: the list is in [`CLIENTS.md`](docs/CLIENTS.md).

This table is written by a test (`REWRITE=1 cargo test -p fencegate-metrics --test metrics`).

";

/// The descriptions of all families, each with the roles of process that expose it.
fn exposed_metrics() -> BTreeMap<MetricDesc, &'static str> {
    let plan = file::load(include_str!("../../../policies/examples/payments.yaml")).plan;
    let gateway = AllMetricFamilies::for_gateway(&plan.expect("a good file")).families();
    let guard = AllMetricFamilies::for_guard().families();
    let mut all: BTreeMap<_, _> = gateway.into_iter().map(|family| (family, "gateway")).collect();
    for family in guard {
        all.entry(family).and_modify(|who| *who = "both").or_insert("guard");
    }
    all
}

/// `METRICS.md` lists exactly the metrics that are exposed.
#[test]
fn documented_metrics_match_exposed_metrics() {
    let mut text = HEAD.to_owned();
    text.push_str("| metric | kind | labels | of | what it says |\n|---|---|---|---|---|\n");
    for (family, who) in exposed_metrics() {
        let MetricDesc { name, kind, labels, help } = family;
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(text, "| `{name}` | {kind} | {} | {who} | {help} |", labels.join(", ")).expect("memory");
    }
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/METRICS.md");
    if env::var_os("REWRITE").is_some() {
        fs::write(&file, &text).expect("the repository can be written");
    }
    assert_eq!(fs::read_to_string(&file).unwrap_or_default(), text, "REWRITE=1 writes it anew");
}

/// No metric has a label whose values can come from a client.
#[test]
fn labels_carry_no_client_input() {
    const LABELS: [&str; 25] = [
        "cause",
        "certificate",
        "code",
        "contended",
        "decision",
        "endpoint",
        "error",
        "fingerprint",
        "how",
        "issuer",
        "kind",
        "limit",
        "mode",
        "op",
        "over",
        "reason",
        "result",
        "route",
        "session",
        "state",
        "store",
        "thread",
        "upstream",
        "version",
        "why",
    ];
    for (family, _) in exposed_metrics() {
        for label in &family.labels {
            assert!(
                LABELS.contains(&label.as_str()),
                "{}: `{label}` is new: where do its values come from?",
                family.name
            );
        }
        let prefixed = family.name.starts_with("fencegate_") || family.name.starts_with("process_");
        assert!(prefixed && !family.help.is_empty(), "{family:?}");
    }
}
