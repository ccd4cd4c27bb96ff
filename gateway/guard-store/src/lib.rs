//! The decisions and the state of a guard. Begin with [`admission`].
//!
//! - [`admission`]: decides, in memory, with the time passed in: the watermarks of every key, dispatches in flight and in
//!   doubt
//! - [`store`]: remembers, durably, in a file: watermarks, the keys at work, the journal
//! - [`operation`], [`dispatch_target`]: the entries of the journal, and where a dispatch was sent
//! - [`error`]: why a dispatch is refused; [`config`]: time limits and bounds; [`metrics`]: the metrics of guards
//! - [`store_clock`], [`wall_clock`]: the time that the store has seen pass, and the time for display
//!
//! The guard that uses this crate is in `fencegate-guard`, the store of several guards in
//! `fencegate-guard-postgres`.

pub mod admission;
pub mod config;
pub mod dispatch_target;
pub mod error;
pub mod metrics;
pub mod operation;
pub mod store;
pub mod store_clock;
pub mod wall_clock;
