//! The metrics of requests, routes, upstreams, leases and plans, under the names that dashboards and alerts use. Labels come
//! from the configuration or from enums, never from a request, so traffic cannot make series.
//!
//! - `registry`: the families of this crate, and those that other parts of the process have registered
//! - `requests`, `route`, `upstreams`, `leases`, `plans`: the families; `worker`: one worker's view of them
//! - [`hot_keys`], [`request_tracker`], [`rejected_callers`]: records of single keys, requests and callers, for display. No
//!   metric family is made of them
//!
//! Locks, guards and connections have metrics in their own crates. `deploy/METRICS.md` is written by `tests/metrics.rs`.

// `println!` panics when the reader is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod hot_keys;
mod labels;
mod leases;
mod oldest_waiter;
mod plans;
mod registry;
pub mod rejected_callers;
pub mod request_tracker;
mod requests;
mod route;
mod upstreams;
mod worker;

pub use self::{
    labels::{AcquireLabel, PeerForwardLabel, ReloadResult},
    leases::{END_REASONS, LeaseMetrics},
    oldest_waiter::RouteWaiterGuard,
    registry::ProcessMetricFamilies,
    route::{HoldTimer, RouteMetrics},
    worker::WorkerMetrics,
};
