//! A key is made of exactly the values that services in PHP, Python and Node and nginx read of the same request, or
//! the request is refused.
//!
//! With `REWRITE=1` the real programs read each text of `tests/readings/*.jsonl` again.

use std::env;

use fencegate_tests::foreign_readings::{
    key_reader::{KeyReader, ReadingCounts},
    programs::readings,
    reading::RequestPart,
};

/// Compares the stored readings of one part of a request, and asserts that they have enough different cases.
fn compare_readings(part: RequestPart, least: ReadingCounts) {
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
    compare_readings(RequestPart::Path, ReadingCounts { same: 100, absent: 0, refused: 300 });
}

/// A query parameter is read as services read it, or refused.
#[test]
fn query_parameter_matches_service_readings() {
    compare_readings(RequestPart::Query, ReadingCounts { same: 80, absent: 40, refused: 150 });
}

/// A member of a JSON body is read as services read it, or refused.
#[test]
fn body_member_matches_service_readings() {
    compare_readings(RequestPart::Body, ReadingCounts { same: 60, absent: 20, refused: 60 });
}
