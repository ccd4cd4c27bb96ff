//! A key is made of exactly the values that services in PHP, Python and Node and nginx read of the same request, or
//! the request is refused. A GraphQL request passes as a query only where parsers find nothing else in it.
//!
//! With `REWRITE=1` the real programs read each text of `tests/readings/*.jsonl` again.
//!
//! A key is made of a path, a query parameter or a member of a body. Two releases of graphql-js read each GraphQL
//! document. `tests/readings` has about 590 texts with the values that these programs read. Among the faults they
//! read 60,000 texts that are generated in each run.

use std::env;

use fencegate_tests::foreign_readings::{
    key_reader::{KeyReader, KeyReadingCounts},
    programs::{graphql_readings, readings},
    reading::{ParserReading, RequestPart},
};

use super::clients::node_with_package;

/// Compares the stored readings of one part of a request, and asserts that they have enough different cases.
fn compare_readings(part: RequestPart, least: KeyReadingCounts) {
    let mut rows = part.load();
    if env::var_os("REWRITE").is_some() {
        let texts: Vec<String> = rows.into_iter().map(|row| row.text).collect();
        rows = readings(part, &texts);
        part.store(&rows);
    }
    let seen = KeyReader::default().compare(part, &rows).unwrap_or_else(|why| panic!("{why}"));
    assert!(
        seen.same >= least.same && seen.absent >= least.absent && seen.refused >= least.refused,
        "{seen:?}: the texts prove little"
    );
}

/// A value of a path is read as services read it, or refused.
#[test]
fn path_matches_service_readings() {
    compare_readings(RequestPart::Path, KeyReadingCounts { same: 100, absent: 0, refused: 300 });
}

/// A query parameter is read as services read it, or refused.
#[test]
fn query_parameter_matches_service_readings() {
    compare_readings(RequestPart::Query, KeyReadingCounts { same: 80, absent: 40, refused: 150 });
}

/// A member of a JSON body is read as services read it, or refused.
#[test]
fn body_member_matches_service_readings() {
    compare_readings(RequestPart::Body, KeyReadingCounts { same: 60, absent: 20, refused: 60 });
}

/// With exact numbers the value of an integer is the one that readers with 64-bit integers find. A reader with doubles
/// finds another value for some integers.
#[test]
fn exact_integer_matches_exact_readings() {
    let reader = KeyReader::default();
    let mut beyond_doubles = 0;
    for row in RequestPart::Body.load() {
        let ParserReading::Text(ours) = reader.exact_reading(&row.text) else { continue };
        for exact in ["php", "python"] {
            let theirs = &row.readings[exact];
            assert!(
                matches!(theirs, ParserReading::Text(theirs) if *theirs == ours),
                "{}: {exact} {theirs}",
                row.text
            );
        }
        beyond_doubles +=
            usize::from(reader.reading(RequestPart::Body, &row.text) == ParserReading::Unreadable);
    }
    assert!(beyond_doubles >= 3, "{beyond_doubles}: the texts prove little");
}

/// A document passes as a query only if every parser finds nothing but queries in it, or refuses it. Two releases of
/// graphql-js read some documents differently.
#[tokio::test]
async fn passing_document_is_query_to_every_parser() {
    let mut rows = RequestPart::Graphql.load();
    if env::var_os("REWRITE").is_some() {
        let new = node_with_package("graphql-16", "graphql-16@npm:graphql@16.11.0").await;
        let old = node_with_package("graphql-0.4", "graphql-0.4@npm:graphql@0.4.18").await;
        let both = format!("{new}:{}", old.trim_start_matches("NODE_PATH="));
        let texts: Vec<String> = rows.into_iter().map(|row| row.text).collect();
        rows = graphql_readings(&both, &["graphql-16", "graphql-0.4"], &texts);
        RequestPart::Graphql.store(&rows);
    }
    let reader = KeyReader::default();
    let only_reads = |reading: &ParserReading| match reading {
        ParserReading::Text(kinds) => kinds.is_empty() || kinds == b"query",
        ParserReading::Nothing | ParserReading::Other | ParserReading::Unreadable => true,
    };
    let mut passing = 0;
    let mut disputed = 0;
    for row in &rows {
        let passes = reader.passes_as_graphql_query(&row.text);
        assert!(!passes || row.readings.values().all(only_reads), "{row}");
        passing += usize::from(passes);
        disputed +=
            usize::from(row.readings.values().any(only_reads) && !row.readings.values().all(only_reads));
    }
    assert!(
        passing >= 12 && disputed >= 3,
        "{passing} pass, {disputed} are disputed: the documents prove little"
    );
}
