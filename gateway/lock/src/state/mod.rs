//! What a gateway remembers of the installation that it serves: which one it is, and how far its tokens have come.
//!
//! Tokens are made of ZooKeeper's transaction numbers. An ensemble that was wiped, or restored from a backup, counts
//! them a second time, and its tokens would lie below those that services have seen. Only who remembers can tell.

mod folder;
mod progress;
mod went_back;
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

use self::{folder::Folder, writer::Bell};
pub use self::{
    folder::{Unusable, read},
    progress::Progress,
    went_back::WentBack,
};
use crate::meta::Meta;

/// Shared by all sessions of a process.
#[derive(Debug, Default)]
pub struct Memory {
    /// The highest epoch of what is served: of lock nodes that we made, granted or not, and of our own registrations;
    /// from the beginning what was written down of it.
    highest: AtomicU64,
    /// Once a session has seen it.
    installation: Mutex<Option<Arc<Installation>>>,
    /// What processes before us have written down, of each installation one.
    before: Vec<Progress>,
    /// Rung when something is to be written down.
    bell: Option<Arc<Bell>>,
    /// Counts how often somebody found that ZooKeeper went back.
    alarms: watch::Sender<u64>,
}

/// An installation, as far as it tells one token from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    pub uuid: String,
    pub era: u64,
}

/// Hears of every alarm since it was made.
#[derive(Debug, Clone)]
pub struct Alarm(watch::Receiver<u64>);

