//! Moves a guard's store from its file into a database that several guards share.
//!
//! No guard decides during a move: the file is open in this process, so no guard has it open, and the copy is no
//! store yet. When the copy is durable, the file is marked as moved, for good. Only then the copy becomes the
//! store. So at no moment could two guards decide by the same store. If the move is interrupted, the next run
//! depends on that mark:
//!
//! - The file has no mark: the copy was never a store. The file is copied anew, or the guard goes on with the
//!   file.
//! - The file has the mark: the copy that it names is made the store, if it is not one already. Nothing is ever
//!   copied out of the file again, because guards may have decided by the copy in the meantime.

mod source_file;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use fencegate_guard_store::{
    config::GuardConfig,
    operation::JournalEntryState,
    store::{StoreError, StoreIdentity, StoreMovedMarker},
};
use fencegate_policies::operation::OperationId;
use fencegate_process::{
    command_hint, failpoint,
    randomness::{Guid, Randomness},
};

use self::source_file::{InitialQuarantine, MigrationSourceFile};
use crate::postgres::{
    DbSchemaContent, GuardTimeLimits, ImportHeader, ImportLock, ImportTransaction, ImportedKeyRow,
    ImportedOpenExecution, PostgresConfig, UnusableDatabaseError,
};

/// The two ends of a move.
#[derive(Debug, Clone)]
pub struct StoreMigration {
    /// The file with the store that is moved.
    pub from: PathBuf,
    pub target: PostgresConfig,
    /// The configuration of the guards that go on with the store.
    pub config: GuardConfig,
}

/// Whether to move, or only to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreMigrationMode {
    /// Changes nothing, and reports what a move would do.
    DryRun,
    Migrate,
}

/// The result of a move, or of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationReport {
    pub identity: StoreIdentity,
    pub state: MigrationState,
    pub counts: StoreMigrationSummary,
}

/// How much of the move was left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationState {
    /// The whole move.
    NotStarted,
    /// An earlier run had copied everything; only the last step was missing.
    LastStep,
    Done,
}

/// The contents of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreMigrationSummary {
    pub keys: u64,
    pub floor: u64,
    pub highest: u64,
    pub era: u64,
    pub operations: u64,
    /// Operations with an unknown outcome.
    pub unknown: u64,
    /// The executions in doubt. The last of them stays in doubt for `longest_doubt`.
    pub doubts: u64,
    pub longest_doubt: Duration,
    /// Keys that may have been at work when the guard was killed, and are closed at first.
    pub closed_keys: u64,
    /// The time for which those keys are closed, or every key if `every_key` is set.
    pub closed: Duration,
    pub every_key: bool,
}

/// The store was not moved, or its location is not known.
#[derive(Debug, thiserror::Error)]
pub enum StoreMigrationError {
    #[error("{} does not exist; name the file that `store.redb` of the guard names", .0.display())]
    NoFile(PathBuf),
    #[error(transparent)]
    File(#[from] StoreError),
    #[error("FG0540: {0}")]
    Database(#[from] UnusableDatabaseError),
    /// The file is marked as moved, and the copy is not the store yet.
    #[error(
        "FG0540: {why}; {path} is marked as moved already, so run the same command again to finish the move"
    )]
    NotFinished { path: String, why: UnusableDatabaseError },
    #[error(
        "FG0545: {path} was moved into {to} already, and that copy is not in {place}. Nothing is copied twice: guards may \
         have let newer requests in since. If it was another database, name that one; if the database has lost the store, \
         make a new one with `{}`, and a floor above every token (`fencegate era show -c POLICY` prints both)",
        command_hint::command_line(
            command_hint::CommandHintTarget::Guard,
            "guard --init --floor E --ensemble UUID"
        )
    )]
    Gone { path: String, to: String, place: String },
}

impl StoreMigration {
    /// Moves the store, or checks whether it can be moved.
    ///
    /// # Errors
    /// Returns a [`StoreMigrationError`]: repair its cause, and run the move again.
    pub async fn run(
        &self,
        intent: StoreMigrationMode,
        randomness: &dyn Randomness,
    ) -> Result<MigrationReport, StoreMigrationError> {
        if !self.from.exists() {
            return Err(StoreMigrationError::NoFile(self.from.clone()));
        }
        let source = MigrationSourceFile::open(&self.from)?;
        let mut intake = ImportLock::open(&self.target).await?;
        let moved = self.migrate(&source, &mut intake, intent, randomness).await;
        intake.close().await;
        moved
    }

