//! One session with ZooKeeper, and the state that it needs on the disk.
//!
//! - [`session`]: one session, kept alive by one thread, with its deadline. [`session::client`] is the interface to an
//!   ensemble, and a simulation brings its own
//! - [`state`]: the highest epochs, stored beyond the life of the process; [`installation`]: the identity of an
//!   installation
//! - [`peer_endpoint`], [`peer_secret`]: how the processes of one installation find and authenticate each other
//! - [`error`], [`tenure_end`]: why a lock attempt failed, and why a tenure ended; [`limits`]: limits below ZooKeeper's own
//! - [`metrics`], [`delay_metrics`]: the metrics of sessions and of delays
//!
//! Lock nodes are in `fencegate-recipe`, and the tenures of a process in `fencegate-lock`.

pub mod delay_metrics;
pub mod error;
pub mod installation;
pub mod limits;
pub mod metrics;
pub mod peer_endpoint;
pub mod peer_secret;
pub mod session;
pub mod state;
pub mod tenure_end;
