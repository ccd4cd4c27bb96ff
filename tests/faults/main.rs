//! Promises that take minutes to test: long loads, floods, growth. `tests/run --faults` runs them; each test is
//! bounded and ends by itself.

mod alerts_fire;
mod command_mishaps;
mod election;
mod given_up;
mod guard_memory;
mod guard_migrate_size;
mod leases;
mod matrix;
mod new_keys;
mod permits;
mod read_alike;
mod shared_store;
