//! The parts that all threads of a process share: the clock for deadlines, randomness, the registry of metric families,
//! the files of TLS, and the forms of errors, times and keys in the log.
//!
//! In reading order:
//!
//! - [`clock`]: CLOCK_BOOTTIME, and the permission to act until an instant of it
//! - [`randomness`]: random bytes and the names made of them
//! - [`failpoint`], [`sync`]: places where a test stops or schedules a thread
//! - [`liveness`]: pings threads, to detect whether they still run their tasks
//! - [`registry`], [`sharded`]: the metric families of the process. [`histogram`] reads one,
//!   [`process_metrics`] adds those of the process itself, and [`gauge_guard`] is a gauge of living values
//! - [`log_writer`]: log lines for threads that must not wait for the reader of the output; [`log_limit`] for lines that
//!   strangers can cause
//! - [`pem`], [`client_tls`]: the files of TLS, and the configuration of the connecting side
//! - [`display`], [`key_redaction`], [`command_hint`]: errors, durations, texts of users, keys and commands in forms for
//!   people; [`host_name`] is the name of this machine

pub mod client_tls;
pub mod clock;
pub mod command_hint;
pub mod display;
pub mod failpoint;
pub mod gauge_guard;
pub mod histogram;
pub mod host_name;
pub mod key_redaction;
pub mod liveness;
pub mod log_limit;
pub mod log_writer;
pub mod pem;
pub mod process_metrics;
pub mod randomness;
pub mod registry;
pub mod sharded;
pub mod sync;
