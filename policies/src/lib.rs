//! Decides, and does nothing else: what a policy file means, which route and key a request has, which of two
//! tokens is newer. No clock, no socket, no async, no HTTP library; whoever acts on a decision lives elsewhere.
//!
//! Reading order: [`mod@file`] is the YAML as written, [`diagnose`] what is wrong with it, [`plan`] what is left after
//! all checks. Per request: [`trust`], [`path`], [`host`], [`route`], [`key`], [`prefer`]. On the way up: [`pick`], [`retry`], [`token`],
//! [`operation`].

pub mod diagnose;
pub mod difference;
pub mod file;
mod fnv;
pub mod hex;
pub mod host;
pub mod key;
pub mod operation;
pub mod path;
pub mod pick;
pub mod plan;
pub mod prefer;
pub mod retry;
pub mod route;
mod spelling;
pub mod token;
pub mod trust;
