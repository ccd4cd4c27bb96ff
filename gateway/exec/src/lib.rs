//! Runs a command under a lock, and ends the command before another holder could have the lock.
//!
//! Two processes do this together, because each of them may be stopped or killed at any moment. The [`lock_keeper`]
//! process is the one that the user has started: it takes the lock ([`lock_source`]) and renews it. The
//! `supervisor` is its child, and the parent of the command. Over a socket the lock keeper sends to the supervisor
//! until when the lock is valid (`protocol`). Each of them ends the command in time (`termination`) without
//! waiting for the other. [`renewals`] bounds the grace of a command, so that a renewal in time ends none.
//! [`run_loop`] does all of it again and again, for leaders.
//!
//! A lock is taken from ZooKeeper ([`zookeeper_lock`]) or as a lease of a gateway ([`gateway_lease`]). This crate knows no
//! request path.

// `println!` panics when the reader is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod boot_timer;
mod channel;
mod descendants;
mod exec_command;
pub mod exit_code;
pub mod gateway_lease;
pub mod lock_keeper;
pub mod lock_source;
pub mod lock_spec;
mod program_names;
mod protocol;
mod reaper;
pub mod reexec;
pub mod renewals;
pub mod run_loop;
mod signals;
mod supervisor;
mod supervisor_args;
mod terminal;
mod termination;
pub mod zookeeper_lock;
