//! The report of the comparison of lock systems: the results of each system under each seed, and their table in a
//! document.

use std::{fs, io, path::PathBuf};

use serde_json::{Value, json};

use crate::machine;

/// The compared lock systems, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockSystem {
    Curator,
    Kazoo,
    Redis,
    Redlock,
    Etcd,
    Consul,
    Restate,
    Postgres,
    None,
    Delay,
    Guard,
    Upstream,
}

/// The result that the comparison asserts of a lock system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedResult {
    /// Stale writes reach the service, because it does not compare tokens.
    Violated,
    /// No execution overlaps another one and no stale write takes effect: late writes are refused.
    Holds,
    /// No execution overlaps another one and no stale write takes effect: no lock is granted while a late write
    /// could arrive.
    Waits,
}

const COLUMNS: [&str; 8] = [
    "lock",
    "executions",
    "overlaps",
    "lost updates",
    "stale writes that landed",
    "late writes refused",
    "operations/s in the calm",
    "recovery after a kill",
];

const BEGINS: &str = "<!-- written by tests/run --duel --write -->\n";
const ENDS: &str = "<!-- the end of what it writes -->\n";

/// The result of one lock system under the schedule of one seed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LockSystemRun {
    pub seed: u64,
    pub executions: usize,
    /// Executions that began while another one was running.
    pub overlaps: usize,
    /// Executions whose change is missing in the balance.
    pub lost: usize,
    /// Writes of a former holder after a newer holder had begun.
    pub stale: usize,
    /// Late writes that were refused.
    pub refused: usize,
    pub pauses: usize,
    /// Pauses in which another client got the lock.
    pub taken_over: usize,
    pub per_second: f64,
    /// Seconds from each kill to the end of the next execution.
    pub recovery: Vec<f64>,
}

/// The latest result of each lock system that was tested.
pub struct LockComparisonReport {
    file: PathBuf,
    rows: Vec<Value>,
}

impl LockSystem {
    pub const ALL: [Self; 12] = [
        Self::Curator,
        Self::Kazoo,
        Self::Redis,
        Self::Redlock,
        Self::Etcd,
        Self::Consul,
        Self::Restate,
        Self::Postgres,
        Self::None,
        Self::Delay,
        Self::Guard,
        Self::Upstream,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Curator => "Curator `InterProcessMutex`",
            Self::Kazoo => "kazoo `Lock`",
            Self::Redis => "redis-py `Lock`",
            Self::Redlock => "Redlock, five servers",
            Self::Etcd => "etcd, its lock service",
            Self::Consul => "Consul",
            Self::Restate => "Restate, a virtual object",
            Self::Postgres => "PostgreSQL, an advisory lock",
            Self::None => "Fencegate, `none`",
            Self::Delay => "Fencegate, `delay`",
            Self::Guard => "Fencegate, `guard`",
            Self::Upstream => "Fencegate, `upstream`",
        }
    }

    pub fn expected(self) -> ExpectedResult {
        match self {
            Self::Guard | Self::Upstream => ExpectedResult::Holds,
            Self::Delay => ExpectedResult::Waits,
            // Restate does not protect a service outside of it. Fencegate's `none` is the control: the same gateways
            // before a service that does not compare tokens.
            Self::Curator
            | Self::Kazoo
            | Self::Redis
            | Self::Redlock
            | Self::Etcd
            | Self::Consul
            | Self::Restate
            | Self::None
            | Self::Postgres => ExpectedResult::Violated,
        }
    }
}

impl LockSystemRun {
    fn to_json(&self) -> Value {
        json!({
            "seed": self.seed,
            "executions": self.executions,
            "overlaps": self.overlaps,
            "lost_updates": self.lost,
            "stale_writes": self.stale,
            "refused": self.refused,
            "pauses": self.pauses,
            "taken_over": self.taken_over,
            "operations_per_second": self.per_second,
            "recovery_s": self.recovery,
        })
    }
}

