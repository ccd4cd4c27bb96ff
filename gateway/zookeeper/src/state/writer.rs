//! Writes records on a thread of its own, so that no session waits for a disk.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tracing::{error, info};

use super::{record::HighestEpochRecord, state_dir::StateDir};

/// Wakes the thread that writes when a new epoch was seen.
#[derive(Debug, Default)]
pub(super) struct RecordWriterNotifier {
    state: Mutex<EpochRecordWriterState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct EpochRecordWriterState {
    due: bool,
    stop: bool,
    /// Whether the writer has ended.
    ended: bool,
}

/// The pause between two writes. An epoch is on the disk at the latest after this time plus the time of a write.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);

/// The longest time that a process that stops waits for its last write.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

impl RecordWriterNotifier {
    pub(super) fn notify(&self) {
        let mut state = self.lock();
        if !state.due {
            state.due = true;
            self.changed.notify_all();
        }
    }

    /// Requests the last write, and waits for it for [`STOP_TIMEOUT`] at most, because a disk may hang.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stop = true;
        self.changed.notify_all();
        drop(self.changed.wait_timeout_while(state, STOP_TIMEOUT, |state| !state.ended));
    }

    /// Waits until there is something to write. True: this is the last write. `None`: nothing is left to write, and
    /// no more will come.
    fn wait_write_due(&self) -> Option<bool> {
        let waiting = self.changed.wait_while(self.lock(), |state| !state.due && !state.stop);
        let mut state = waiting.unwrap_or_else(PoisonError::into_inner);
        let last = state.stop;
        std::mem::take(&mut state.due).then_some(last)
    }

    /// Waits for [`WRITE_INTERVAL`], so that a busy gateway does not write for each of its locks.
    fn wait_write_interval(&self) {
        drop(self.changed.wait_timeout_while(self.lock(), WRITE_INTERVAL, |state| !state.stop));
    }

    /// Marks a write as due again, because the last one failed.
    fn mark_write_due(&self) {
        self.lock().due = true;
    }

    fn mark_writer_ended(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, EpochRecordWriterState> {
        // A poisoned lock does no harm: the flags in it are independent of each other.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the record from `seen` whenever `bell` is notified, until it is stopped. `failed` is called for each write
/// that fails; the write is tried again.
pub(super) fn start_record_writer(
    folder: StateDir,
    bell: Arc<RecordWriterNotifier>,
    seen: impl Fn() -> Option<HighestEpochRecord> + Send + 'static,
    failed: impl Fn() + Send + 'static,
) -> std::io::Result<()> {
    let write = move || {
        let mut fails = false;
        while let Some(last) = bell.wait_write_due() {
            let Some(record) = seen() else { continue };
            match folder.write(&record) {
                Ok(()) if fails => {
                    fails = false;
                    info!(folder = %folder.path().display(), "state.written_again");
                }
                Ok(()) => {}
                Err(why) => {
                    failed();
                    if !fails {
                        error!(code = "FG0514", folder = %folder.path().display(), %why, "state.not_written");
                    }
                    fails = true;
                    if last {
                        break;
                    }
                    bell.mark_write_due();
                }
            }
            bell.wait_write_interval();
        }
        bell.mark_writer_ended();
    };
    thread::Builder::new().name("state".into()).spawn(write).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tempfile::TempDir;

    use super::*;
    use crate::state::state_dir;
    use fencegate_process::randomness::SystemRandomness;

    /// The highest epoch seen last is written before the writer stops.
    #[test]
    fn last_epoch_is_written_before_stop() {
        let home = TempDir::new().expect("a folder");
        let (place, _) = StateDir::claim(home.path(), &SystemRandomness).expect("our own");
        let bell = Arc::<RecordWriterNotifier>::default();
        let seen = Arc::new(AtomicU64::new(0));
        let highest = seen.clone();
        let record = move || {
            Some(HighestEpochRecord {
                installation: "i".into(),
                era: 0,
                highest: highest.load(Ordering::Acquire),
            })
        };
        start_record_writer(place, bell.clone(), record, || panic!("it can be written")).expect("a thread");
        for epoch in 1..=1000 {
            seen.store(epoch, Ordering::Release);
            bell.notify();
        }
        bell.stop();
        assert_eq!(state_dir::read_records(home.path()).expect("readable")[0].highest, 1000);
    }

    /// A write into a folder that has gone is counted as a failure, blocks nothing, and is tried again.
    #[test]
    fn missing_folder_counts_failure_and_retries() {
        let home = TempDir::new().expect("a folder");
        let path = home.path().join("state");
        std::fs::create_dir(&path).expect("made");
        let (place, _) = StateDir::claim(&path, &SystemRandomness).expect("our own");
        std::fs::remove_dir_all(&path).expect("removed");
        let bell = Arc::<RecordWriterNotifier>::default();
        let failures = Arc::new(AtomicU64::new(0));
        let (told, counted) = std::sync::mpsc::channel();
        let record = || Some(HighestEpochRecord { installation: "i".into(), era: 0, highest: 1 });
        let count = failures.clone();
        let seen = told;
        let failed = move || {
            count.fetch_add(1, Ordering::AcqRel);
            seen.send(()).ok();
        };
        start_record_writer(place, bell.clone(), record, failed).expect("a thread");
        bell.notify();
        counted.recv().expect("it fails");
        std::fs::create_dir(&path).expect("made again");
        bell.stop();
        assert_eq!(state_dir::read_records(&path).expect("readable")[0].highest, 1, "tried again");
    }
}
