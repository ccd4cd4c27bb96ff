//! The metrics of requests, routes and upstreams, under the names that dashboards and alerts use. Locks, guards and
//! connections have metrics in their own crates; [`all`] brings all of them together.
//!
//! Labels come from the configuration or from enums, never from a request, so traffic cannot make series. [`hot`]
//! knows single keys, and is no metric family.

mod all;
pub mod hot;
mod lease_counts;
mod plans;
mod requests;
mod route;
mod upstreams;
mod waits;
mod words;
mod worker;

pub use self::{
    all::Metrics,
    lease_counts::{END_REASONS, LeaseMetrics},
    route::{HoldTimer, RouteMetrics},
    waits::WaiterGuard,
    words::{AcquireLabel, ForwardLabel, Reloaded},
    worker::WorkerMetrics,
};
