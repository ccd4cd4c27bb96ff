//! A key is made of exactly what services in PHP, Python and Node and nginx read of the same request, or the request is refused.
//!
//! `REWRITE=1` asks the real programs again how they read each text of `tests/readings/*.jsonl`.

use std::env;

use fencegate_tests::foreign_readings::{
    key_reader::{KeyReader, ReadingCounts},
    programs::readings,
    reading::RequestPart,
};

/// Compares the stored readings of one part of a request, and asserts that they have enough different cases.
fn compared(part: RequestPart, least: ReadingCounts) {
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

#[test]
fn a_path_is_read_as_services_read_it() {
    compared(RequestPart::Path, ReadingCounts { same: 100, absent: 0, refused: 300 });
}

#[test]
fn a_parameter_is_read_as_services_read_it() {
    compared(RequestPart::Query, ReadingCounts { same: 80, absent: 40, refused: 150 });
}

#[test]
fn a_member_of_a_body_is_read_as_services_read_it() {
    compared(RequestPart::Body, ReadingCounts { same: 60, absent: 20, refused: 60 });
}
