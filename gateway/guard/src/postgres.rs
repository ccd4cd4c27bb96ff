//! Decides in a PostgreSQL database, so that several guards of one upstream are active together.
//!
//! Marks, dispatches in flight, doubts and the journal are rows. Each decision is one function call in the database,
//! which locks the rows of all its keys. Memory holds no truth. In reading order:
//!
//! - [`PostgresConfig`]: where the database is, and what has to be true of it
//! - [`PostgresStore`]: one guard in it: its instance, its [`GuardMembership`], its questions
//! - [`AdmitReply`]: the result of one look at the keys of a claim
//! - [`PostgresOperationLock`]: the right to decide over an operation, which is a row, too
//! - [`PostgresError`]: why the database gave no answer

mod backlog;
mod beat;
mod bootstrap;
mod connect;
mod copied;
mod copying;
mod driver;
mod in_hand;
mod instance;
mod intake;
mod item;
mod journal;
mod look;
mod membership;
mod migrate;
mod mutations;
mod place;
mod right;
mod time;
mod unavailable;
mod unseen;
mod view;
mod wakes;
mod watching;

pub(crate) use self::beat::BEAT;
pub use self::{
    copied::ImportRecord,
    copying::{ImportHeader, ImportTransaction, KeyRow, OpenExecution},
    instance::{GuardTimings, PostgresStore},
    intake::{ImportLock, SchemaContent},
    look::{AdmitReply, ChangeFuture, DispatchName, InFlightDispatch},
    membership::{GuardMembership, MembershipLostError, StoreClosure, StoreStatus, SweepStats},
    migrate::FORMAT,
    place::{PostgresConfig, SCHEMA, UnusableDatabaseError},
    right::{PostgresOperationLock, ReserveReply, WriteOutcome},
    unavailable::PostgresError,
};
