//! Draws durations of the last minutes as lines in an SVG. The style sheet has the colours.

use std::fmt::Write;

use super::layout::format_millis;
use crate::history::{EVERY, MOST, Percentiles};

/// A plot as the template draws it.
pub(super) struct Plot {
    pub(super) title: &'static str,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) grid: Vec<PlotGridLine>,
    /// One list of points for each stretch without a gap.
    pub(super) half: Vec<String>,
    pub(super) most: Vec<String>,
    /// The newest point, in words.
    pub(super) said: String,
}

pub(super) struct PlotGridLine {
    pub(super) y: String,
    pub(super) label: &'static str,
}

const WIDTH: f64 = 620.0;
const HEIGHT: f64 = 190.0;
/// The margin for labels.
const LEFT: f64 = 52.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 170.0;

/// The grid lines, one for each factor of ten. All factors have the same height.
const DECADES: [(f64, &str); 6] =
    [(0.001, "1 ms"), (0.01, "10 ms"), (0.1, "100 ms"), (1.0, "1 s"), (10.0, "10 s"), (100.0, "100 s")];

impl Plot {
    /// A plot of these points, the newest last.
    pub(super) fn new(title: &'static str, points: &[Option<Percentiles>]) -> Self {
        let grid =
            DECADES.map(|(seconds, label)| PlotGridLine { y: format!("{:.1}", y_position(seconds)), label });
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small constants")]
        let width = WIDTH as u32;
        let tall = HEIGHT as u32;
        Self {
            title,
            width,
            height: tall,
            grid: grid.into(),
            half: polylines(points, |typical| typical.half),
            most: polylines(points, |typical| typical.most),
            said: describe_plot(points),
        }
    }
}

/// The height of a value, on a logarithmic scale from the bottom.
fn y_position(seconds: f64) -> f64 {
    let [(least, _), .., (largest, _)] = DECADES;
    let part = (seconds.clamp(least, largest) / least).log10() / (largest / least).log10();
    BOTTOM - part * (BOTTOM - TOP)
}

fn polylines(points: &[Option<Percentiles>], value: impl Fn(&Percentiles) -> f64) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for (at, point) in points.iter().enumerate() {
        match point {
            Some(typical) => {
                let x = x_position(points.len() - 1 - at);
                let y = y_position(value(typical));
                // A single point becomes a dot: a line from the point to itself, with round ends.
                let again = if line.is_empty() { format!("{x:.1},{y:.1} ") } else { String::new() };
                write!(line, "{again}{x:.1},{y:.1} ").expect("a text takes every text");
            }
            None if !line.is_empty() => lines.push(std::mem::take(&mut line)),
            None => {}
        }
    }
    lines.push(line);
    lines.retain(|line| !line.is_empty());
    lines
}

/// The horizontal position of a point. `ago` is its age in samples.
#[expect(clippy::cast_precision_loss, reason = "some hundred samples")]
fn x_position(ago: usize) -> f64 {
    let span = (MOST - 1) as f64;
    WIDTH - 4.0 - (ago as f64).min(span) / span * (WIDTH - LEFT - 8.0)
}

fn describe_plot(points: &[Option<Percentiles>]) -> String {
    let newest = points.iter().rev().enumerate().find_map(|(ago, point)| point.map(|point| (ago, point)));
    let Some((ago, Percentiles { half, most, count })) = newest else { return "Nothing yet.".into() };
    let when = match ago {
        0 => "In the last 5 s".to_owned(),
        ago => format!("{} ago", format_millis(EVERY.as_millis() as u64 * ago as u64)),
    };
    let of = |seconds: f64| format!("{:.0} ms", seconds * 1000.0);
    format!("{when}: {count}, median {}, 99 % within {}.", of(half), of(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percentiles_at(half: f64) -> Option<Percentiles> {
        Some(Percentiles { half, most: half * 2.0, count: 3 })
    }

    /// A missing point interrupts the lines, and every point lies within the picture.
    #[test]
    fn plot_keeps_gaps_and_bounds() {
        let plot = Plot::new("", &[percentiles_at(0.0), percentiles_at(1e9), None, percentiles_at(0.05)]);
        assert_eq!(plot.half.len(), 2);
        for point in plot.half.iter().chain(&plot.most).flat_map(|line| line.split_whitespace()) {
            let (x, y) = point.split_once(',').expect("two numbers");
            let x: f64 = x.parse().expect("a number");
            let y: f64 = y.parse().expect("a number");
            assert!((LEFT..WIDTH).contains(&x) && (TOP..=BOTTOM).contains(&y), "{point}");
        }
        assert_eq!(plot.said, "In the last 5 s: 3, median 50 ms, 99 % within 100 ms.");
    }

    #[test]
    fn empty_plot_draws_no_line() {
        let plot = Plot::new("", &[]);
        assert!(plot.half.is_empty() && plot.said == "Nothing yet.");
    }
}
