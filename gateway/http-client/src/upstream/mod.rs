//! Connections to upstreams: [`endpoint_set`] has the endpoints, [`address`] their addresses, and [`health`] their
//! state. [`pool`] keeps connections, and [`gate`] guards the writes to them.

pub mod address;
pub mod checkout;
pub mod client_connection;
pub mod connection;
pub mod endpoint;
pub mod endpoint_set;
pub mod gate;
pub mod h2_observer;
pub mod health;
pub mod identity_check;
pub mod idle;
pub mod liveness;
pub mod metrics;
pub mod pool;
pub mod pooled_connection;
mod read_tracker;
pub mod resolver;
pub mod return_on_end;
pub mod same_listener;
pub mod tls;
pub mod tunnel;