    /// Does the steps of the move that are left to do.
    async fn migrate(
        &self,
        source: &MigrationSourceFile,
        intake: &mut ImportLock,
        intent: StoreMigrationMode,
        randomness: &dyn Randomness,
    ) -> Result<MigrationReport, StoreMigrationError> {
        let identity = source.remembered.identity.clone();
        let there = intake.content().await?;
        let (left_to_do, tally) = match &source.departed {
            None => (MigrationState::NotStarted, self.copy(source, intake, there, intent, randomness).await?),
            Some(departed) => {
                let left_to_do = self.finish_started_migration(departed, intake, there, intent).await?;
                (left_to_do, self.copy_batches(source, None, randomness).await?)
            }
        };
        Ok(MigrationReport { identity, state: left_to_do, counts: tally })
    }

    /// Does the whole move.
    async fn copy(
        &self,
        source: &MigrationSourceFile,
        intake: &mut ImportLock,
        there: DbSchemaContent,
        intent: StoreMigrationMode,
        randomness: &dyn Randomness,
    ) -> Result<StoreMigrationSummary, StoreMigrationError> {
        let ours = &source.remembered.identity.store;
        match there {
            DbSchemaContent::Store(_) => {
                return Err(UnusableDatabaseError::Exists { place: self.target.to_string() }.into());
            }
            DbSchemaContent::Copy(copy) if copy.store != *ours => {
                let place = self.target.to_string();
                let from = copy.from;
                return Err(UnusableDatabaseError::Unfinished { place, from }.into());
            }
            DbSchemaContent::Copy(_) | DbSchemaContent::Nothing => {}
        }
        if intent == StoreMigrationMode::DryRun {
            intake.dry_run().await?;
            return self.copy_batches(source, None, randomness).await;
        }
        let id = Guid::new(randomness).to_string();
        let mut tally = StoreMigrationSummary::default();
        intake
            .copy(self.import_header(source, &id), async |copying| -> Result<(), StoreMigrationError> {
                tally = self.copy_batches(source, Some(copying), randomness).await?;
                failpoint::pass("before_copy_committed");
                Ok(())
            })
            .await?;
        failpoint::pass("before_file_departs");
        source.mark_moved(&StoreMovedMarker { id: id.clone(), to: self.target.to_string() })?;
        failpoint::pass("before_copy_is_store");
        self.activate_copy(intake, &id).await?;
        failpoint::pass("after_copy_is_store");
        Ok(tally)
    }

    /// Finishes a move that an earlier run has begun.
    async fn finish_started_migration(
        &self,
        departed: &StoreMovedMarker,
        intake: &ImportLock,
        there: DbSchemaContent,
        intent: StoreMigrationMode,
    ) -> Result<MigrationState, StoreMigrationError> {
        match there {
            DbSchemaContent::Store(Some(copy)) if copy.id == departed.id => Ok(MigrationState::Done),
            DbSchemaContent::Copy(copy) if copy.id == departed.id => {
                if intent == StoreMigrationMode::Migrate {
                    self.activate_copy(intake, &departed.id).await?;
                }
                Ok(MigrationState::LastStep)
            }
            _ => {
                let path = display_path(&self.from);
                let to = departed.to.clone();
                Err(StoreMigrationError::Gone { path, to, place: self.target.to_string() })
            }
        }
    }

    async fn activate_copy(&self, intake: &ImportLock, id: &str) -> Result<(), StoreMigrationError> {
        let not = |why| StoreMigrationError::NotFinished { path: display_path(&self.from), why };
        intake.activate_copy(id).await.map_err(not)
    }

    fn import_header(&self, source: &MigrationSourceFile, id: &str) -> ImportHeader {
        let recovered = &source.remembered;
        let max_execution = self.config.max_execution.max(recovered.max_execution.unwrap_or_default());
        let GuardConfig { send_within, evict_after, .. } = self.config;
        let closing = source.initial_quarantine(self.config.max_execution);
        ImportHeader {
            id: id.to_owned(),
            from: display_path(&self.from),
            identity: recovered.identity.clone(),
            floor: recovered.floor,
            era: recovered.era,
            time: recovered.time,
            closed: closing.filter(|closing| closing.every_key).map(|closing| closing.left),
            terms: GuardTimeLimits {
                send_within,
                max_execution,
                begun_within: self.config.late_start_window(),
                evict_after,
            },
        }
    }

