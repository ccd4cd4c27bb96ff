//! Connections to upstreams: [`fleet`] has the endpoints, [`address`] their addresses, and [`health`] their state.
//! [`pool`] keeps connections, and [`gate`] guards the writes to them.

pub mod address;
pub mod connection;
pub mod endpoint;
pub mod fleet;
pub mod frames;
pub mod gate;
pub mod health;
mod heard;
pub mod idle;
pub mod introduce;
pub mod lend;
pub mod lent;
pub mod liveness;
pub mod metrics;
pub mod pool;
pub mod pooled;
pub mod resolver;
pub mod speak;
pub mod spot;
pub mod tls;
pub mod tunnel;
