//! Plays the accident that fencing is for, on one machine, with a real ZooKeeper and real processes.

pub mod child;
pub mod relay;
pub mod zookeeper;