    /// Reads the file, a batch at a time, and copies each batch if `into` is set.
    async fn copy_batches(
        &self,
        source: &MigrationSourceFile,
        mut into: Option<&mut ImportTransaction<'_>>,
        randomness: &dyn Randomness,
    ) -> Result<StoreMigrationSummary, StoreMigrationError> {
        let recovered = &source.remembered;
        let floor = recovered.floor;
        let era = recovered.era;
        let mut tally =
            StoreMigrationSummary { floor, highest: floor, era, ..StoreMigrationSummary::default() };
        let mut batch = source.keys_without_epochs()?;
        let mut last = None;
        loop {
            tally.count_key_rows(&batch);
            if let Some(copying) = &mut into {
                copying.insert_keys(&batch).await?;
                failpoint::pass("copying_keys");
            }
            batch = source.keys_after(last.as_ref())?;
            match batch.last() {
                Some(marked) => last = Some(marked.key.clone()),
                None => break,
            }
        }
        self.copy_active_executions(source, &mut tally, into.as_deref_mut(), randomness).await?;
        copy_journal(source, &mut tally, into).await?;
        Ok(tally)
    }

    /// Copies the executions that may still be at work.
    async fn copy_active_executions(
        &self,
        source: &MigrationSourceFile,
        tally: &mut StoreMigrationSummary,
        mut into: Option<&mut ImportTransaction<'_>>,
        randomness: &dyn Randomness,
    ) -> Result<(), StoreMigrationError> {
        let doubts = source.in_doubt_executions(randomness);
        tally.add_doubts(&doubts);
        if let Some(copying) = &mut into {
            copying.insert_executions(&doubts).await?;
        }
        let Some(InitialQuarantine { every_key, left }) =
            source.initial_quarantine(self.config.max_execution)
        else {
            return Ok(());
        };
        (tally.closed, tally.every_key) = (left, every_key);
        if every_key {
            return Ok(());
        }
        let mut last = None;
        loop {
            let batch = source.active_executions_after(last.as_ref(), left, randomness)?;
            let Some(key) = batch.last().and_then(|unended| unended.keys.last()) else { return Ok(()) };
            last = Some(key.clone());
            tally.closed_keys += count(&batch);
            if let Some(copying) = &mut into {
                copying.insert_executions(&batch).await?;
            }
        }
    }
}

/// Copies the journal.
async fn copy_journal(
    source: &MigrationSourceFile,
    tally: &mut StoreMigrationSummary,
    mut into: Option<&mut ImportTransaction<'_>>,
) -> Result<(), StoreMigrationError> {
    let mut last: Option<OperationId> = None;
    loop {
        let batch = source.operations_after(last.as_ref())?;
        let Some((id, _)) = batch.last() else { return Ok(()) };
        last = Some(*id);
        tally.operations += count(&batch);
        tally.unknown +=
            batch.iter().filter(|(_, entry)| entry.state == JournalEntryState::Admitted).count() as u64;
        if let Some(copying) = &mut into {
            copying.insert_operations(&batch).await?;
            failpoint::pass("copying_operations");
        }
    }
}

impl StoreMigrationSummary {
    fn count_key_rows(&mut self, marked: &[ImportedKeyRow]) {
        self.keys += count(marked);
        for watermark in marked.iter().flat_map(|marked| [marked.write, marked.read]).flatten() {
            self.highest = self.highest.max(watermark.token.number());
        }
    }

    fn add_doubts(&mut self, doubts: &[ImportedOpenExecution]) {
        self.doubts = count(doubts);
        self.longest_doubt = doubts.iter().map(|doubt| doubt.left).max().unwrap_or_default();
    }
}

fn count<T>(rows: &[T]) -> u64 {
    u64::try_from(rows.len()).unwrap_or(u64::MAX)
}

fn display_path(path: &Path) -> String {
    path.display().to_string()
}