impl LockComparisonReport {
    /// Opens a report; it is empty if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file is not a report.
    pub fn open(file: PathBuf) -> io::Result<Self> {
        let rows = match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { file, rows })
    }

    /// Replaces the earlier results of one lock system, and writes the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn replace(&mut self, contestant: LockSystem, date: &str, bouts: &[LockSystemRun]) -> io::Result<()> {
        let bouts: Vec<_> = bouts.iter().map(LockSystemRun::to_json).collect();
        self.replace_row(json!({"contestant": contestant.name(), "date": date, "machine": machine::describe_machine(), "bouts": bouts}))
    }

    /// Records the reason why a lock system has no result.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn skip(&mut self, contestant: LockSystem, reason: &str) -> io::Result<()> {
        self.replace_row(json!({"contestant": contestant.name(), "skipped": reason}))
    }

    fn replace_row(&mut self, row: Value) -> io::Result<()> {
        self.rows.retain(|there| there["contestant"] != row["contestant"]);
        self.rows.push(row);
        self.rows.sort_by_key(|row| LockSystem::ALL.iter().position(|one| row["contestant"] == one.name()));
        fs::write(&self.file, format!("{:#}\n", Value::from(self.rows.clone())))
    }

    /// The table for a document: date, machine and seeds, and a row for each lock system.
    pub fn table(&self) -> String {
        let told = |name: &str| {
            let mut told: Vec<&str> = self.rows.iter().filter_map(|row| row[name].as_str()).collect();
            told.sort_unstable();
            told.dedup();
            told.join(" and ")
        };
        let mut seeds: Vec<u64> = bouts(&self.rows).filter_map(|bout| bout["seed"].as_u64()).collect();
        seeds.sort_unstable();
        seeds.dedup();
        let seeds: Vec<_> = seeds.iter().map(ToString::to_string).collect();
        let mut table = format!(
            "Written by `tests/run --duel --write`. Date: {}. Machine: {}. Seeds: {}.\n\n| {} |\n|{}\n",
            told("date"),
            told("machine"),
            seeds.join(", "),
            COLUMNS.join(" | "),
            "---|".repeat(COLUMNS.len()),
        );
        for row in &self.rows {
            table += &format!("| {} |\n", cells(row).join(" | "));
        }
        table
    }
}

fn bouts(rows: &[Value]) -> impl Iterator<Item = &Value> {
    rows.iter().filter_map(|row| row["bouts"].as_array()).flatten()
}

fn cells(row: &Value) -> Vec<String> {
    let name = row["contestant"].as_str().unwrap_or_default().to_owned();
    if let Some(why) = row["skipped"].as_str() {
        return [vec![name, format!("skipped: {why}")], vec![String::new(); COLUMNS.len() - 2]].concat();
    }
    let bouts: Vec<&Value> = bouts(std::slice::from_ref(row)).collect();
    let sum = |name: &str| bouts.iter().filter_map(|bout| bout[name].as_u64()).sum::<u64>().to_string();
    let rates = bouts.iter().filter_map(|bout| bout["operations_per_second"].as_f64());
    let times =
        bouts.iter().filter_map(|bout| bout["recovery_s"].as_array()).flatten().filter_map(Value::as_f64);
    let counts = ["executions", "overlaps", "lost_updates", "stale_writes", "refused"].map(sum);
    [vec![name], counts.into(), vec![format_spread(rates, 0, ""), format_spread(times, 2, " s")]].concat()
}

/// The middle value, with the smallest and the largest.
fn format_spread(values: impl Iterator<Item = f64>, digits: usize, unit: &str) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return "none".to_owned() };
    format!("{:.digits$}{unit} ({first:.digits$} to {last:.digits$})", values[values.len() / 2])
}

/// The document with another text between its markers; `None` if it has none.
pub fn replace_table(document: &str, text: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGINS)?;
    let (_, after) = rest.split_once(ENDS)?;
    Some(format!("{before}{BEGINS}\n{text}\n{ENDS}{after}"))
}

