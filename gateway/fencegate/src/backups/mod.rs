//! Backups of a guard's store. A backup file is complete or absent, and a store can be made from it.

pub mod atomic_file;
pub mod restore_target;
