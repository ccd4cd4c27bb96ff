//! Fencegate: an HTTP reverse proxy that holds a ZooKeeper lock per resource and stamps a fencing token.

pub mod demo;
