//! What Fencegate promises, one module per promise, each against real processes and a real ZooKeeper.

mod door;
mod drain;
mod exclusion;
mod fields;
mod hang_up;
mod interrupted;
mod killed;
mod lock_service;
mod metrics;
mod outcome;
mod paused;
mod policies;
mod proof_lost;
mod response;
mod rotation;
mod stamp;
mod start;
mod waiting;
