//! Shared by all parts of a process: the clock for deadlines, randomness, the registry of metric families, the files of
//! TLS, and the forms of errors, times and keys in the log.
//!
//! In reading order:
//!
//! - [`clock`]: CLOCK_BOOTTIME, and the permission to act that ends at an instant of it
//! - [`randomness`]: random bytes and the names made of them
//! - [`failpoint`], [`sync`]: places where a test stops or schedules a thread
//! - [`families`]: the metric families of the process. [`gathered`] and [`spread`] read them, [`system`] adds those of
//!   the process itself, and [`counted`] is a gauge of living values
//! - [`pem`], [`client_tls`]: the files of TLS, and the configuration of the connecting side
//! - [`said`], [`shown`], [`again`]: errors, durations, keys and commands in forms for people

pub mod again;
pub mod client_tls;
pub mod clock;
pub mod counted;
pub mod failpoint;
pub mod families;
pub mod gathered;
pub mod log_writer;
pub mod pem;
pub mod randomness;
pub mod said;
pub mod sharded;
pub mod shown;
pub mod spread;
pub mod sync;
pub mod system;
