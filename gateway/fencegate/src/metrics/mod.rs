//! What the gateway counts of its requests, routes and upstreams, under the names that its dashboards and alerts use.
//! Locks, guards and connections count their own in their crates; [`all`] brings all of them together.
//!
//! Labels come from the configuration or from enums, never from a request: traffic cannot make series. What is known of
//! single keys stands in [`hot`], which is no family.

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
    lease_counts::{LeaseMetrics, WHY},
    route::{Holding, RouteMetrics},
    waits::Waiting,
    words::{Acquired, Forwarding, Reloaded},
    worker::WorkerMetrics,
};
