//! The running process, gateway or guard: its threads, and their end.

pub mod files;
pub mod gateway;
pub mod guard;
mod notify;
pub mod process;
pub mod reload;
pub mod worker;
