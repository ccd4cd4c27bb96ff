//! The results, as a table and as JSON that later runs read.

use std::{
    fmt, fs,
    io::{self, ErrorKind},
    path::PathBuf,
};

use fencegate_tests::machine;
use serde_json::{Value, json};

use crate::result::BenchResult;

/// One comparison. It reports our value, the other value and the ratio of the round with the median ratio, because
/// the speed of the machine varies: only values from the same minute are comparable.
pub(crate) struct BenchRow {
    pub(crate) name: &'static str,
    pub(crate) peer: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) goal: RatioGoal,
    pub(crate) rounds: Vec<BenchRound>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BenchRound {
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
}

/// The limit for the ratio of our value to the other value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RatioGoal {
    AtLeast(f64),
    AtMost(f64),
    /// The result is shown and not judged.
    None,
}

/// The latest result of each bench that was ever measured on this machine.
pub(crate) struct BenchReport {
    file: PathBuf,
    benches: Vec<Value>,
}

impl BenchRound {
    fn ratio(self) -> f64 {
        self.ours / self.theirs
    }
}

impl RatioGoal {
    fn is_met(self, ratio: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(ratio >= least),
            Self::AtMost(most) => Some(ratio <= most),
            Self::None => None,
        }
    }

    fn to_text(self) -> Option<String> {
        match self {
            Self::AtLeast(least) => Some(format!(">= {least}")),
            Self::AtMost(most) => Some(format!("<= {most}")),
            Self::None => None,
        }
    }
}

impl BenchRow {
    fn into_json(self) -> Option<Value> {
        let mut rounds = self.rounds;
        rounds.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
        // Of an even number of rounds, the lower one of the two in the middle is taken.
        let middle = *rounds.get(rounds.len().checked_sub(1)? / 2)?;
        let ratio = middle.ratio();
        Some(json!({
            "bench": self.name,
            "peer": self.peer,
            "ours": round(middle.ours),
            "theirs": round(middle.theirs),
            "unit": self.unit,
            "ratio": round(ratio),
            "goal": self.goal.to_text(),
            "met": self.goal.is_met(ratio),
            "machine": machine::describe_machine(),
            "ratios": rounds.iter().map(|one| round(one.ratio())).collect::<Vec<_>>(),
        }))
    }
}

/// Rounds to about four digits, because further digits are noise.
fn round(value: f64) -> f64 {
    let digits = (3.0 - value.abs().max(f64::MIN_POSITIVE).log10().floor()).clamp(0.0, 9.0);
    let scale = 10f64.powf(digits);
    (value * scale).round() / scale
}

impl BenchReport {
    pub(crate) fn open(file: PathBuf) -> BenchResult<Self> {
        let benches = match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { file, benches })
    }

    pub(crate) fn benches(&self) -> &[Value] {
        &self.benches
    }

    /// Replaces the results of benches with the same names, appends the new ones, and writes the file.
    pub(crate) fn replace(&mut self, benches: Vec<BenchRow>) -> io::Result<()> {
        for bench in benches.into_iter().filter_map(BenchRow::into_json) {
            match self.benches.iter_mut().find(|old| old["bench"] == bench["bench"]) {
                Some(old) => *old = bench,
                None => self.benches.push(bench),
            }
        }
        fs::write(&self.file, format!("{:#}\n", Value::from(self.benches.clone())))
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["bench", "ours", "theirs", "unit", "ratio", "of all rounds", "goal", "met", "peer"]
            .map(str::to_owned);
        let rows: Vec<_> = [head].into_iter().chain(self.benches.iter().map(row)).collect();
        let widths: [usize; 9] =
            std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
        for row in rows {
            let cells: Vec<_> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

fn row(bench: &Value) -> [String; 9] {
    let text = |name: &str| match &bench[name] {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "NO".to_owned(),
        other => other.to_string(),
    };
    let ratios = bench["ratios"].as_array().map(Vec::as_slice).unwrap_or_default();
    let spread = match ratios {
        [first, .., last] => format!("{first}..{last}"),
        _ => "-".to_owned(),
    };
    [
        text("bench"),
        text("ours"),
        text("theirs"),
        text("unit"),
        text("ratio"),
        spread,
        text("goal"),
        text("met"),
        text("peer"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(goal: RatioGoal, rounds: &[(f64, f64)]) -> Value {
        let rounds = rounds.iter().map(|&(ours, theirs)| BenchRound { ours, theirs }).collect();
        BenchRow { name: "cold", peer: "them", unit: "locks/s", goal, rounds }
            .into_json()
            .expect("it has rounds")
    }

    #[test]
    fn median_ratio_round_is_reported() {
        let told = bench(RatioGoal::AtLeast(2.0), &[(100.0, 10.0), (30.0, 10.0), (1.0, 1.0)]);
        assert_eq!((&told["ours"], &told["ratio"], &told["met"]), (&json!(30.0), &json!(3.0), &json!(true)));
    }

    /// A bench may have an upper bound as its goal, or no goal.
    #[test]
    fn goal_may_be_upper_bound() {
        assert_eq!(bench(RatioGoal::AtMost(1.5), &[(2.0, 1.0)])["met"], json!(false));
        assert_eq!(bench(RatioGoal::None, &[(2.0, 1.0)])["met"], Value::Null);
    }

    #[test]
    fn numbers_keep_four_digits() {
        assert_eq!([round(12345.678), round(1.23456), round(0.000_123_456)], [12346.0, 1.235, 0.000_123_5]);
    }
}
