//! The faults of the matrix, one function each. A function returns when the accident is over, with the moment from
//! which recovery counts.

pub mod clocks_set;
pub mod departures;
pub mod of_disks;
pub mod of_guards;
pub mod of_holders;
pub mod of_hops;
pub mod of_networks;
pub mod of_quorum;
pub mod of_services;
pub mod strangers;
pub mod upkeep;

use std::time::Instant;

use futures_util::future::BoxFuture;

use super::laboratory::RunEnvironment;

/// The moment from which recovery counts, or the reason why the accident cannot happen on this machine.
pub type AccidentResult = Result<Instant, String>;

pub type Accident = for<'a> fn(&'a mut RunEnvironment) -> BoxFuture<'a, AccidentResult>;
