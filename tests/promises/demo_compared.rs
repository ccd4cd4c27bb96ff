//! `fencegate demo --compare` runs the demo at all levels and prints one table, in which each level holds its promise. The
//! picture of the README is made from such a run.
//!
//! Without a lock, and with a lock alone, money is missing or invented. With a guard, and with a service that
//! compares tokens, the sum is exact.

use std::{env, fs};

use fencegate_testkit::wait::PATIENCE;
use fencegate_tests::{
    gateway::command_with_timeout, prometheus::deploy, site::TestSite, terminal_picture::render_terminal_svg,
};

/// Replaces figures, which differ from run to run, so that only their positions are compared.
fn without_figures(line: &str) -> String {
    let figure = |word: &str| word.starts_with(|letter: char| letter.is_ascii_digit());
    let words = line.split_whitespace().map(|word| if figure(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The lines of text in a picture.
fn lines_of(picture: &str) -> Vec<String> {
    let texts =
        picture.split("<text ").skip(1).filter_map(|rest| rest.split_once('>')?.1.split("</text>").next());
    let plain = |text: &str| text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    texts.map(plain).collect()
}

/// In `fencegate demo --compare` each level holds its promise, and the picture of the README shows that table.
#[tokio::test]
async fn levels_hold_and_match_picture() {
    // Sessions of the demo are short. Other tests on a busy machine could end one, so this test runs alone.
    let _alone = TestSite::alone().await;
    let output = command_with_timeout(PATIENCE * 12, &["demo", "--compare"]).await.expect("started");
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    let table: Vec<&str> = stdout.lines().skip_while(|line| !line.starts_with("level ")).collect();
    let row = |level: &str| {
        let row = table.iter().find(|line| line.split_whitespace().next() == Some(level));
        row.unwrap_or_else(|| panic!("no {level} in {stdout}")).to_string()
    };
    for (level, held) in [("unfenced", "-"), ("none", "yes"), ("guard", "yes"), ("upstream", "yes")] {
        assert!(row(level).ends_with(held), "{stdout}");
        let exact = row(level).split_whitespace().any(|word| word == "0.00");
        assert_eq!(exact, matches!(level, "guard" | "upstream"), "{stdout}");
    }
    assert_eq!(table.last(), Some(&"Each level held what is promised of it."));

    let file = deploy().join("docs/compare.svg");
    let shown = [&["$ fencegate demo --compare"], &*table].concat();
    if env::var_os("REWRITE").is_some() {
        fs::write(
            &file,
            render_terminal_svg("What went missing at each level, by fencegate demo --compare", &shown),
        )
        .expect("our own tree");
    }
    let recorded = lines_of(&fs::read_to_string(&file).expect("the picture"));
    let shapes = |lines: &[&str]| {
        lines.iter().map(|line| without_figures(line)).filter(|shape| !shape.is_empty()).collect::<Vec<_>>()
    };
    let recorded: Vec<&str> = recorded.iter().map(String::as_str).collect();
    assert_eq!(shapes(&recorded), shapes(&shown), "make the picture anew: REWRITE=1 and this test");
}
