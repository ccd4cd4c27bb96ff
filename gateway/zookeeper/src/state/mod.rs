//! The token history of a gateway: the installation that it serves, and the highest epoch of its tokens.
//!
//! Tokens are made of ZooKeeper's transaction numbers. An ensemble that was wiped, or restored from a backup, counts
//! them a second time, and its tokens would be below those that services have seen. Only a process with a history can
//! detect that.

mod error;
mod record;
mod state_dir;
mod writer;

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use fencegate_process::randomness::Randomness;
use tokio::sync::watch;
use tracing::{info, warn};

pub use self::{
    error::ZooKeeperRollbackError,
    record::HighestEpochRecord,
    state_dir::{StateDirError, read_records},
};
use self::{state_dir::StateDir, writer::RecordWriterNotifier};
use crate::installation::InstallationMeta;

/// The highest epoch and the installation that a process knows, shared by all its sessions.
#[derive(Debug, Default)]
pub struct HighestEpochTracker {
    /// The highest epoch of the installation that is served: of lock nodes of this process, granted or not, and of its
    /// member nodes. It starts from the written record.
    highest: AtomicU64,
    /// `None` until a session has read `meta`.
    installation: Mutex<Option<Arc<InstallationEra>>>,
    /// The records of earlier processes, one for each installation.
    before: Vec<HighestEpochRecord>,
    /// Notified when a new record has to be written.
    bell: Option<Arc<RecordWriterNotifier>>,
    /// Counts the detected rollbacks of ZooKeeper.
    alarms: watch::Sender<u64>,
}

/// The parts of `meta` that determine the order of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallationEra {
    pub uuid: String,
    pub era: u64,
}

/// A subscription to the alarms that are raised after it was created.
#[derive(Debug, Clone)]
pub struct RollbackAlarm(watch::Receiver<u64>);

