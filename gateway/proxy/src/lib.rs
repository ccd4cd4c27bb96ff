//! The request path of gateways, guards and filters, from the head of a request to its answer. Begin with [`pipeline`], the
//! order of the steps.
//!
//! - [`steps`]: the steps, one file each, with the type of a request after each; [`handler`]: the interface between
//!   them
//! - [`request_context`]: the facts that steps report about one request; [`plan_context`]: the state that steps share
//!   for all requests of a plan; [`via`], [`concurrency_limit`], [`cors`]: used for every request
//! - [`frontend`]: before the first step and after the last response; only here a refusal becomes a response
//! - [`telemetry`]: reports each request when its answer is over
//!
//! Steps take what other crates grant: locks from `fencegate-lock`, admission from `fencegate-guard`, connections from
//! `fencegate-http-client`. Threads, start and reload are in `fencegate-serve`, the admin listener in `fencegate-admin`.

// The future of a request nests those of all steps, a few dozen deep, and rustc computes the layout of all of it.
#![recursion_limit = "256"]
// `println!` panics when the reader of the output has closed it.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod concurrency_limit;
pub mod cors;
pub mod frontend;
pub mod handler;
pub mod pipeline;
pub mod plan_context;
pub mod request_context;
pub mod steps;
pub mod telemetry;
pub mod via;
