//! Writes the results into the documents: the picture, the table of `tests/bench/README.md`, and the figures that
//! `deploy/CAPACITY.md` uses.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::{chart, report::BenchReport, result::BenchResult, run::BenchRun};

const BEGINS: &str = "<!-- written by tests/bench/run chart -->\n";
const ENDS: &str = "<!-- the end of what it writes -->\n";

/// The figures of the capacity page: for each a description, and the bench that measures it.
const CAPACITY: [(&str, &str); 11] = [
    (
        "requests in a second through one gateway, keys kept, client and service on its two cores",
        "fenced-warm",
    ),
    ("processor time of a gateway for one of them", "fenced-warm-cpu"),
    ("the same without a lock", "unfenced-cpu"),
    ("locks in a second that one gateway takes and gives back, a node for each", "cold-strict"),
    ("requests in a second for one key, one gateway", "hot-one-gateway"),
    ("the same, three gateways that hand it over", "hot-three-gateways"),
    ("requests in a second through a gateway and a guard, keys kept", "guard-same-tenure"),
    ("new tenures in a second that a guard with a file lets in", "guard-new-tenures"),
    ("the same, a guard with a PostgreSQL", "guard-postgres"),
    ("memory of a key that is kept", "idle-key-memory"),
    ("memory of a connection that is idle", "idle-connection-memory"),
];

/// Writes the picture and both documents of the repository. A trial writes only the picture, beside its report.
pub(crate) fn run_all(run: &BenchRun) -> BenchResult<()> {
    let report = BenchReport::open(run.results("report.json"))?;
    let picture = chart::draw(report.benches())?;
    if run.is_trial() {
        let file = run.results("chart.svg");
        fs::write(&file, picture)?;
        println!("{}", file.display());
        return Ok(());
    }
    fs::write(repository_path("tests/bench/chart.svg"), picture)?;
    let growth = fs::read_to_string(run.results("growth.md")).unwrap_or_default();
    for (document, text) in [
        ("tests/bench/README.md", with_growth(results_table(report.benches()), &growth)),
        ("deploy/CAPACITY.md", capacity_table(report.benches())),
    ] {
        let file = repository_path(document);
        let whole = fs::read_to_string(&file)?;
        fs::write(
            &file,
            replace_marked_text(&whole, &text).ok_or_else(|| format!("{document} has no place for it"))?,
        )?;
        println!("{document}");
    }
    println!("tests/bench/chart.svg");
    Ok(())
}

/// A path below the root of the repository.
fn repository_path(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The document with a new text between its markers; `None` if it has none.
fn replace_marked_text(document: &str, text: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGINS)?;
    let (_, after) = rest.split_once(ENDS)?;
    Some(format!("{before}{BEGINS}\n{text}\n{ENDS}{after}"))
}

/// The table of all benches of the report.
fn results_table(benches: &[Value]) -> String {
    let mut table = "| bench | beside | ours | theirs | unit | ratio | of all rounds | goal | met |\n|---|---|---|---|---|---|---|---|---|\n".to_owned();
    for bench in benches {
        let text = |name: &str| match &bench[name] {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            Value::Bool(met) => if *met { "yes" } else { "**no**" }.to_owned(),
            other => figure(other),
        };
        let ratios = bench["ratios"].as_array().map(Vec::as_slice).unwrap_or_default();
        let spread = match ratios {
            [first, .., last] => format!("{} to {}, {} rounds", figure(first), figure(last), ratios.len()),
            _ => "one round".to_owned(),
        };
        let cells = [
            format!("`{}`", text("bench")),
            text("peer"),
            text("ours"),
            text("theirs"),
            text("unit"),
            text("ratio"),
            spread,
            text("goal"),
            text("met"),
        ];
        table += &format!("| {} |\n", cells.join(" | "));
    }
    format!("{}\n\n{table}", machines(benches))
}