/// The errors of the table in a document: it does not have the form of a report's table, or its figures contradict
/// the asserted results.
pub fn complaints(document: &str) -> Vec<String> {
    let block = document.split_once(BEGINS).and_then(|(_, rest)| rest.split_once(ENDS));
    let Some((block, _)) = block else { return vec!["it has no place for the duel".to_owned()] };
    let mut told = Vec::new();
    for what in ["Date: 2", "Machine: ", "Seeds: "] {
        if !block.contains(what) {
            told.push(format!("it does not say `{what}`"));
        }
    }
    let rows = block.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(" | ").map(str::trim).collect()).collect();
    let Some((head, rows)) = rows.split_first() else { return vec!["it has no table".to_owned()] };
    if head[..] != COLUMNS[..] {
        told.push(format!("its columns are {head:?}"));
    }
    let names: Vec<&str> = rows.iter().filter_map(|row| row.first().copied()).collect();
    if names != LockSystem::ALL.map(LockSystem::name) {
        told.push(format!("its rows are {names:?}"));
        return told;
    }
    let fought = LockSystem::ALL
        .iter()
        .zip(rows)
        .filter(|(_, row)| !row.get(1).is_some_and(|cell| cell.starts_with("skipped: ")));
    for (contestant, row) in fought {
        let figures: Vec<usize> = row.iter().skip(1).take(5).filter_map(|cell| cell.parse().ok()).collect();
        let [_, overlaps, lost, stale, refused] = figures[..] else {
            told.push(format!("no figures: {row:?}"));
            continue;
        };
        let as_expected = match contestant.expected() {
            ExpectedResult::Violated => stale > 0,
            ExpectedResult::Holds => [overlaps, lost, stale] == [0; 3] && refused > 0,
            ExpectedResult::Waits => [overlaps, lost, stale] == [0; 3],
        };
        if !as_expected {
            told.push(format!("not what is asserted of it, or not exercised: {row:?}"));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bout(seed: u64, stale: usize, refused: usize) -> LockSystemRun {
        LockSystemRun {
            seed,
            executions: 100,
            stale,
            refused,
            per_second: 40.4,
            recovery: vec![2.345],
            ..LockSystemRun::default()
        }
    }

    /// Each test needs its own file name, because tests run in parallel.
    fn report(name: &str) -> LockComparisonReport {
        let file = fencegate_testkit::scratch::folder().join(name);
        let mut report = LockComparisonReport::open(file).expect("none");
        for contestant in LockSystem::ALL.into_iter().rev() {
            let (stale, refused) = match contestant.expected() {
                ExpectedResult::Violated => (1, 0),
                ExpectedResult::Holds => (0, 1),
                ExpectedResult::Waits => (0, 0),
            };
            let bouts = [bout(3, stale, refused), bout(2, stale, refused)];
            report.replace(contestant, "2026-01-31", &bouts).expect("written");
        }
        report.skip(LockSystem::Consul, "it is not there").expect("written");
        report
    }

    /// The table of a correct report replaces that of the document, and the check of the document reports nothing.
    #[test]
    fn table_of_sound_report_is_accepted() {
        let report = report("duel-as-told.json");
        let read = LockComparisonReport::open(report.file.clone()).expect("its own");
        assert_eq!(read.rows, report.rows);
        let table = read.table();
        let row = "| kazoo `Lock` | 200 | 0 | 0 | 2 | 0 | 40 (40 to 40) | 2.35 s (2.35 to 2.35) |\n";
        assert!(table.contains(row) && table.contains("Seeds: 2, 3.\n"), "{table}");
        assert!(table.contains("| Consul | skipped: it is not there | "), "{table}");
        let document =
            replace_table(&format!("before\n{BEGINS}old\n{ENDS}after\n"), &table).expect("it has marks");
        assert!(document.starts_with("before\n") && document.ends_with("after\n"), "{document}");
        assert_eq!(complaints(&document), [""; 0]);
        assert_eq!(replace_table("without marks", &table), None);
    }

    /// Each single change of the table in the document is reported by the check.
    #[test]
    fn doctored_table_is_reported() {
        let document = replace_table(&format!("{BEGINS}{ENDS}"), &report("duel-doctored.json").table())
            .expect("it has marks");
        for (from, to) in [
            ("Seeds: ", "Of "),
            ("| lost updates |", "|"),
            ("| kazoo `Lock` | 200 |", "| another | 200 |"),
            ("| kazoo `Lock` | 200 | 0 | 0 | 2 |", "| kazoo `Lock` | 200 | 0 | 0 | 0 |"),
            ("| Fencegate, `guard` | 200 | 0 | 0 | 0 | 2 |", "| Fencegate, `guard` | 200 | 0 | 0 | 0 | 0 |"),
            ("| Fencegate, `guard` | 200 | 0 | 0 | 0 |", "| Fencegate, `guard` | 200 | 0 | 1 | 0 |"),
            ("| Fencegate, `delay` | 200 | 0 |", "| Fencegate, `delay` | 200 | 1 |"),
            ("| kazoo `Lock` | 200 |", "| kazoo `Lock` | many |"),
            (ENDS, ""),
        ] {
            assert!(document.contains(from), "{from}");
            assert_eq!(complaints(&document.replace(from, to)).len(), 1, "{from}");
        }
    }
}
