//! Backups of a guard's store. A backup file is complete or absent, and a store can be made from it.

pub mod new_file;
pub mod store_place;
