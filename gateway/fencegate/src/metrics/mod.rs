//! The metrics of requests, routes and upstreams, under the names that dashboards and alerts use. Locks, guards and
//! connections have metrics in their own crates; [`registry`] brings all of them together.
//!
//! Labels come from the configuration or from enums, never from a request, so traffic cannot make series.
//! [`hot_keys`] counts single keys, and is no metric family.

pub mod hot_keys;
mod labels;
mod leases;
mod oldest_waiter;
mod plans;
mod registry;
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
