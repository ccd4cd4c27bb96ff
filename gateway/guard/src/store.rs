//! What a guard must not forget, and the one place that makes it durable.
//!
//! - [`Change`]: one thing to remember or to forget
//! - [`Remembered`]: everything that a guard begins with
//! - [`Store`]: who keeps it over restarts; [`Redb`] is one, in a file
//! - [`backup`]: a copy of all of it in a file, of which a store can be made again
//! - [`Committer`]: puts what many requests want to be durable at the same time into one transaction

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
    commit::{Committer, Moment, NotDurable},
    departed::Departed,
    durable::{Disk, NotCopied, NotRestored, Store, StoreError},
    redb::{Redb, restore::Restored},
    remembered::{AtWork, FORMAT, Identity, JournalSize, Remembered},
};
