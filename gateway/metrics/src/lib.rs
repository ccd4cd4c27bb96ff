//! The metrics of requests, routes, upstreams, leases and plans, under the names that dashboards and alerts use. Labels
//! come from the configuration or from enums, never from a request, so requests cannot create series.
//!
//! - `registry`: the families of upstreams, leases and plans, and those that other parts of the process have registered
//! - `requests`, `route`: the families of requests; `worker`: one worker's view of them; `labels`: the results that are
//!   counted
//! - `issuer_keys`: the family of keys that verify bearer tokens
//! - [`hot_keys`], [`request_tracker`]: records of single keys, requests and callers, for display. No
//!   metric family is made of them
//!
//! Locks, guards and connections have metrics in their own crates. `deploy/METRICS.md` is written by `tests/metrics.rs`.

// `println!` panics when the reader of the output is gone, so this crate does not use it.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod hot_keys;
mod issuer_keys;
mod labels;
mod registry;
pub mod request_tracker;
mod requests;
mod route;
mod worker;

pub use self::{
    issuer_keys::IssuerKeyMetrics,
    labels::{AcquireLabel, PeerForwardLabel, ReloadResult},
    registry::{AllMetricFamilies, END_REASONS, LeaseMetrics},
    requests::RouteWaiterGuard,
    route::{HoldMetricsGuard, RouteMetrics},
    worker::WorkerMetrics,
};
