//! A key is made of exactly what services in PHP, Python and Node and nginx read of the same request, or the request is refused.
//!
//! `REWRITE=1` asks the real programs again how they read each text of `tests/readings/*.jsonl`.

use std::env;

use fencegate_tests::foreign_readings::{
    asked_programs::readings,
    made_keys::{MadeKeys, Seen},
    reading::Part,
};

/// Compares the stored readings of one part of a request, and asserts that they have enough different cases.
fn compared(part: Part, least: Seen) {
    let mut rows = part.stored();
    if env::var_os("REWRITE").is_some() {
        let texts: Vec<String> = rows.into_iter().map(|row| row.text).collect();
        rows = readings(part, &texts);
        part.store(&rows);
    }
    let seen = MadeKeys::default().compare(part, &rows).unwrap_or_else(|why| panic!("{why}"));
    assert!(
        seen.same >= least.same && seen.absent >= least.absent && seen.refused >= least.refused,
        "{seen:?}: the texts prove little"
    );
}

#[test]
fn a_path_is_read_as_services_read_it() {
    compared(Part::Path, Seen { same: 100, absent: 0, refused: 300 });
}

#[test]
fn a_parameter_is_read_as_services_read_it() {
    compared(Part::Query, Seen { same: 80, absent: 40, refused: 150 });
}

#[test]
fn a_member_of_a_body_is_read_as_services_read_it() {
    compared(Part::Body, Seen { same: 60, absent: 20, refused: 60 });
}
