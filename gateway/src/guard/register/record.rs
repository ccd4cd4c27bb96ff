//! One key: its two marks, and the dispatches that may be at work on it.

use std::sync::Arc;

use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};
use tokio::sync::Notify;

use super::DispatchId;
use crate::{
    guard::{
        refused::Refused,
        store::{Change, Epochs, Moment},
    },
    session::clock::Boot,
};

/// The newest token seen for one kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub token: Token,
    /// False after an unclean stop: only the epoch was durable, so nothing of that epoch is let in again.
    pub exact: bool,
}

/// A dispatch that was sent and has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub id: DispatchId,
    pub token: Token,
    pub mode: Mode,
    pub since: Boot,
}

/// A dispatch that was sent, and nobody saw its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    pub id: DispatchId,
    pub token: Token,
    pub mode: Mode,
    /// By then it counts as over.
    pub until: Boot,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) write: Option<Mark>,
    pub(super) read: Option<Mark>,
    pub(super) running: Vec<Running>,
    pub(super) doubts: Vec<Doubt>,
    /// The floor when this record began: what was known of the key before may have been forgotten up to here.
    base: u64,
    pub(super) used: Boot,
    /// When the epoch of the marks was handed in to be written.
    pub(super) written: Moment,
    /// Told at every change that somebody may wait for.
    pub(super) told: Arc<Notify>,
}

/// Somebody else is at work.
pub(super) struct Conflict {
    /// Where only doubts are in the way: when the last of them is over.
    pub(super) doubt: Option<Boot>,
}

impl Mark {
    pub(super) fn exact(token: Token) -> Self {
        Self { token, exact: true }
    }

    fn recovered(epoch: u64) -> Option<Self> {
        let token = Token::new(epoch, u32::MAX, u32::MAX).ok()?;
        Some(Self { token, exact: false })
    }
}

impl Record {
    pub(super) fn new(base: u64, now: Boot) -> Self {
        let (running, doubts) = (Vec::new(), Vec::new());
        Self {
            write: None,
            read: None,
            running,
            doubts,
            base,
            used: now,
            written: Moment::default(),
            told: Arc::default(),
        }
    }

    pub(super) fn recovered(epochs: &Epochs, base: u64, now: Boot) -> Self {
        let write = epochs.write.and_then(Mark::recovered);
        let read = epochs.read.and_then(Mark::recovered);
        Self { write, read, ..Self::new(base, now) }
    }

    /// After a clean stop the whole tokens are known.
    pub(super) fn make_exact(&mut self, write: Option<Token>, read: Option<Token>) {
        self.write = write.map(Mark::exact).or(self.write);
        self.read = read.map(Mark::exact).or(self.read);
    }

    pub(super) fn highest(&self) -> u64 {
        let epoch = |mark: Option<Mark>| mark.map_or(0, |mark| mark.token.number());
        epoch(self.write).max(epoch(self.read))
    }

    /// The first look, before the mark moves.
    pub(super) fn compare(&self, token: Token, mode: Mode) -> Result<(), Refused> {
        self.beyond_base(token)?;
        if let Some(write) = self.write
            && token <= write.token
        {
            let same = mode == Mode::Exclusive && token.number() == write.token.number();
            return Err(match (same, write.exact) {
                // Readers of one tenure run beside each other, in any order: theirs is never a duplicate.
                (false, _) => Refused::Stale { newest: write.token },
                (true, true) => Refused::Duplicate { newest: write.token },
                (true, false) => Refused::Recovered { epoch: write.token.number() },
            });
        }
        self.beyond_readers(token, mode)
    }

    /// A record that a reader began knows no write, and the last one may have been forgotten with the record before.
    fn beyond_base(&self, token: Token) -> Result<(), Refused> {
        match self.write {
            None if token.number() <= self.base => Err(Refused::Floor { floor: self.base }),
            _ => Ok(()),
        }
    }

    fn beyond_readers(&self, token: Token, mode: Mode) -> Result<(), Refused> {
        match (mode, self.read) {
            (Mode::Exclusive, Some(read)) if token <= read.token => {
                Err(Refused::Stale { newest: read.token })
            }
            _ => Ok(()),
        }
    }

    /// The mark moves up, never down. `Some` where the epoch is one that has not been written yet: later dispatches of
    /// a tenure cost no write.
    pub(super) fn raise(&mut self, key: &ResourceKey, token: Token, mode: Mode) -> Option<Change> {
        // A mark below the base would say that nothing above it was ever seen.
        self.beyond_base(token).ok()?;
        let mark = match mode {
            Mode::Exclusive => &mut self.write,
            Mode::Shared => &mut self.read,
        };
        if mark.is_some_and(|mark| token <= mark.token) {
            return None;
        }
        let before = mark.replace(Mark::exact(token));
        if before.is_some_and(|before| before.token.number() == token.number()) {
            return None;
        }
        // Whoever waits for this key under an older token can stop waiting.
        self.told.notify_waiters();
        let epoch = |mark: Option<Mark>| mark.map(|mark| mark.token.number());
        let epochs = Epochs { write: epoch(self.write), read: epoch(self.read) };
        Some(Change::Mark { key: key.clone(), epochs })
    }

    /// The second look, in the step that registers. For a write, `newest but one` is not enough: exactly this token
    /// has to be the mark.
    pub(super) fn check(&self, token: Token, mode: Mode) -> Result<(), Refused> {
        match (mode, self.write) {
            (Mode::Exclusive, Some(write)) if write.token == token => self.beyond_readers(token, mode),
            (Mode::Exclusive, write) => {
                Err(Refused::Stale { newest: write.map_or(token, |mark| mark.token) })
            }
            (Mode::Shared, Some(write)) if token <= write.token => {
                Err(Refused::Stale { newest: write.token })
            }
            (Mode::Shared, _) => self.beyond_base(token),
        }
    }

    /// Conflicting is whatever is in flight or in doubt, unless both share. Also what is of the same tenure: its gateway
    /// sends one after the other, so a second one beside the first means that somebody lost count.
    pub(super) fn conflict(&mut self, mode: Mode, now: Boot) -> Option<Conflict> {
        let both_share = |other: Mode| mode == Mode::Shared && other == Mode::Shared;
        self.doubts.retain(|doubt| now < doubt.until);
        let running = self.running.iter().any(|running| !both_share(running.mode));
        let doubt = self.doubts.iter().filter(|doubt| !both_share(doubt.mode)).map(|doubt| doubt.until).max();
        match (running, doubt) {
            (false, None) => None,
            (false, Some(doubt)) => Some(Conflict { doubt: Some(doubt) }),
            (true, _) => Some(Conflict { doubt: None }),
        }
    }

    /// Nothing is in flight or in doubt.
    pub(super) fn is_idle(&mut self, now: Boot) -> bool {
        self.doubts.retain(|doubt| now < doubt.until);
        self.running.is_empty() && self.doubts.is_empty()
    }
}
