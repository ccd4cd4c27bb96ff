//! Draws the output of a command as a picture of a terminal, for light and for dark pages.

use std::fmt::Write as _;

/// The width and height of one letter, in the font that browsers use for the picture.
const LETTER: (f64, usize) = (7.85, 19);
const EDGE: usize = 14;

/// The picture as SVG. It contains no date and no path of this machine.
///
/// # Panics
/// Never: a text in memory takes every line.
pub fn render_terminal_svg(title: &str, lines: &[&str]) -> String {
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a hundred letters"
    )]
    let width = (longest as f64 * LETTER.0).ceil() as usize + 2 * EDGE;
    let height = lines.len() * LETTER.1 + 2 * EDGE;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="ui-monospace, 'DejaVu Sans Mono', monospace" font-size="13">
<title>{}</title>
<style>
.page{{fill:#f6f8fa;stroke:#d0d7de}}text{{fill:#1f2328;white-space:pre}}
@media (prefers-color-scheme: dark){{.page{{fill:#0d1117;stroke:#30363d}}text{{fill:#e6edf3}}}}
</style>
<rect class="page" x="0.5" y="0.5" width="{}" height="{}" rx="6"/>
"##,
        escape_xml(title),
        width - 1,
        height - 1,
    );
    for (at, line) in lines.iter().enumerate() {
        let y = EDGE + (at + 1) * LETTER.1 - 5;
        if !line.is_empty() {
            writeln!(svg, r#"<text x="{EDGE}" y="{y}" xml:space="preserve">{}</text>"#, escape_xml(line))
                .expect("memory");
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
