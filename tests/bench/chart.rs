//! Draws the speed of the gateway relative to other programs: bars to both sides of a line that means equal speed.

use plotters::{
    prelude::{DrawingArea, IntoDrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend, Text},
    style::{
        Color, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};
use serde_json::Value;

use crate::result::BenchResult;

const WIDTH: i32 = 1080;
const ROW: i32 = 24;
const HEAD: i32 = 46;
/// The horizontal range of the bars. The names of the benches are left of it.
const BARS: (i32, i32) = (560, 1000);

/// This grey is readable on a white and on a black background.
const WORDS: RGBColor = RGBColor(128, 128, 128);
const MET: RGBColor = RGBColor(64, 128, 191);
const MISSED: RGBColor = RGBColor(217, 119, 54);
const UNJUDGED: RGBColor = RGBColor(120, 144, 156);

/// A style sheet that makes the text lighter on a dark background.
const STYLE: &str =
    "<style>text{fill:#57606a}@media (prefers-color-scheme:dark){text{fill:#adb5bd}}</style>\n";

/// Benches that are drawn in one group.
struct BarGroup {
    title: &'static str,
    bars: Vec<ChartBar>,
}

struct ChartBar {
    label: String,
    ratio: f64,
    goal: Option<f64>,
    colour: RGBColor,
}

type ChartArea<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws a report as SVG.
pub(crate) fn draw(report: &[Value]) -> BenchResult<String> {
    let groups: Vec<BarGroup> = groups(report).into_iter().filter(|group| !group.bars.is_empty()).collect();
    if groups.is_empty() {
        return Err("the report has nothing to draw: run the benches first".into());
    }
    let rows: usize = groups.iter().map(|group| group.bars.len()).sum();
    let height = HEAD + ROW * i32::try_from(rows + 2 * groups.len() + 1)?;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH.unsigned_abs(), height.unsigned_abs()));
        let area = area.into_drawing_area();
        write(&area, &headline(report), (12, 18), HPos::Left, 19)?;
        write(
            &area,
            "ours / theirs, faster to the right; the goal is a small line: blue reached it, orange missed it",
            (12, 38),
            HPos::Left,
            15,
        )?;
        let scale = RatioScale::of(&groups);
        let mut y = HEAD + ROW;
        for group in &groups {
            write(&area, group.title, (12, y), HPos::Left, 17)?;
            y = bars(&area, group, &scale, y + ROW)? + ROW;
        }
        area.present()?;
    }
    // The position after the opening tag, where the style sheet has to stand.
    let opened = svg.find('>').ok_or("a picture has a tag")? + 1;
    svg.insert_str(opened, STYLE);
    Ok(svg)
}