/// Errors of `state_dir`.
#[derive(Debug, thiserror::Error)]
pub enum OpenStateDirError {
    #[error(transparent)]
    Unusable(#[from] StateDirError),
    #[error("cannot start the thread that writes to `state_dir`: {0}")]
    Thread(#[from] io::Error),
}

impl HighestEpochTracker {
    /// Reads the records in the folder, and from then on writes to it. `failed` is called for each write that fails.
    ///
    /// # Errors
    /// Returns an error if a record cannot be parsed, or if nothing can be written.
    pub fn open(
        path: &Path,
        randomness: &dyn Randomness,
        failed: impl Fn() + Send + 'static,
    ) -> Result<Arc<Self>, OpenStateDirError> {
        let (folder, before) = StateDir::claim(path, randomness)?;
        let bell = Arc::<RecordWriterNotifier>::default();
        let history = Arc::new(Self { bell: Some(bell.clone()), ..Self::from_records(before) });
        info!(folder = %path.display(), highest = history.newest_record().map_or(0, |known| known.highest), "state.read");
        let seen = history.clone();
        writer::start_record_writer(folder, bell, move || seen.current_record(), failed)?;
        Ok(history)
    }

    /// A tracker that starts from the records of earlier processes, and writes none.
    pub fn from_records(before: Vec<HighestEpochRecord>) -> Self {
        Self { before, ..Self::default() }
    }

    /// Waits until the last record is written, for a few seconds at most.
    pub fn close(&self) {
        if let Some(bell) = &self.bell {
            bell.stop();
        }
    }

    fn current_record(&self) -> Option<HighestEpochRecord> {
        let InstallationEra { uuid, era } = (*self.installation()?).clone();
        Some(HighestEpochRecord { installation: uuid, era, highest: self.highest_epoch() })
    }

    fn notify_writer(&self) {
        if let Some(bell) = &self.bell {
            bell.notify();
        }
    }

    /// The highest epoch seen so far. Read it *before* a create is sent: a transaction that begins later has a larger
    /// number than all seen before.
    pub fn highest_epoch(&self) -> u64 {
        self.highest.load(Ordering::Acquire)
    }

    /// Records an epoch that was seen.
    ///
    /// # Errors
    /// Returns an error if the epoch is not above `before`, the highest one when the create was sent: ZooKeeper was
    /// rolled back.
    pub(crate) fn record_epoch(&self, epoch: u64, before: u64) -> Result<(), ZooKeeperRollbackError> {
        if epoch <= before {
            return Err(ZooKeeperRollbackError::Epoch { epoch, highest: self.highest_epoch() });
        }
        self.highest.fetch_max(epoch, Ordering::AcqRel);
        self.notify_writer();
        Ok(())
    }

    /// The installation that is served, once a session has read it.
    pub fn installation(&self) -> Option<Arc<InstallationEra>> {
        self.lock().clone()
    }

    /// Checks that the tokens of this `meta` would be above all tokens seen.
    ///
    /// # Errors
    /// Returns an error if ZooKeeper was rolled back, or if this is another installation.
    pub fn check_installation(&self, meta: &InstallationMeta) -> Result<(), ZooKeeperRollbackError> {
        let known = self.own_or_highest_record(&meta.uuid);
        if let (Some(served), Some(known)) = (self.installation(), &known)
            && served.uuid != meta.uuid
        {
            let highest = known.highest;
            let known = served.uuid.clone();
            return Err(ZooKeeperRollbackError::Exchanged { known, found: meta.uuid.clone(), highest });
        }
        if let Some(mark) = &meta.suspect {
            return Err(ZooKeeperRollbackError::Suspect {
                highest: mark.highest.max(self.highest_epoch_for(&meta.uuid)),
            });
        }
        match known {
            // This may be any installation, because its tokens are all above its base.
            Some(known) if meta.base >= known.highest => Ok(()),
            Some(HighestEpochRecord { installation, highest, .. }) if installation != meta.uuid => {
                Err(ZooKeeperRollbackError::Another {
                    known: installation,
                    found: meta.uuid.clone(),
                    highest,
                })
            }
            Some(known) if known.era > meta.era => Err(ZooKeeperRollbackError::OlderEra {
                known: known.era,
                found: meta.era,
                highest: known.highest,
            }),
            _ => Ok(()),
        }
    }

    /// The highest epoch of this installation; 0 if nothing is known of it.
    pub(crate) fn highest_epoch_for(&self, uuid: &str) -> u64 {
        self.record_for(uuid).map_or(0, |record| record.highest)
    }

    /// The latest known era of this installation.
    pub(crate) fn era_for(&self, uuid: &str) -> u64 {
        self.record_for(uuid).map_or(0, |record| record.era)
    }

    fn record_for(&self, uuid: &str) -> Option<HighestEpochRecord> {
        self.own_or_highest_record(uuid).filter(|known| known.installation == uuid)
    }

    /// The record that the tokens of an installation have to exceed: that of the installation that is served, if there
    /// is one; else its own; else the highest of all, because that installation may have been wiped.
    pub fn own_or_highest_record(&self, uuid: &str) -> Option<HighestEpochRecord> {
        let same = || self.before.iter().find(|record| record.installation == uuid).cloned();
        let served = self.current_record();
        if served.is_some() { served } else { same().or_else(|| self.newest_record()) }
    }

    /// The record of the installation that is served, or else the highest of the earlier records. If there is one,
    /// `meta` is never created.
    pub(crate) fn newest_record(&self) -> Option<HighestEpochRecord> {
        self.current_record().or_else(|| self.before.iter().max_by_key(|record| record.highest).cloned())
    }

    /// Sets the installation that is served from now on.
    pub(crate) fn set_installation(&self, meta: &InstallationMeta) {
        let installation = InstallationEra { uuid: meta.uuid.clone(), era: meta.era };
        if self.installation().as_deref() == Some(&installation) {
            return;
        }
        if let Some(HighestEpochRecord { installation: known, highest, .. }) =
            self.own_or_highest_record(&meta.uuid)
        {
            if known != meta.uuid {
                warn!(%known, serves = meta.uuid, "the gateway serves another installation than before, whose tokens begin above those known");
            }
            self.highest.fetch_max(highest, Ordering::AcqRel);
        }
        *self.lock() = Some(Arc::new(installation));
        self.notify_writer();
    }

    /// The error for a missing `meta`; `None` if no installation was known before.
    pub(crate) fn missing_meta_error(&self, path: &str) -> Option<ZooKeeperRollbackError> {
        self.newest_record()
            .map(|known| ZooKeeperRollbackError::Gone { path: path.to_owned(), highest: known.highest })
    }

    /// Raises the alarm, so that every session of the process ends and the next ones check anew.
    pub(crate) fn raise_rollback_alarm(&self) {
        self.alarms.send_modify(|alarms| *alarms += 1);
    }

    /// Subscribes a session that begins now to the alarm.
    pub fn subscribe(&self) -> RollbackAlarm {
        RollbackAlarm(self.alarms.subscribe())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<InstallationEra>>> {
        // A poisoned lock does no harm: the value is always replaced as a whole.
        self.installation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RollbackAlarm {
    /// Returns when a rollback of ZooKeeper was detected.
    pub(crate) async fn wait_raised(&mut self) {
        if self.0.changed().await.is_err() {
            // The tracker is gone, so no alarm can come any more.
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::installation::ZooKeeperRollbackEvidence;

    fn meta(uuid: &str, era: u64, base: u64) -> InstallationMeta {
        InstallationMeta { format: 1, uuid: uuid.into(), era, base, suspect: None }
    }

    fn history_with(highest: u64) -> HighestEpochTracker {
        let history = HighestEpochTracker::default();
        history.set_installation(&meta("ours", 1, 10));
        history.record_epoch(highest, 0).expect("the first one");
        history
    }

    /// An epoch must exceed the highest one that was seen when the create of its node was sent.
    #[test]
    fn epoch_must_exceed_highest_at_create() {
        let history = history_with(100);
        let before = history.highest_epoch();
        assert_eq!(
            history.record_epoch(120, before),
            Ok(()),
            "a later one of another session, answered first"
        );
        assert_eq!(history.record_epoch(110, before), Ok(()), "its create was sent when 100 was the highest");
        assert_eq!(history.highest_epoch(), 120);
        assert_eq!(
            history.record_epoch(120, 120),
            Err(ZooKeeperRollbackError::Epoch { epoch: 120, highest: 120 })
        );
        assert_eq!(
            history.record_epoch(5, 120),
            Err(ZooKeeperRollbackError::Epoch { epoch: 5, highest: 120 })
        );
        assert_eq!(history.highest_epoch(), 120);
    }

    fn history_from(records: &[(&str, u64, u64)]) -> HighestEpochTracker {
        let record = |&(uuid, era, highest): &(&str, _, _)| HighestEpochRecord {
            installation: uuid.into(),
            era,
            highest,
        };
        HighestEpochTracker::from_records(records.iter().map(record).collect())
    }

    /// Only an installation whose next tokens are larger than all seen is accepted; an older era is refused.
    #[test]
    fn older_era_is_refused() {
        let history = history_with(100);
        assert_eq!(history.check_installation(&meta("ours", 1, 10)), Ok(()));
        assert_eq!(history.check_installation(&meta("ours", 2, 500)), Ok(()));
        assert!(matches!(
            history.check_installation(&meta("ours", 0, 0)),
            Err(ZooKeeperRollbackError::OlderEra { .. })
        ));
        assert_eq!(
            HighestEpochTracker::default().check_installation(&meta("theirs", 0, 0)),
            Ok(()),
            "nothing was seen"
        );
    }

    /// Another installation is accepted only at a start, and only with a base not below the highest epoch seen. A
    /// running process never accepts it.
    #[test]
    fn other_installation_accepted_only_at_start() {
        let history = history_from(&[("ours", 1, 100)]);
        assert!(matches!(
            history.check_installation(&meta("theirs", 1, 99)),
            Err(ZooKeeperRollbackError::Another { .. })
        ));
        assert_eq!(history.check_installation(&meta("theirs", 1, 100)), Ok(()), "its first token is 101");
        history.set_installation(&meta("theirs", 1, 100));
        assert_eq!(history.highest_epoch(), 100);
        for base in [0, 1 << 40] {
            let result = history_with(100).check_installation(&meta("theirs", 1, base));
            assert!(matches!(result, Err(ZooKeeperRollbackError::Exchanged { .. })), "{base}: {result:?}");
        }
    }

    /// An installation is compared with its own record, and an unknown one with the highest of all records.
    #[test]
    fn installation_compares_with_own_record() {
        let history = history_from(&[("ours", 1, 100), ("theirs", 3, 9000)]);
        assert_eq!(history.check_installation(&meta("ours", 1, 10)), Ok(()));
        assert!(matches!(
            history.check_installation(&meta("ours", 0, 0)),
            Err(ZooKeeperRollbackError::OlderEra { highest: 100, .. })
        ));
        assert!(matches!(
            history.check_installation(&meta("third", 0, 100)),
            Err(ZooKeeperRollbackError::Another { highest: 9000, .. })
        ));
        history.set_installation(&meta("ours", 1, 10));
        assert_eq!(history.highest_epoch(), 100);
        assert_eq!(history.record_epoch(101, history.highest_epoch()), Ok(()));
        assert!(history.record_epoch(99, history.highest_epoch()).is_err());
    }

    /// Rollback evidence that a peer recorded in `meta` counts like an epoch seen here.
    #[test]
    fn rollback_evidence_of_peer_counts() {
        let mark = ZooKeeperRollbackEvidence { highest: 70, era: 1, by: "gw-2".into() };
        let marked = InstallationMeta { suspect: Some(mark), ..meta("ours", 1, 10) };
        let told = |history: HighestEpochTracker| {
            history.check_installation(&marked).map_err(|error| error.highest_epoch())
        };
        assert_eq!(told(HighestEpochTracker::default()), Err(70));
        assert_eq!(told(history_with(60)), Err(70));
        assert_eq!(told(history_with(100)), Err(100));
        assert_eq!(told(history_from(&[("theirs", 1, 100)])), Err(70), "of another installation");
    }

    /// An alarm reaches the sessions that subscribed before it, not later ones.
    #[tokio::test]
    async fn alarm_reaches_only_earlier_subscribers() {
        let history = HighestEpochTracker::default();
        let mut early = history.subscribe();
        history.raise_rollback_alarm();
        early.wait_raised().await;
        let mut late = history.subscribe();
        tokio::select! {
            biased;
            () = late.wait_raised() => panic!("it was before"),
            () = std::future::ready(()) => {}
        }
    }
}
