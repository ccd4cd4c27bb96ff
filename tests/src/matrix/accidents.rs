//! The faults of the matrix, one function each. A function returns when the fault is over, with the moment from
//! which the time of recovery counts.

pub mod client_hangups;
pub mod clocks;
pub mod disks;
pub mod guards;
pub mod holders;
pub mod hops;
pub mod interference;
pub mod networks;
pub mod operations;
pub mod quorum;
pub mod services;

use std::time::Instant;

use futures_util::future::BoxFuture;

use super::environment::RunEnvironment;

/// The moment from which the time of recovery counts, or the reason why the fault is impossible on this machine.
pub type AccidentResult = Result<Instant, String>;

pub type AccidentFn = for<'a> fn(&'a mut RunEnvironment) -> BoxFuture<'a, AccidentResult>;
