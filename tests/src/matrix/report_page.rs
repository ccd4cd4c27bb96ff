//! The report as an HTML page without scripts: a table of all runs, and a chart of the recovery times of each case.

use std::collections::BTreeMap;

use super::verdict::{RunVerdict, Verdict};

const STYLE: &str = "body{font:14px system-ui,sans-serif;margin:2em;color-scheme:light dark}table{border-collapse:collapse}\
td,th{padding:.2em .6em;border-bottom:1px solid #8884;text-align:left}td.n{text-align:right}.fail{color:#c33;font-weight:600}\
.skipped{color:#888}rect{fill:#48c}text{font-size:11px;fill:currentColor}";

/// The whole page.
pub fn page(rulings: &[RunVerdict]) -> String {
    let mut cases = BTreeMap::<&str, Vec<&RunVerdict>>::new();
    for ruling in rulings {
        cases.entry(&ruling.case).or_default().push(ruling);
    }
    let pictures: String = cases.iter().filter_map(|(case, rulings)| section(case, rulings)).collect();
    let rows: String = rulings.iter().map(row).collect();
    let count = |verdict: Verdict| rulings.iter().filter(|ruling| ruling.verdict == verdict).count();
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Faults</title><style>{STYLE}</style>\
         <h1>Faults</h1><p>{} passed, {} failed, {} skipped. A control has to violate something.</p>\
         <h2>Recovery</h2><p>Seconds from the accident until every key was served again, and how many runs took so long.</p>\
         {pictures}<h2>Runs</h2><table><tr><th>case<th>level<th>seed<th>executions<th>hand-overs<th>stale refused\
         <th>hit<th>violations<th>recovery, s<th>verdict<th>reason</tr>{rows}</table></html>\n",
        count(Verdict::Pass),
        count(Verdict::Fail),
        count(Verdict::Skipped),
    )
}

fn row(ruling: &RunVerdict) -> String {
    let class = ruling.verdict.as_str();
    let counts = [ruling.executions, ruling.hand_overs, ruling.stale, ruling.hit, ruling.violations];
    let counts: String = counts.iter().map(|count| format!("<td class=n>{count}")).collect();
    let recovery = ruling.recovery.map(|time| format!("{time:.2}")).unwrap_or_default();
    format!(
        "<tr class={class}><td>{}<td>{}<td class=n>{}{counts}<td class=n>{recovery}<td>{class}<td>{}</tr>\n",
        escape_html(&ruling.case),
        escape_html(&ruling.level),
        ruling.seed,
        escape_html(&ruling.reason),
    )
}

/// The section of a case; `None` if no recovery was measured.
fn section(case: &str, rulings: &[&RunVerdict]) -> Option<String> {
    let times: Vec<f64> = rulings.iter().filter_map(|ruling| ruling.recovery).collect();
    let longest = times.iter().copied().reduce(f64::max)?;
    Some(format!("<h3>{}</h3>{}\n", escape_html(case), bars(&times, longest)))
}

/// The number of columns of a chart: enough to show a difference.
const COLUMNS: usize = 20;
const WIDTH: usize = 26;
const HEIGHT: usize = 60;

fn bars(times: &[f64], longest: f64) -> String {
    // The width of a column is a multiple of a quarter of a second, so that the labels are readable.
    let step = (longest / f64::from(u32::try_from(COLUMNS - 1).unwrap_or(1)) / 0.25).ceil().max(1.0) * 0.25;
    let within = |column: usize| {
        let from = step * column as f64;
        times.iter().filter(|time| **time >= from && **time < from + step).count()
    };
    let counts: Vec<usize> = (0..COLUMNS).map(within).collect();
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let column = |(n, count): (usize, &usize)| {
        let x = n * WIDTH;
        let high = count * HEIGHT / most;
        let label = if n % 4 == 0 {
            format!("<text x={x} y={}>{:.1}</text>", HEIGHT + 14, step * n as f64)
        } else {
            String::new()
        };
        let number = if *count > 0 {
            format!("<text x={x} y={}>{count}</text>", HEIGHT - high + 10)
        } else {
            String::new()
        };
        format!("<rect x={x} y={} width={} height={high} />{label}{number}", HEIGHT - high, WIDTH - 4)
    };
    let columns: String = counts.iter().enumerate().map(column).collect();
    format!("<svg width={} height={} role=img>{columns}</svg>", COLUMNS * WIDTH, HEIGHT + 20)
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ruling(recovery: f64, reason: &str) -> RunVerdict {
        RunVerdict {
            case: "kill".into(),
            level: "guard".into(),
            seed: 1,
            executions: 5,
            hand_overs: 4,
            stale: 3,
            hit: 2,
            violations: 0,
            recovery: Some(recovery),
            verdict: Verdict::Pass,
            reason: reason.into(),
        }
    }

    /// Every recovery time is counted in one bar of the chart, and no text of a verdict becomes markup.
    #[test]
    fn times_are_charted_and_text_escaped() {
        let page = page(&[ruling(0.1, "<script>"), ruling(0.2, ""), ruling(2.6, ""), ruling(5.0, "")]);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
        let bars = bars(&[0.1, 0.2, 2.6, 5.0], 5.0);
        let counts: Vec<&str> = bars.split("</text>").filter_map(|part| part.rsplit('>').next()).collect();
        let counts: Vec<usize> = counts.iter().filter_map(|count| count.parse().ok()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 4, "{bars}");
    }
}
