//! The promise `read_alike` with random texts, read by the real programs in this run.
//!
//! These are 20,000 paths, 20,000 queries and 20,000 bodies.

use fencegate_policies::path::CanonicalPath;
use fencegate_tests::foreign_readings::{key_reader::KeyReader, programs::readings, reading::RequestPart};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{RngSeed, TestRunner},
};

/// The number of texts for each part of a request.
const TEXTS: usize = 20_000;

fn texts(strategy: impl Strategy<Value = String>) -> Vec<String> {
    let mut runner =
        TestRunner::new(ProptestConfig { rng_seed: RngSeed::Random, ..ProptestConfig::default() });
    let mut next = || strategy.new_tree(&mut runner).expect("nothing is filtered out").current();
    (0..TEXTS).map(|_| next()).collect()
}

fn compare_readings(part: RequestPart, texts: &[String], same: usize, refused: usize) {
    let seen =
        KeyReader::default().compare(part, &readings(part, texts)).unwrap_or_else(|error| panic!("{error}"));
    println!("{part:?}: {seen:?}");
    assert!(seen.same >= same && seen.refused >= refused, "{seen:?}: the texts prove little");
}

/// The gateway takes no key from a path that a real program reads differently.
#[test]
fn paths_are_read_alike() {
    let mut texts = texts(
        "/(orders|ORDERS|%6frders|\\.\\.|\\.|[!$&'()*+,=:@~_-]|[|^`{}\"<> ])(/|//|%2f|\\\\|/\\./|/x/\\.\\./|;/|)([a-c4]|%34|%6[1-9]|%C3%A9|%[2-7][0-9a-fA-F]|%[89c-f][0-9a-f]|é){0,5}(/|/items|%2Fitems|;v|\\.|%2e|)",
    );
    // The gateway forwards the canonical path, so compare also how the programs read that path.
    let forwarded = texts.iter().map(|text| CanonicalPath::parse(text).as_str().to_owned());
    let forwarded: Vec<String> = forwarded.collect();
    texts.extend(forwarded);
    compare_readings(RequestPart::Path, &texts, 1000, 1000);
}

/// The gateway takes no key from a query parameter that a real program reads differently.
#[test]
fn query_parameters_are_read_alike() {
    compare_readings(
        RequestPart::Query,
        &texts(
            "((account_id|ACCOUNT_ID|account%5Fid|%61ccount_id|account[.+ -]id|account\\[id\\]?|account_id(\\[\\]|%00x?|\\+|%20|\\[0\\])|\\+account_id|id|x|account|%C3%A9|)(=([a-c1]|%3[0-9]|%2[5-9bB]|\\+|%20|%C3%A9|é|=|%E2%82%AC|%E2%82|%ff|%00|%0a|%|%z1|&&|;|\\?|/){0,4})?&?){0,4}",
        ),
        1000,
        1000,
    );
}

/// Mostly valid JSON; some bodies have two members of the same name, and some have a sign too many.
fn any_body() -> impl Strategy<Value = String> {
    let text = "\"([a-c1/'é€😀]|\\\\u00[2-7][0-9a-fA-F]|\\\\u00e9|\\\\ud83d\\\\ude00|\\\\ud83d|\\\\[\"/bn\\\\x]){0,4}\"";
    let number =
        "-?(0|[1-9][0-9]{0,3}|0[0-9]|900719925474099[0-9]|[1-9][0-9]{18,24})(\\.[05]|\\.|)(e[0-9]|E-1|)";
    let value = prop_oneof![
        4 => "\"[a-c1é]{1,4}\"|-?[1-9][0-9]{0,5}",
        2 => text,
        2 => number,
        2 => "true|false|null|\\[\\]|\\{\\}|\\[1\\]|\\{\"id\": 2\\}|NaN|-Infinity|'a'|0x10|True|",
    ];
    let name = prop_oneof![
        1 => "\"id\"",
        2 => "\"(ID|i\\\\u0064|Id|id |\\\\u0131d|id\\\\u0000|x|y|z|xy|__proto__|é|)\"",
    ];
    let member =
        (name, "[ \t]?:[ \n]?", value).prop_map(|(name, colon, value)| format!("{name}{colon}{value}"));
    let one_of = |texts: &[&'static str]| prop::sample::select(texts.to_vec());
    let between = one_of(&[",", ", ", ",\n", ",", ", ", ",\n", ",,", ";"]);
    let before = one_of(&["", " ", "\n", "", " ", "\t", "\u{feff}", "//a\n"]);
    let behind = one_of(&["", " ", "\n", "", "\r\n", ",", "}", "\0", "x"]);
    (prop::collection::vec(member, 0..4), between, before, behind).prop_map(
        |(members, between, before, behind)| format!("{before}{{{}}}{behind}", members.join(between)),
    )
}

/// The gateway takes no key from a body member that a real program reads differently.
#[test]
fn body_members_are_read_as_real_programs_do() {
    compare_readings(RequestPart::Body, &texts(any_body()), 500, 500);
}
