//! The running process of a gateway, guard or filter: its threads, reload and end.
//!
//! - [`gateway_process`], [`guard_process`], [`filter_process`]: start, run and end a process. Begin with the first; [`error`]:
//!   why one does not start or end well
//! - `main_thread`, `admin_listener`, [`worker_context`], [`worker_pool`], [`worker`]: the parts of which all are assembled, in the
//!   order in which they are created. They are independent of the thread they will run on, and of its network, clock and
//!   ZooKeeper: a simulation runs all of it on one
//! - [`reload`]: puts another plan in force; `plan_publisher`: publishes it to the other gateways
//! - `signals`, `sd_notify`, `addresses`, [`rlimit`]: what the process has to do with the machine
//!
//! What happens to a request is in `fencegate-proxy`; arguments and exit codes are in `fencegate`.

// The request path is one future within another, a few dozen deep, and rustc computes the layout of all of it.
#![recursion_limit = "256"]
// `println!` panics when the reader is gone.
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
