//! Backups of a guard's store: files that are there as a whole or not at all, and stores that are made of them.

pub mod new_file;
pub mod store_place;
