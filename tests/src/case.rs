//! Byte cases as data: the bytes of a client, the request that an upstream must see, its answer, and the answer that
//! the client must get.
//!
//! The format is described in `tests/wire/README.md`. [`parse`] reads files, [`run`] plays one case against a proxy
//! in front of a [`service`], and [`judge`] compares the run with the file.

mod escape;
pub mod judge;
pub mod parse;
pub mod run;
mod script;
pub mod service;

use std::{fs, path::PathBuf};

pub use self::script::{
    AwaitedEvent, ClientAction, ExpectedClient, ExpectedRequest, ExpectedStatus, ExpectedUpstream,
    MessageCheck, WireCase, WireExchange,
};

/// The folder of the cases.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("wire")
}

/// The cases of one file, such as `hosts.case`.
///
/// # Panics
/// If the file cannot be read, with file and line.
pub fn load(file: &str) -> Vec<WireCase> {
    let path = folder().join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    parse::parse_cases(file, &text).unwrap_or_else(|error| panic!("{error}"))
}

/// The names of all files with cases, sorted.
///
/// # Panics
/// If the folder cannot be read.
pub fn files() -> Vec<String> {
    let entries = fs::read_dir(folder()).expect("the folder of the cases").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut cases: Vec<String> = names.filter(|name| name.ends_with(".case")).collect();
    cases.sort();
    cases
}
