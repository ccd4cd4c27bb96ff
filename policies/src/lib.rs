//! Decides, and does nothing else: what a policy file means, which route and key a request has, which of two
//! tokens is newer. No clock, no socket, no async, no HTTP library; whoever acts on a decision lives elsewhere.
//!
//! In reading order:
//!
//! 1. What a file means: [`mod@file`] is the YAML as written, [`diagnostics`] what is wrong with it, [`plan`] what is left
//!    after all checks, [`diff`] what another file would change, [`plan_digest`] whether two gateways mean the same.
//! 2. What a request means: [`trusted_proxies`] who names its client, [`path`] and [`host`] what it asks for,
//!    [`plan::RouteTable`] who takes it, [`key`] which locks it needs, [`permits`] how many may have one of them at once,
//!    [`operation`] what it is called if it happens at most once, [`prefer`] how long its client waits.
//! 3. What becomes of it further up: [`load_balance`] the endpoint, [`token`] whether it is still the newest, [`not_after`]
//!    until when it may be begun, [`retry`] whether it may be sent again.
//!
//! What this crate must not know:
//!
//! - the time, randomness, the file system and the environment: texts and variables come in as arguments;
//! - sockets and any HTTP library: a request is a method, a path, a host and what [`key::RequestValues`] says of it;
//! - how a lock is taken and a mark is kept: it says what they are called, and how long who may wait for them;
//! - the status and the words of a refusal: [`key::KeyError`] and its like say what is wrong, and the gateway answers.

// What a file means.
pub mod conflicts;
pub mod diagnostics;
pub mod diff;
pub mod file;
pub mod plan;
pub mod plan_digest;

// What a request means.
pub mod host;
pub mod key;
pub mod operation;
pub mod path;
pub mod permits;
pub mod prefer;
pub mod trusted_proxies;

// What becomes of it further up.
pub mod load_balance;
pub mod not_after;
pub mod retry;
pub mod token;

// What several of these need.
mod fnv;
mod header_name;
pub mod hex;