/// Why nothing can be remembered beyond the end of the process.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    #[error(transparent)]
    Unusable(#[from] Unusable),
    #[error("start the thread that writes to `state_dir`: {0}")]
    Thread(#[from] io::Error),
}

impl Memory {
    /// With what is in the folder, and from then on is written to it. `failed` is called when that does not succeed.
    ///
    /// # Errors
    /// What was written down before is not understood, or nothing can be written.
    pub fn open(
        path: &Path,
        randomness: &dyn Randomness,
        failed: impl Fn() + Send + 'static,
    ) -> Result<Arc<Self>, NotOpened> {
        let (folder, before) = Folder::claim(path, randomness)?;
        let bell = Arc::<Bell>::default();
        let memory = Arc::new(Self { bell: Some(bell.clone()), ..Self::recalling(before) });
        info!(folder = %path.display(), highest = memory.known().map_or(0, |known| known.highest), "state.read");
        let seen = memory.clone();
        writer::start(folder, bell, move || seen.record(), failed)?;
        Ok(memory)
    }

    /// With what processes before us have written down.
    pub fn recalling(before: Vec<Progress>) -> Self {
        Self { before, ..Self::default() }
    }

    /// Has the last of it written down. At most a few seconds.
    pub fn close(&self) {
        if let Some(bell) = &self.bell {
            bell.stop();
        }
    }

    fn record(&self) -> Option<Progress> {
        let Installation { uuid, era } = (*self.installation()?).clone();
        Some(Progress { installation: uuid, era, highest: self.highest() })
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// The highest epoch seen so far. Whoever makes a node asks *before* the create is sent: a transaction that begins
    /// now has a larger number than every one that was seen before.
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::Acquire)
    }

    /// An epoch was seen.
    ///
    /// # Errors
    /// It is not above `before`, what was the highest when its create was sent: ZooKeeper went back.
    pub fn saw(&self, epoch: u64, before: u64) -> Result<(), WentBack> {
        if epoch <= before {
            return Err(WentBack::Epoch { epoch, highest: self.highest() });
        }
        self.highest.fetch_max(epoch, Ordering::AcqRel);
        self.ring();
        Ok(())
    }

    /// The installation that is served, once a session has seen it.
    pub fn installation(&self) -> Option<Arc<Installation>> {
        self.lock().clone()
    }

    /// Whether tokens of what `meta` says would be above all that were seen.
    ///
    /// # Errors
    /// It went back, or is another one.
    pub fn fits(&self, meta: &Meta) -> Result<(), WentBack> {
        let known = self.compared_with(&meta.uuid);
        if let (Some(served), Some(known)) = (self.installation(), &known)
            && served.uuid != meta.uuid
        {
            let (known, highest) = (served.uuid.clone(), known.highest);
            return Err(WentBack::Exchanged { known, found: meta.uuid.clone(), highest });
        }
        if let Some(mark) = &meta.suspect {
            return Err(WentBack::Suspect { highest: mark.highest.max(self.highest_of(&meta.uuid)) });
        }
        match known {
            // Whoever it is: nothing that it gives out is below its base.
            Some(known) if meta.base >= known.highest => Ok(()),
            Some(Progress { installation, highest, .. }) if installation != meta.uuid => {
                Err(WentBack::Another { known: installation, found: meta.uuid.clone(), highest })
            }
            Some(known) if known.era > meta.era => {
                Err(WentBack::OlderEra { known: known.era, found: meta.era, highest: known.highest })
            }
            _ => Ok(()),
        }
    }

    /// How far the tokens of this very installation have come; 0 where nothing is known of it.
    pub fn highest_of(&self, uuid: &str) -> u64 {
        self.of(uuid).map_or(0, |record| record.highest)
    }

    /// The latest era that is known of this very installation.
    pub fn era_of(&self, uuid: &str) -> u64 {
        self.of(uuid).map_or(0, |record| record.era)
    }

    fn of(&self, uuid: &str) -> Option<Progress> {
        self.compared_with(uuid).filter(|known| known.installation == uuid)
    }

    /// What tokens of an installation are compared with: its own ones where it is known, else those of the one that
    /// came furthest, which may have been wiped.
    pub fn compared_with(&self, uuid: &str) -> Option<Progress> {
        let same = || self.before.iter().find(|record| record.installation == uuid).cloned();
        let served = self.record();
        if served.is_some() { served } else { same().or_else(|| self.known()) }
    }

    /// The installation that is served, or else the one that came furthest before us. Where there is one, none is made.
    pub fn known(&self) -> Option<Progress> {
        self.record().or_else(|| self.before.iter().max_by_key(|record| record.highest).cloned())
    }

    /// From now on this one is served.
    pub fn serves(&self, meta: &Meta) {
        let installation = Installation { uuid: meta.uuid.clone(), era: meta.era };
        if self.installation().as_deref() == Some(&installation) {
            return;
        }
        if let Some(Progress { installation: known, highest, .. }) = self.compared_with(&meta.uuid) {
            if known != meta.uuid {
                warn!(%known, serves = meta.uuid, "another installation than before: its tokens begin above");
            }
            self.highest.fetch_max(highest, Ordering::AcqRel);
        }
        *self.lock() = Some(Arc::new(installation));
        self.ring();
    }

    /// Is the loss of `meta` one of what was there before?
    pub fn missed(&self, path: &str) -> Option<WentBack> {
        self.known().map(|known| WentBack::Gone { path: path.to_owned(), highest: known.highest })
    }

    /// Every session of the process is to be given up: what one of them found out holds for all.
    pub fn alarm(&self) {
        self.alarms.send_modify(|alarms| *alarms += 1);
    }

    /// For a session that begins now.
    pub fn listen(&self) -> Alarm {
        Alarm(self.alarms.subscribe())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Installation>>> {
        // It is replaced as a whole.
        self.installation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Alarm {
    /// Returns when ZooKeeper was found to have gone back.
    pub async fn raised(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody is left who could find anything.
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Suspicion;

    fn meta(uuid: &str, era: u64, base: u64) -> Meta {
        Meta { format: 1, uuid: uuid.into(), era, base, suspect: None }
    }

    fn having_seen(highest: u64) -> Memory {
        let memory = Memory::default();
        memory.serves(&meta("ours", 1, 10));
        memory.saw(highest, 0).expect("the first one");
        memory
    }

    #[test]
    fn a_node_is_compared_with_what_was_seen_when_its_create_was_sent() {
        let memory = having_seen(100);
        let before = memory.highest();
        assert_eq!(memory.saw(120, before), Ok(()), "a later one of another session, answered first");
        assert_eq!(memory.saw(110, before), Ok(()), "its create was sent when 100 was the highest");
        assert_eq!(memory.highest(), 120);
        assert_eq!(memory.saw(120, 120), Err(WentBack::Epoch { epoch: 120, highest: 120 }));
        assert_eq!(memory.saw(5, 120), Err(WentBack::Epoch { epoch: 5, highest: 120 }));
        assert_eq!(memory.highest(), 120);
    }

    fn recalling(records: &[(&str, u64, u64)]) -> Memory {
        let record =
            |&(uuid, era, highest): &(&str, _, _)| Progress { installation: uuid.into(), era, highest };
        Memory::recalling(records.iter().map(record).collect())
    }

    #[test]
    fn only_what_gives_out_larger_tokens_is_served() {
        let memory = having_seen(100);
        assert_eq!(memory.fits(&meta("ours", 1, 10)), Ok(()));
        assert_eq!(memory.fits(&meta("ours", 2, 500)), Ok(()));
        assert!(matches!(memory.fits(&meta("ours", 0, 0)), Err(WentBack::OlderEra { .. })));
        assert_eq!(Memory::default().fits(&meta("theirs", 0, 0)), Ok(()), "nothing was seen");
    }

    #[test]
    fn another_installation_is_served_after_a_start_only_and_above_all_that_were_seen() {
        let memory = recalling(&[("ours", 1, 100)]);
        assert!(matches!(memory.fits(&meta("theirs", 1, 99)), Err(WentBack::Another { .. })));
        assert_eq!(memory.fits(&meta("theirs", 1, 100)), Ok(()), "its first token is 101");
        memory.serves(&meta("theirs", 1, 100));
        assert_eq!(memory.highest(), 100);
        for base in [0, 1 << 40] {
            let told = having_seen(100).fits(&meta("theirs", 1, base));
            assert!(matches!(told, Err(WentBack::Exchanged { .. })), "{base}: {told:?}");
        }
    }

    #[test]
    fn an_installation_is_compared_with_its_own_record() {
        let memory = recalling(&[("ours", 1, 100), ("theirs", 3, 9000)]);
        assert_eq!(memory.fits(&meta("ours", 1, 10)), Ok(()));
        assert!(matches!(memory.fits(&meta("ours", 0, 0)), Err(WentBack::OlderEra { highest: 100, .. })));
        assert!(matches!(memory.fits(&meta("third", 0, 100)), Err(WentBack::Another { highest: 9000, .. })));
        memory.serves(&meta("ours", 1, 10));
        assert_eq!(memory.highest(), 100);
        assert_eq!(memory.saw(101, memory.highest()), Ok(()));
        assert!(memory.saw(99, memory.highest()).is_err());
    }

    #[test]
    fn what_somebody_else_has_seen_counts_as_well() {
        let mark = Suspicion { highest: 70, era: 1, by: "gw-2".into() };
        let marked = Meta { suspect: Some(mark), ..meta("ours", 1, 10) };
        let told = |memory: Memory| memory.fits(&marked).map_err(|why| why.highest());
        assert_eq!(told(Memory::default()), Err(70));
        assert_eq!(told(having_seen(60)), Err(70));
        assert_eq!(told(having_seen(100)), Err(100));
        assert_eq!(told(recalling(&[("theirs", 1, 100)])), Err(70), "of another installation");
    }

    #[tokio::test]
    async fn an_alarm_is_heard_by_the_sessions_of_its_time_only() {
        let memory = Memory::default();
        let mut early = memory.listen();
        memory.alarm();
        early.raised().await;
        let mut late = memory.listen();
        tokio::select! {
            biased;
            () = late.raised() => panic!("it was before"),
            () = std::future::ready(()) => {}
        }
    }
}