/// The machine of the measurements, and the number of rounds.
fn headline(report: &[Value]) -> String {
    let mut machines: Vec<&str> = report.iter().filter_map(|bench| bench["machine"].as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    let rounds =
        report.iter().filter_map(|bench| bench["ratios"].as_array().map(Vec::len)).max().unwrap_or(0);
    let rounds = if rounds == 1 { "one round".to_owned() } else { format!("the median of {rounds} rounds") };
    format!("Fencegate beside others: {rounds}, on {}", machines.join(" and "))
}

fn groups(report: &[Value]) -> [BarGroup; 2] {
    let of = |belongs: fn(&Value) -> bool| {
        report.iter().filter(|bench| belongs(bench)).filter_map(ChartBar::of).collect()
    };
    [
        BarGroup { title: "As a proxy: requests in a second", bars: of(is_proxy_bench) },
        BarGroup { title: "Under a lock: requests in a second", bars: of(is_lock_bench) },
    ]
}

fn is_proxy_bench(bench: &Value) -> bool {
    let name = bench["bench"].as_str().unwrap_or_default();
    bench["unit"] == "requests/s" && (name.starts_with("unfenced") || name.starts_with("fenced-warm"))
}

fn is_lock_bench(bench: &Value) -> bool {
    let name = bench["bench"].as_str().unwrap_or_default();
    let beside_ours = name.starts_with("forwarded") || name.ends_with("-beside-one");
    bench["unit"].as_str().is_some_and(|unit| unit.starts_with("locked ")) && !beside_ours
}

impl ChartBar {
    fn of(bench: &Value) -> Option<Self> {
        let text = |name: &str| bench[name].as_str();
        let colour = match bench["met"].as_bool() {
            Some(true) => MET,
            Some(false) => MISSED,
            None => UNJUDGED,
        };
        let goal = text("goal").and_then(|goal| goal.split_once(' ')?.1.parse().ok());
        let ratio = bench["ratio"].as_f64().filter(|ratio| *ratio > 0.0)?;
        Some(Self { label: format!("{} | {}", text("bench")?, text("peer")?), ratio, goal, colour })
    }
}

/// The scale of the bars. Twice as fast and half as fast have the same distance from the line of equal speed.
struct RatioScale {
    least: f64,
    most: f64,
}

impl RatioScale {
    fn of(groups: &[BarGroup]) -> Self {
        let ratios = groups.iter().flat_map(|group| &group.bars).flat_map(|bar| [Some(bar.ratio), bar.goal]);
        let ratios = || ratios.clone().flatten();
        Self { least: ratios().fold(0.5, f64::min), most: ratios().fold(2.0, f64::max) }
    }

    fn x(&self, ratio: f64) -> i32 {
        let share = (ratio / self.least).ln() / (self.most / self.least).ln();
        BARS.0 + (share * f64::from(BARS.1 - BARS.0)).round() as i32
    }
}

/// Draws the bars. Returns the position where they end.
fn bars(area: &ChartArea<'_>, group: &BarGroup, scale: &RatioScale, top: i32) -> BenchResult<i32> {
    let mut y = top;
    for bar in &group.bars {
        let from = scale.x(bar.ratio.min(1.0));
        let to = scale.x(bar.ratio.max(1.0));
        area.draw(&Rectangle::new([(from, y - 7), (to.max(from + 1), y + 7)], bar.colour.filled()))?;
        if let Some(goal) = bar.goal {
            line(area, scale.x(goal), y - 9, y + 9)?;
        }
        write(area, &bar.label, (BARS.0 - 10, y), HPos::Right, 15)?;
        let beyond = bar.goal.map_or(to, |goal| to.max(scale.x(goal)));
        write(area, &format!("{:.2}", bar.ratio), (beyond + 6, y), HPos::Left, 15)?;
        y += ROW;
    }
    line(area, scale.x(1.0), top - ROW / 2, y - ROW / 2)?;
    Ok(y)
}

fn line(area: &ChartArea<'_>, x: i32, from: i32, to: i32) -> BenchResult<()> {
    Ok(area.draw(&PathElement::new(vec![(x, from), (x, to)], WORDS.stroke_width(1)))?)
}

fn write(area: &ChartArea<'_>, words: &str, at: (i32, i32), side: HPos, size: u32) -> BenchResult<()> {
    let style =
        TextStyle::from(("sans-serif", size).into_font()).color(&WORDS).pos(Pos::new(side, VPos::Center));
    Ok(area.draw(&Text::new(words, at, style))?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Vec<Value> {
        let bench = |name: &str, unit: &str, ratio: f64, goal: Value, met: Value| {
            json!({"bench": name, "peer": "them", "unit": unit, "ratio": ratio, "goal": goal, "met": met,
                "ratios": [ratio, ratio, ratio], "machine": "2 cores, a machine"})
        };
        vec![
            bench("unfenced", "requests/s", 0.8, json!(">= 0.9"), json!(false)),
            bench("unfenced-cpu", "us/request", 2.0, json!("<= 1.25"), json!(false)),
            bench("once-hot", "locked calls/s", 12.0, json!(">= 10"), json!(true)),
            bench("guard-new-tenures", "tenures/s", 3.0, Value::Null, Value::Null),
        ]
    }

    #[test]
    fn chart_shows_rates_machine_and_rounds() {
        let svg = draw(&sample()).expect("drawn");
        for part in ["unfenced | them", "0.80", "once-hot | them", "12.00", "3 rounds, on 2 cores, a machine"]
        {
            assert!(svg.contains(part), "{part} is not in\n{svg}");
        }
        for part in ["unfenced-cpu", "guard-new-tenures"] {
            assert!(!svg.contains(part), "{part} is in\n{svg}");
        }
        assert!(svg.contains("prefers-color-scheme:dark"), "{svg}");
    }

    #[test]
    fn missed_goal_has_own_colour() {
        let svg = draw(&sample()).expect("drawn");
        for (colour, drawn) in [("#D97736", true), ("#4080BF", true), ("#78909C", false)] {
            assert_eq!(svg.contains(colour), drawn, "{colour} in\n{svg}");
        }
    }

    #[test]
    fn empty_result_draws_no_chart() {
        draw(&[]).expect_err("there is nothing");
    }

    /// Equal speed is drawn in the middle between half and twice as fast.
    #[test]
    fn equal_speed_is_drawn_in_middle() {
        let scale = RatioScale { least: 0.5, most: 2.0 };
        assert_eq!([0.5, 1.0, 2.0].map(|ratio| scale.x(ratio)), [BARS.0, (BARS.0 + BARS.1) / 2, BARS.1]);
    }
}
