//! The harness: starts real gateways, a real ZooKeeper and recording upstreams, and plays the ZooKeeper in memory.

pub mod memory;
