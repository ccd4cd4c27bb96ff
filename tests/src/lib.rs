//! The harness: starts real gateways, a real ZooKeeper and recording upstreams.
