//! The results of the growth benches, as a table for a document.

use std::{fmt, fs, io, path::Path, time::Duration};

use fencegate_tests::machine;

pub(super) struct GrowthRow {
    pub(super) grows: &'static str,
    pub(super) size: &'static str,
    pub(super) per_second: f64,
    /// The processor time of all gateways per request.
    pub(super) cpu_us: f64,
    /// The share of requests whose key was cached; `None` on a route without a lock.
    pub(super) warm: Option<f64>,
}

pub(super) struct GrowthTable {
    window: Duration,
    rows: Vec<GrowthRow>,
}

impl GrowthRow {
    /// The row in a line that is printed when it was measured.
    pub(super) fn to_markdown(&self) -> String {
        format!("{} {}: {:.0} requests/s, {:.1} us each", self.grows, self.size, self.per_second, self.cpu_us)
    }
}

impl GrowthTable {
    pub(super) fn new(window: Duration) -> Self {
        Self { window, rows: Vec::new() }
    }

    pub(super) fn push(&mut self, row: GrowthRow) {
        self.rows.push(row);
    }

    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        fs::write(file, self.to_string())
    }

    /// The cost of this row relative to the cheapest row of its axis.
    fn relative_to_smallest(&self, row: &GrowthRow) -> f64 {
        let same = self.rows.iter().filter(|other| other.grows == row.grows);
        row.cpu_us / same.map(|other| other.cpu_us).fold(f64::INFINITY, f64::min)
    }
}

impl fmt::Display for GrowthTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}; {} s for each row.", machine::describe_machine(), self.window.as_secs())?;
        writeln!(
            f,
            "A request found its key warm where the gateway kept it and nobody was at work under it.\n"
        )?;
        writeln!(
            f,
            "| what grows | size | requests/s | processor time of the gateways, us/request | beside the least | found warm |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let GrowthRow { grows, size, per_second, cpu_us, warm } = row;
            let warm = warm.map_or("no lock".to_owned(), |share| format!("{:.1} %", 100.0 * share));
            let beside = self.relative_to_smallest(row);
            writeln!(f, "| {grows} | {size} | {per_second:.0} | {cpu_us:.1} | {beside:.2} | {warm} |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row shows its cost relative to the cheapest row of its axis.
    #[test]
    fn row_shows_cost_relative_to_cheapest() {
        let mut table = GrowthTable::new(Duration::from_secs(5));
        let row = |grows, size, cpu_us, warm| GrowthRow { grows, size, per_second: 1000.0, cpu_us, warm };
        table.push(row("keys", "1", 20.0, Some(1.0)));
        table.push(row("keys", "100", 30.0, Some(0.5)));
        table.push(row("version", "HTTP/2", 90.0, None));
        let text = table.to_string();
        for line in [
            "| keys | 1 | 1000 | 20.0 | 1.00 | 100.0 % |",
            "| keys | 100 | 1000 | 30.0 | 1.50 | 50.0 % |",
            "| version | HTTP/2 | 1000 | 90.0 | 1.00 | no lock |",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
        }
    }
}
