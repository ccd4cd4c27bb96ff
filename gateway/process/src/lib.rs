//! Shared by all parts of a process: the clock for deadlines, randomness, the registry of metric families, the files of
//! TLS, and the forms of errors, times and keys in the log.
//!
//! In reading order:
//!
//! - [`clock`]: CLOCK_BOOTTIME, and the permission to act until an instant of it
//! - [`randomness`]: random bytes and the names made of them
//! - [`failpoint`], [`sync`]: places where a test stops or schedules a thread
//! - [`registry`]: the metric families of the process. [`metric_snapshot`] and [`histogram`] read them, [`process_metrics`] adds those of
//!   the process itself, and [`gauge_guard`] is a gauge of living values
//! - [`pem`], [`client_tls`]: the files of TLS, and the configuration of the connecting side
//! - [`display`], [`key_redaction`], [`command_hint`]: errors, durations, keys and commands in forms for people

pub mod client_tls;
pub mod clock;
pub mod command_hint;
pub mod display;
pub mod failpoint;
pub mod gauge_guard;
pub mod histogram;
pub mod key_redaction;
pub mod log_writer;
pub mod metric_snapshot;
pub mod pem;
pub mod process_metrics;
pub mod randomness;
pub mod registry;
pub mod sharded;
pub mod sync;
