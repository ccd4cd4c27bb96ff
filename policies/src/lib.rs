//! Makes decisions without side effects: the meaning of a policy file, the route and the key of a request, the newer
//! one of two tokens. It uses no clock, no socket, no async code and no HTTP library; other crates act on its
//! decisions.
//!
//! In reading order:
//!
//! 1. The meaning of a file: [`mod@file`] is the YAML as written, [`diagnostics`] its mistakes, [`plan`] the result after
//!    all checks, [`schema`] the table of all fields, [`diff`] the changes from another file, [`plan_digest`] whether two
//!    gateways are compatible, with [`conflicts`] the routes that are not.
//! 2. The meaning of a request: [`trusted_proxies`] its client, [`client_name`] the name of that client, [`path`] and [`host`] its target,
//!    [`plan::RouteTable`] its route, [`key`] the locks that it needs, [`permits`] how many may hold one of them at once,
//!    [`operation`] its name if it happens at most once, [`prefer`] how long its client waits.
//! 3. The later decisions about it: [`load_balance`] the endpoint, [`token`] whether it is still the newest, [`not_after`]
//!    until when it may be started, [`retry`] whether it may be sent again.
//!
//! This crate is independent of:
//!
//! - the time, randomness, the file system and the environment: texts and variables come in as arguments;
//! - sockets and HTTP libraries: a request is a method, a path, a host and its [`key::RequestValues`];
//! - the ways in which a lock is taken and a watermark is stored: the crate has only their names, and the time that
//!   each request may wait for them;
//! - the status and the text of a refusal: errors such as [`key::ExtractKeyError`] describe the mistake, and the
//!   gateway answers.

// Modules for the meaning of a file.
pub mod conflicts;
pub mod diagnostics;
pub mod diff;
pub mod file;
pub mod plan;
pub mod plan_digest;
pub mod schema;

// Modules for the meaning of a request.
pub mod client_name;
pub mod host;
pub mod key;
pub mod operation;
pub mod path;
pub mod permits;
pub mod prefer;
pub mod trusted_proxies;

// Modules for later decisions about a request.
pub mod load_balance;
pub mod not_after;
pub mod retry;
pub mod token;

// Helpers that several modules use.
mod fnv;
mod graphql;
mod header_name;
pub mod hex;
mod words;
