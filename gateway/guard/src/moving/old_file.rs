//! The file that a store is moved from: what it gives away, in the words of the next keeper, a batch at a time.

use std::{collections::HashMap, mem, path::Path, time::Duration};

use fencegate_policies::{key::ResourceKey, operation::OperationId, plan::Mode, token::Token};
use fencegate_process::randomness::{Guid, Randomness};

use crate::{
    operation::Entry,
    postgres::{Marked, Unended},
    register::recovered,
    store::{AtWork, Departed, Epochs, KeyMarks, OpenDoubt, Redb, Remembered, StoreError, WholeMarks},
};

/// The file, open, so that no guard has it.
pub(super) struct OldFile {
    redb: Redb,
    /// But for what stands there once for each key.
    pub(super) remembered: Remembered,
    /// Whole marks that a build of format 1 has left.
    inline: HashMap<ResourceKey, WholeMarks>,
    /// Where its store has gone already.
    pub(super) departed: Option<Departed>,
}

/// What is left on keys that nobody knows more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closing {
    /// On every key, or on those that may have been at work.
    pub(super) every_key: bool,
    pub(super) left: Duration,
}

/// Keys or operations at once.
const BATCH: usize = 1000;

impl OldFile {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let redb = Redb::open_wherever(path)?;
        let departed = redb.departed()?;
        let mut remembered = redb.beginning()?;
        let marks = remembered.clean_stop.as_mut().map(|stop| mem::take(&mut stop.marks)).unwrap_or_default();
        let inline = marks.into_iter().map(|whole| (whole.key.clone(), whole)).collect();
        Ok(Self { redb, remembered, inline, departed })
    }

    pub(super) fn depart(&self, departed: &Departed) -> Result<(), StoreError> {
        self.redb.depart(departed)
    }

    /// What a guard that is started on the file would close at first.
    pub(super) fn closing(&self, max_execution: Duration) -> Option<Closing> {
        let every_key = !matches!(self.remembered.at_work, AtWork::Keys(_));
        self.remembered.closed_for(max_execution).map(|left| Closing { every_key, left })
    }

    /// The next keys behind this one; none are left where there is none.
    pub(super) fn marks(&self, last: Option<&ResourceKey>) -> Result<Vec<Marked>, StoreError> {
        let rows = self.redb.marks_behind(last, BATCH)?;
        rows.into_iter().map(|row| self.marked(row)).collect()
    }

    /// Keys of which only an orderly end tells. No build has left any so far.
    pub(super) fn only_whole(&self) -> Result<Vec<Marked>, StoreError> {
        let mut rows = self.redb.only_whole()?;
        for whole in self.inline.values() {
            if !self.redb.has_marks(&whole.key)? && rows.iter().all(|row| row.key != whole.key) {
                let (key, epochs) = (whole.key.clone(), Epochs::default());
                rows.push(KeyMarks { key, epochs, whole: None });
            }
        }
        let marked = rows.into_iter().map(|row| self.marked(row));
        marked.filter(|marked| !matches!(marked, Ok(Marked { write: None, read: None, .. }))).collect()
    }

    fn marked(&self, row: KeyMarks) -> Result<Marked, StoreError> {
        let KeyMarks { key, epochs, whole } = row;
        // Without the marker of an orderly end, what was written for it counts for nothing.
        let whole = whole.filter(|_| self.remembered.clean_stop.is_some());
        let (write, read) = recovered(&epochs, whole.as_ref().or_else(|| self.inline.get(&key)));
        Ok(Marked { key, write, read })
    }

    /// What an orderly end has left in doubt.
    pub(super) fn doubts(&self, randomness: &dyn Randomness) -> Vec<Unended> {
        let doubts = self.remembered.clean_stop.iter().flat_map(|stop| &stop.doubts);
        let unended = |doubt: &OpenDoubt| Unended {
            name: Guid::new(randomness).to_string(),
            keys: doubt.keys.clone(),
            token: doubt.token,
            mode: doubt.mode,
            left: doubt.remaining,
        };
        doubts.map(unended).collect()
    }

    /// The next keys behind this one that something may be at work on; none are left where there is none. Nobody knows
    /// under which token: it is one that no gateway has.
    pub(super) fn at_work(
        &self,
        last: Option<&ResourceKey>,
        left: Duration,
        randomness: &dyn Randomness,
    ) -> Result<Vec<Unended>, StoreError> {
        let floor = self.remembered.floor;
        let unended = |(key, epochs): (ResourceKey, Epochs)| {
            let epoch = epochs.highest().max(floor).min(i64::MAX as u64);
            let token = Token::new(epoch, u32::MAX, u32::MAX).expect("below 2^63");
            let name = Guid::new(randomness).to_string();
            Unended { name, keys: vec![key], token, mode: Mode::Exclusive, left }
        };
        Ok(self.redb.at_work_behind(last, BATCH)?.into_iter().map(unended).collect())
    }

    /// The next operations behind this one; none are left where there is none.
    pub(super) fn operations(
        &self,
        last: Option<&OperationId>,
    ) -> Result<Vec<(OperationId, Entry)>, StoreError> {
        self.redb.operations_behind(last, BATCH)
    }
}
