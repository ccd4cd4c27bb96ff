//! The running process of a gateway, guard or filter: its threads, reload and end.
//!
//! - [`gateway_process`], [`guard_process`], [`filter_process`]: start, run and end a process. Begin with
//!   [`gateway_process`]. [`error`]: the errors of a process that does not start or end well
//! - `main_thread`, `admin_listener`, [`worker_context`], [`worker_pool`], [`worker`]: the parts of every process, in
//!   the order in which they are created. Workers do not depend on their thread, network, clock and ZooKeeper: a
//!   simulation runs all of them on one thread
//! - [`reload`]: puts another plan in force; `plan_publisher`: publishes it to the other gateways
//! - `signals`, `sd_notify`, `addresses`, [`rlimit`]: the interfaces of the process to the machine
//!
//! The steps of a request are in `fencegate-proxy`; arguments and exit codes are in `fencegate`.

// The future of a request nests those of all steps, a few dozen deep, and rustc computes the layout of all of it.
#![recursion_limit = "256"]
// `println!` panics when the reader of the output has closed it.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod addresses;
mod admin_listener;
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
pub mod worker_context;
pub mod worker_pool;
