//! Decides in a PostgreSQL database, so that several guards of one upstream are active together.
//!
//! Marks, what is in flight, what is in doubt and the journal are rows; each decision is a function of the database that
//! has locked the rows of all its keys, and memory holds no truth. In reading order:
//!
//! - [`Place`]: where the database is, and what has to be true of it
//! - [`Postgres`]: one guard's place in it: its instance, its [`Lease`], what it asks
//! - [`Look`]: what one look at the keys of a claim came to
//! - [`HeldRight`]: the right to decide over an operation, which is a row, too
//! - [`Unavailable`]: why the database did not say

mod backlog;
mod beat;
mod bootstrap;
mod connect;
mod copied;
mod copying;
mod driver;
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
mod view;
mod wakes;

pub use self::{
    copied::Copied,
    copying::{Copying, Handed, Marked, Unended},
    instance::{Postgres, Terms},
    intake::{Intake, There},
    look::{Changed, DispatchName, InFlight, Look},
    membership::{Closed, Lease, Lost, StoreStatus, Swept},
    migrate::FORMAT,
    place::{NotUsable, Place, SCHEMA},
    right::{HeldRight, Reserve, Written},
    unavailable::Unavailable,
};
