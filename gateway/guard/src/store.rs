//! The store of a guard: what it must not forget, and the one place that makes it durable.
//!
//! - [`Change`]: one thing to remember or to forget
//! - [`Remembered`]: the state that a guard begins with
//! - [`Store`]: keeps it over restarts; [`Redb`] is one, in a file
//! - [`backup`]: a copy of a store in a file, from which a store can be made again
//! - [`Committer`]: puts the changes of many requests into one transaction, and [`Commits`] commits it

pub mod backup;
mod change;
mod commit;
mod departed;
mod durable;
mod redb;
mod remembered;
#[cfg(test)]
mod tests;

pub(crate) use self::departed::KeyMarks;
pub use self::{
    change::{Change, CleanStop, Epochs, OpenDoubt, WholeMarks},
    commit::{Commits, Committer, Moment, More, NotDurable},
    departed::Departed,
    durable::{Disk, NotCopied, NotRestored, Store, StoreError},
    redb::{Redb, restore::Restored},
    remembered::{AtWork, FORMAT, Identity, JournalSize, Remembered},
};
