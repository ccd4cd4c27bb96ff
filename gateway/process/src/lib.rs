//! What the parts of one process share, whatever they do: the clock that deadlines are measured with, randomness, the
//! registry of metric families, the files of TLS, and the words in which the log says errors, times and keys.
//!
//! In reading order:
//!
//! - [`clock`]: CLOCK_BOOTTIME, and the permission to act that ends at an instant of it
//! - [`randomness`]: random bytes and the names made of them
//! - [`failpoint`], [`sync`]: where a test stops a thread, or schedules it
//! - [`families`]: the metric families of the process; [`gathered`] and [`spread`] read them, [`system`] is one of
//!   them, and [`counted`] goes up and down in one
//! - [`pem`], [`client_tls`]: the files of TLS, and what those of the side that connects say
//! - [`said`], [`shown`], [`again`]: errors, durations, keys and commands as people read them

pub mod again;
pub mod client_tls;
pub mod clock;
pub mod counted;
pub mod failpoint;
pub mod families;
pub mod gathered;
pub mod pem;
pub mod randomness;
pub mod said;
pub mod sharded;
pub mod shown;
pub mod spread;
pub mod sync;
pub mod system;
