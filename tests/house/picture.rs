//! Draws the layers: a box for each crate, with its size, and arrows down to its dependencies.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use crate::{
    crate_layers::{CrateLayers, LayerCrate},
    sources::SourceFiles,
};

const BOX: (usize, usize) = (220, 74);
/// The space between boxes, and between layers.
const GAP: (usize, usize) = (36, 62);
const EDGE: usize = 20;
/// The numbers of files and lines in the picture are rounded to multiples of these.
const FILES: usize = 10;
const LINES: usize = 1000;

/// Draws the picture. It has no date and no path of this machine, so two machines draw the same one.
pub(crate) fn draw(floors: &CrateLayers, root: &Path) -> String {
    let heights = floors.heights();
    let top = heights.values().copied().max().unwrap_or(0);
    let mut storeys: Vec<Vec<&LayerCrate>> = vec![Vec::new(); top + 1];
    for one in &floors.crates {
        storeys[top - heights[&one.name]].push(one);
    }
    let broadest = storeys.iter().map(Vec::len).max().unwrap_or(1);
    let breadth = |boxes: usize| boxes * BOX.0 + boxes.saturating_sub(1) * GAP.0;
    let width = breadth(broadest) + 2 * EDGE;
    let height = storeys.len() * BOX.1 + top * GAP.1 + 2 * EDGE;
    let mut places = BTreeMap::new();
    for (storey, crates) in storeys.iter().enumerate() {
        let left = (width - breadth(crates.len())) / 2;
        for (at, one) in crates.iter().enumerate() {
            places.insert(one.name.as_str(), (left + at * (BOX.0 + GAP.0), EDGE + storey * (BOX.1 + GAP.1)));
        }
    }
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif">
<title>The crates of Fencegate: each knows those that its arrows lead to, and what these know</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#57606a"/></marker></defs>
<rect width="{width}" height="{height}" fill="#ffffff"/>
"##
    );
    for one in &floors.crates {
        for known in direct_dependencies(floors, one) {
            let (x, y) = places[one.name.as_str()];
            let (to_x, to_y) = places[known.as_str()];
            let x = x + BOX.0 / 2;
            let y = y + BOX.1;
            let to_x = to_x + BOX.0 / 2;
            let line = format!(
                r##"<path d="M{x} {y} {to_x} {to_y}" stroke="#57606a" stroke-width="1.5" fill="none" marker-end="url(#tip)"/>"##
            );
            writeln!(svg, "{line}").expect("memory");
        }
    }
    for one in &floors.crates {
        let (x, y) = places[one.name.as_str()];
        let middle = x + BOX.0 / 2;
        let sources = SourceFiles::read(&root.join(&one.folder));
        let [files, lines] = [(sources.files(), FILES), (sources.lines(), LINES)].map(|(n, to)| round(n, to));
        writeln!(
            svg,
            r##"<g text-anchor="middle">
<rect x="{x}" y="{y}" width="{}" height="{}" rx="6" fill="#f6f8fa" stroke="#24292f"/>
<text x="{middle}" y="{}" font-size="16" font-weight="bold" fill="#24292f">{}</text>
<text x="{middle}" y="{}" font-size="12" fill="#57606a">{}/</text>
<text x="{middle}" y="{}" font-size="12" fill="#57606a">about {files} files, {lines} lines</text>
</g>"##,
            BOX.0,
            BOX.1,
            y + 26,
            one.name,
            y + 46,
            one.folder,
            y + 63,
        )
        .expect("memory");
    }
    svg.push_str("</svg>\n");
    svg
}

/// True if two pictures show the same. Numbers may differ by a fifth and one rounding step, so that a new file needs
/// no new picture.
pub(crate) fn shows_same(kept: &str, drawn: &str) -> bool {
    let lines = |svg| str::lines(svg).partition::<Vec<_>, _>(|line| !line.contains(">about "));
    let (kept, kept_sizes) = lines(kept);
    let (drawn, drawn_sizes) = lines(drawn);
    let near =
        |((kept, drawn), step): ((usize, usize), usize)| kept.abs_diff(drawn) <= kept.max(drawn) / 5 + step;
    let same = |(kept, drawn): (&&str, &&str)| {
        sizes(kept).into_iter().zip(sizes(drawn)).zip([FILES, LINES]).all(near)
    };
    kept == drawn && kept_sizes.len() == drawn_sizes.len() && kept_sizes.iter().zip(&drawn_sizes).all(same)
}

/// The numbers of files and lines in a line of the picture that states the size of a crate.
fn sizes(line: &str) -> [usize; 2] {
    let said = line.split_once(">about ").and_then(|(_, said)| said.split_once(" files, "));
    let (files, rest) = said.unwrap_or_default();
    let lines = rest.split_once(' ').unwrap_or_default().0.replace(',', "");
    [files, &lines].map(|number| number.parse().unwrap_or_default())
}

/// The crates that `one` depends on directly and not also through another crate. An arrow to each dependency would
/// hide the layers.
fn direct_dependencies<'f>(floors: &'f CrateLayers, one: &'f LayerCrate) -> Vec<&'f String> {
    let known =
        |name: &str| &floors.crates.iter().find(|one| one.name == name).expect("of the workspace").knows;
    let mut further = BTreeSet::new();
    let mut next: Vec<&String> = one.knows.iter().flat_map(|name| known(name)).collect();
    while let Some(name) = next.pop() {
        if further.insert(name) {
            next.extend(known(name));
        }
    }
    one.knows.iter().filter(|name| !further.contains(name)).collect()
}

/// Rounds to a multiple of `to`, with a comma before the last three digits.
fn round(number: usize, to: usize) -> String {
    let number = ((number + to / 2) / to).max(1) * to;
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{thousands},{:03}", number % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrow_leads_to_next_layer_only() {
        let floors =
            CrateLayers::parse("```floors\nroof: wall cellar\nwall: cellar\ncellar:\n```").expect("a block");
        assert_eq!(direct_dependencies(&floors, &floors.crates[0]), ["wall"]);
        assert_eq!([round(4, 10), round(26, 10), round(12_600, 1000)], ["10", "30", "13,000"]);
    }

    /// A picture is current while its numbers are about right and the rest of it is the same.
    #[test]
    fn picture_tolerates_small_number_changes() {
        let picture =
            |files, lines| format!("<svg>\n<text>about {files} files, {lines} lines</text>\n</svg>\n");
        assert_eq!(sizes(&picture("20", "12,000")), [20, 12_000]);
        assert!(shows_same(&picture("20", "12,000"), &picture("30", "13,000")));
        assert!(!shows_same(&picture("20", "12,000"), &picture("20", "20,000")));
        assert!(!shows_same(
            &picture("20", "12,000"),
            &picture("20", "12,000").replace("</svg>", "<g/></svg>")
        ));
        assert!(!shows_same("", &picture("20", "12,000")));
    }
}
