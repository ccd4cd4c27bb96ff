//! The harness: starts real gateways, a real ZooKeeper and recording upstreams, and judges what they did.
//!
//! Reading order: [`wire`] reads messages as they were spelled, [`origin`] is the upstream that records them,
//! [`client`] asks, [`history`] judges.

pub mod client;
pub mod history;
pub mod origin;
pub mod patience;
pub mod wire;
