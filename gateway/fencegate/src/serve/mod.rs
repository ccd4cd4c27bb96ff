//! The running process, gateway or guard: its threads, and their end.
//!
//! [`gatekeeping`] starts, runs and ends a gateway, [`guarding`] a guard. Both are made of the same parts: [`base`],
//! [`main_thread`], [`reception`] and [`staff`], in the order in which they are made.

pub(crate) mod addresses;
mod base;
pub mod files;
pub mod gatekeeping;
pub mod guarding;
mod main_thread;
mod notify;
mod reception;
pub mod reload;
mod signals;
pub mod staff;
pub mod trouble;
pub mod worker;
