//! What Fencegate promises, one module per promise, each against real processes and a real ZooKeeper.

mod cached;
mod door;
mod drain;
mod ensemble;
mod exclusion;
mod fields;
mod hang_up;
mod interrupted;
mod keys;
mod killed;
mod link;
mod lock_service;
mod metrics;
mod outcome;
mod overslept;
mod paused;
mod policies;
mod proof_lost;
mod response;
mod rotation;
mod session_bytes;
mod sets;
mod shared;
mod stamp;
mod start;
mod waiting;
