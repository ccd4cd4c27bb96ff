//! What threads meet at. Under the feature `shuttle` it is a scheduler's, which tries many interleavings; a build for
//! use takes the standard library's.

#[cfg(not(feature = "shuttle"))]
pub use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64},
};

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64},
};
