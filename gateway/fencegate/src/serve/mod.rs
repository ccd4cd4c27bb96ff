//! The running process of a gateway or guard: its threads, and their end.
//!
//! [`gateway_process`] starts, runs and ends a gateway, [`guard_process`] a guard, [`filter_process`] a filter. All
//! are assembled from the same parts: [`context`], [`main_thread`], [`admin_listener`] and [`worker_pool`], in the
//! order in which they are created. These parts are independent of the thread they will run on, and of its network,
//! clock and ZooKeeper: a simulation runs all of it on one.

pub(crate) mod addresses;
mod admin_listener;
pub mod context;
pub mod error;
pub mod filter_process;
pub mod gateway_process;
pub mod guard_process;
mod main_thread;
mod plan_publisher;
pub mod reload;
pub mod rlimit;
mod sd_notify;
mod signals;
pub mod worker;
pub mod worker_pool;
