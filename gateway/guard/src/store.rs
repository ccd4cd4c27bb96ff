//! What a guard must not forget, and the one place that makes it durable.
//!
//! - [`Change`]: one thing to remember or to forget
//! - [`Remembered`]: everything that a guard begins with
//! - [`Store`]: who keeps it over restarts; [`Redb`] is one, in a file
//! - [`Committer`]: puts what many requests want to be durable at the same time into one transaction

mod change;
mod commit;
mod durable;
mod redb;
mod remembered;
#[cfg(test)]
mod tests;

pub use self::{
    change::{Change, CleanStop, Epochs, OpenDoubt, WholeMarks},
    commit::{Committer, Moment, NotDurable},
    durable::{Store, StoreError},
    redb::Redb,
    remembered::{AtWork, FORMAT, Identity, JournalSize, Remembered},
};
