//! The running process of a gateway or guard: its threads, and their end.
//!
//! [`gatekeeping`] starts, runs and ends a gateway, [`guarding`] a guard, [`filtering`] a filter. All are made of the same parts: [`base`],
//! [`main_thread`], [`reception`] and [`staff`], in the order in which they are made. What is made there does not know which
//! thread it will run on, nor whose network, clock and ZooKeeper it has: a simulation runs all of it on one.

pub(crate) mod addresses;
pub mod base;
pub mod filtering;
pub mod gatekeeping;
pub mod guarding;
mod main_thread;
pub mod not_serving;
mod notify;
mod publishing;
mod reception;
pub mod reload;
pub mod rlimit;
mod signals;
pub mod staff;
pub mod worker;
