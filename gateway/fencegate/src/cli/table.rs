//! Aligns columns for a terminal.

use std::fmt;

use fencegate_process::display::sanitize;

/// Rows below a header line.
#[derive(Debug)]
pub(super) struct TextTable {
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

impl TextTable {
    pub(super) fn new<const N: usize>(head: [&'static str; N]) -> Self {
        Self { head: head.into(), rows: Vec::new() }
    }

    pub(super) fn push_row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| sanitize(&cell)).into());
    }

    pub(super) fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.head[column].len()]).max().unwrap_or(0)
        };
        (0..self.head.len()).map(width).collect()
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded: Vec<_> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            padded.join("  ").trim_end().to_owned()
        };
        writeln!(f, "{}", line(&mut self.head.iter().copied()))?;
        for row in &self.rows {
            writeln!(f, "{}", line(&mut row.iter().map(String::as_str)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns are aligned with their headers, and control characters are replaced so that no cell controls
    /// the terminal.
    #[test]
    fn table_aligns_columns_and_masks_controls() {
        let mut table = TextTable::new(["KEY", "N"]);
        table.push_row(["account/7\u{1b}[2J".into(), "1".into()]);
        table.push_row(["b".into(), "22".into()]);
        assert_eq!(table.to_string(), "KEY            N\naccount/7\u{fffd}[2J  1\nb              22\n");
    }
}
