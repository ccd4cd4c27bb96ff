//! Decides in a PostgreSQL database, so that several guards of one upstream are active together.
//!
//! Marks, what is in flight, what is in doubt and the journal are rows; each decision is a function of the database that
//! has locked the rows of all its keys, and memory holds no truth. In reading order:
//!
//! - [`Place`]: where the database is, and what has to be true of it
//! - [`Postgres`]: one guard's place in it: its instance, its [`Lease`], what it asks
//! - [`Look`]: what one look at the keys of a claim came to
//! - [`Held`]: the right to decide over an operation, which is a row, too
//! - [`Trouble`]: why the database did not say

mod ask;
mod beat;
mod connect;
mod decide;
mod held;
mod instance;
mod item;
mod journal;
mod line;
mod look;
mod migrate;
mod open;
mod place;
mod standing;
mod time;
mod trouble;
mod view;
mod wakes;

pub use self::{
    held::{Held, Reserve, Writing, Written},
    instance::{Postgres, Terms},
    look::{Changed, DispatchName, InFlight, Look},
    migrate::FORMAT,
    place::{NotUsable, Place, SCHEMA},
    standing::{Closed, Lease, Lost, Standing, Swept},
    trouble::Trouble,
};