/// Appends `growth`, the table of the cost of a request as an installation grows. It is empty if that was not
/// measured.
fn with_growth(measured: String, growth: &str) -> String {
    if growth.is_empty() { measured } else { format!("{measured}\nAs an installation grows: {growth}") }
}

fn machines(benches: &[Value]) -> String {
    let mut machines: Vec<&str> = benches.iter().filter_map(|bench| bench["machine"].as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    format!("Measured on {}.", machines.join(", and on "))
}

/// The table of the capacity page, with a row for each of its figures that was measured.
fn capacity_table(benches: &[Value]) -> String {
    let mut table = "| what | bench | figure | unit |\n|---|---|---|---|\n".to_owned();
    for (what, name) in CAPACITY {
        if let Some(bench) = benches.iter().find(|bench| bench["bench"] == name) {
            let unit = bench["unit"].as_str().unwrap_or_default();
            table += &format!("| {what} | `{name}` | {} | {unit} |\n", figure(&bench["ours"]));
        }
    }
    format!("{}\n\n{table}", machines(benches))
}

/// Formats a figure: an integer has no fraction, so `40245.0` becomes `40245`.
fn figure(value: &Value) -> String {
    value.as_f64().map_or_else(|| value.to_string(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Vec<Value> {
        vec![
            json!({"bench": "cold-strict", "peer": "Curator", "ours": 4000.0, "theirs": 2500.5, "unit": "locked requests/s",
            "ratio": 1.6, "goal": ">= 2", "met": false, "ratios": [1.5, 1.6, 1.7], "machine": "2 cores, a machine"}),
        ]
    }

    /// The cells in this column of the table between the markers, each with the name of its bench.
    fn figures(document: &str, column: usize) -> Vec<(String, String)> {
        let (_, rest) = document.split_once(BEGINS).expect("a document with figures");
        let (block, _) = rest.split_once(ENDS).expect("an end of them");
        let rows = block.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        let of = |cells: Vec<&str>| {
            let name = cells.iter().find(|cell| cell.starts_with('`'))?;
            Some(((*name).to_owned(), (*cells.get(column)?).to_owned()))
        };
        rows.filter_map(of).collect()
    }

    /// The figures of `CAPACITY.md` are among the measured ones of `tests/bench/README.md`.
    #[test]
    fn capacity_page_uses_measured_figures() {
        let read = |path| fs::read_to_string(repository_path(path)).expect("a document of ours");
        let measured = read("tests/bench/README.md");
        let reckoned = read("deploy/CAPACITY.md");
        let measured = figures(&measured, 3);
        let reckoned = figures(&reckoned, 3);
        assert!(!reckoned.is_empty(), "it reckons with something");
        for row in reckoned {
            assert!(measured.contains(&row), "{row:?} is not among {measured:?}");
        }
    }

    #[test]
    fn text_between_markers_is_replaced() {
        let document = format!("before\n{BEGINS}old\n{ENDS}after\n");
        let once = replace_marked_text(&document, "new").expect("it has both marks");
        assert_eq!(once, format!("before\n{BEGINS}\nnew\n{ENDS}after\n"));
        assert_eq!(replace_marked_text(&once, "new"), Some(once));
        assert_eq!(replace_marked_text("without marks", "new"), None);
    }

    #[test]
    fn missed_goal_is_shown() {
        let table = results_table(&sample());
        let row = "| `cold-strict` | Curator | 4000 | 2500.5 | locked requests/s | 1.6 | 1.5 to 1.7, 3 rounds | >= 2 | **no** |";
        assert!(table.contains(row), "{table}");
        assert!(table.contains("Measured on 2 cores, a machine."), "{table}");
    }

    #[test]
    fn capacity_table_has_measured_rows_only() {
        let table = capacity_table(&sample());
        assert!(table.contains("| `cold-strict` | 4000 | locked requests/s |"), "{table}");
        assert!(!table.contains("idle-key-memory"), "{table}");
    }
}
