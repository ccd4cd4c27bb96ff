//! The way to the upstreams: [`pool`] keeps connections, [`gate`] guards what is written to them.

pub mod gate;
pub mod guards;
pub mod pool;
pub mod verdict;
