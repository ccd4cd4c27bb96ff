//! Synchronisation types. With the feature `shuttle` they belong to a scheduler that tries many interleavings;
//! otherwise to the standard library.

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
