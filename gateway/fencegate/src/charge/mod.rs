//! Runs a command under a lock, and has it ended before the lock could be another's.
//!
//! Two processes see to that, because either may be stopped or killed at any moment. The [`keeping`] process is the one that
//! was started: it takes the lock ([`lock_source`]) and has it renewed. The [`watchman`] is its child and the parent of the
//! command. Over a socket the keeper says until when the lock is proven ([`told`]). Both have the command ended in time
//! ([`last_moments`]), the one without waiting for the other. [`campaign`] does it again and again, for leaders.
//!
//! It knows nothing of requests.

#[cfg(test)]
mod answering;
pub mod asked_lock;
mod becoming;
mod boot_timer;
pub mod campaign;
mod channel;
mod descendants;
pub mod exit_code;
pub mod from_ensemble;
pub mod from_gateway;
pub mod keeping;
mod last_moments;
pub mod lease_client;
pub mod lock_source;
mod orders;
mod passed_on;
pub mod played;
mod reaped;
mod started_anew;
mod terminal;
mod told;
mod watchman;
