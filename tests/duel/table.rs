//! Writes the results as the table of `deploy/docs/COMPARISON.md`, with `REWRITE=1` and when all lock systems have
//! run.

use std::{env, fs, path::PathBuf};

use fencegate_tests::comparison::{self, LockSystem};

use crate::suite::report;

/// The reason why Consul is not tested, by searches with apt in Debian 12 and with npm. PyPI has only clients for
/// it.
const NO_CONSUL: &str = "Debian 12, PyPI and npm do not have its server";

/// Every lock system has its row in the table, and the document with the table is consistent.
#[test]
fn every_contestant_has_row() {
    let mut report = report();
    report.skip(LockSystem::Consul, NO_CONSUL).expect("the report can be written");
    let table = report.table();
    println!("{table}");
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/docs/COMPARISON.md");
    let document = fs::read_to_string(&file).expect("the document");
    let document = comparison::replace_table(&document, &table).expect("it has a place for the duel");
    assert_eq!(comparison::complaints(&document), [""; 0], "all of it has to be run first");
    if env::var_os("REWRITE").is_some() {
        fs::write(file, document).expect("the repository can be written");
    }
}
