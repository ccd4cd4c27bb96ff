//! Runs a command under a lock, and ends the command before the lock could be another's.
//!
//! Two processes do this together, because each of them may be stopped or killed at any moment. The [`keeping`]
//! process is the one that the user has started: it takes the lock ([`lock_source`]) and renews it. The [`watchman`]
//! is its child, and the parent of the command. Over a socket the keeper tells the watchman until when the lock is
//! proven ([`told`]). Each of them ends the command in time ([`last_moments`]) without waiting for the other.
//! [`renewals`] bounds the grace of a command, so that a renewal in time ends none.
//! [`campaign`] does all of it again and again, for leaders.
//!
//! This module knows nothing about requests.

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
pub mod renewals;
mod started_anew;
mod terminal;
mod told;
mod watchman;
