//! The way to the upstreams: [`fleet`] knows the endpoints [`address`] where they are and [`health`] how they are, [`pool`] keeps connections,
//! [`gate`] guards what is written to them.

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
pub mod metrics;
pub mod pool;
pub mod pooled;
pub mod resolver;
pub mod speak;
pub mod spot;
pub mod tls;
pub mod tunnel;
