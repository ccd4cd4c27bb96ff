//! The binary: the command line, copies of the store of a guard as files, and policies made out of OpenAPI descriptions.
//!
//! - [`cli`]: the verbs, their arguments and output, and exit codes. Begin here
//! - [`backups`]: a backup file is complete or absent, and a store can be made from it
//! - [`openapi`]: routes and keys out of the description of an interface, with a mark at all that it does not say
//!
//! What a verb does is in other crates: `run` and `guard` in `fencegate-serve`, `check` and `explain` in `fencegate-check`,
//! commands under a lock in `fencegate-exec`, `verify` and `demo` in the crates of these names. The path of a request is in
//! `fencegate-proxy`. Tests use those crates, and this one as a program.

// The request path is one future within another, a few dozen deep, and rustc computes the layout of all of it.
#![recursion_limit = "256"]
// `println!` panics when the reader is gone. Verbs print through `cli::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod backups;
pub mod cli;
pub mod openapi;
