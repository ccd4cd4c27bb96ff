//! The binary: the command line, copies of the store of a guard as files, and policies made out of OpenAPI descriptions.
//!
//! - [`cli`]: the verbs, their arguments and output, and exit codes. Begin here
//! - [`backups`]: backup files of a guard's store, and stores that are made from them
//! - [`openapi`]: makes a policy from the description of an interface, and marks each open decision in it
//!
//! The work of the verbs is in other crates: `run` and `guard` in `fencegate-serve`, `check` and `explain` in
//! `fencegate-check`, commands under a lock in `fencegate-exec`, `verify` and `demo` in the crates of these names. The
//! path of a request is in `fencegate-proxy`. Tests use those crates, and this one as a program.

// The request path is one future within another, a few dozen deep. rustc needs this limit to compute its layout.
#![recursion_limit = "256"]
// `println!` panics if no reader of stdout is left, so verbs print through `cli::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod backups;
pub mod cli;
pub mod openapi;
