//! Reads the admission table, for operators, for a clean stop, and for gauges.

use fencegate_policies::{key::ResourceKey, token::FencingToken};
use fencegate_process::clock::BootInstant;

use super::{
    claim::{InDoubtExecution, OpenDispatch, PresentedDispatch},
    decide::AdmissionTable,
    key_state::{GuardKeyState, InDoubtDispatch, RunningDispatch, TokenWatermark},
};
use crate::store::KeyWatermarks;

/// The state of one key.
#[derive(Debug, Clone)]
pub struct GuardKeyView {
    pub write: Option<FencingToken>,
    pub read: Option<FencingToken>,
    pub running: Vec<RunningDispatch>,
    pub doubts: Vec<InDoubtDispatch>,
}

impl AdmissionTable {
    /// The watermarks and doubts of a key.
    pub fn key_view(&self, key: &ResourceKey, now: BootInstant) -> Option<GuardKeyView> {
        let state = self.keys.get(key)?;
        Some(GuardKeyView {
            write: state.write_watermark().map(|watermark| watermark.token),
            read: state.read_watermark().map(|watermark| watermark.token),
            running: state.running().to_vec(),
            doubts: state.doubts(now).cloned().collect(),
        })
    }

    /// The watermarks whose whole tokens are known, of at most `most` keys, after the first `from` keys. If
    /// fewer than `most` are returned, they are the last ones.
    pub fn exact_watermarks(&self, from: usize, most: usize) -> Vec<KeyWatermarks> {
        let exact = |watermark: Option<TokenWatermark>| {
            watermark.filter(|watermark| watermark.exact).map(|watermark| watermark.token)
        };
        let keys = self.unused.range(from.min(self.unused.len())..).take(most);
        let whole = keys.map(|(_, key)| {
            let state = self.keys.get(key);
            let watermark = |of: fn(&GuardKeyState) -> Option<TokenWatermark>| exact(state.and_then(of));
            KeyWatermarks {
                key: key.clone(),
                write: watermark(GuardKeyState::write_watermark),
                read: watermark(GuardKeyState::read_watermark),
            }
        });
        whole.collect()
    }

    /// Whether a dispatch with this token may still run.
    pub fn may_still_be_executing(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
        now: BootInstant,
    ) -> bool {
        let seen = keys.iter().filter_map(|key| self.keys.get(key));
        seen.into_iter().any(|state| {
            state.running().iter().any(|running| running.token == token)
                || state.doubts(now).any(|doubt| doubt.token == token)
        })
    }

    /// Every execution in doubt, once, with all its keys.
    pub fn open_doubts(&self, now: BootInstant) -> Vec<InDoubtExecution> {
        let open = self.open.iter().filter_map(|(id, open)| {
            let unseen = self.unseen.get(id);
            let until = match unseen {
                Some(unseen) => now + unseen.remaining(),
                None => open.until.filter(|until| now < *until)?,
            };
            Some(InDoubtExecution {
                token: open.token,
                mode: open.mode,
                keys: open.keys.to_vec(),
                until,
                place: open.place.clone(),
                silent: unseen.is_some_and(|unseen| self.is_uptime_countdown_paused(unseen)),
            })
        });
        open.collect()
    }

    /// Every dispatch in flight, once.
    pub fn in_flight_claims(&self) -> Vec<PresentedDispatch> {
        let running = self.open.values().filter(|open| open.until.is_none());
        let claim = |open: &OpenDispatch| PresentedDispatch {
            keys: open.keys.clone(),
            token: open.token,
            mode: open.mode,
            era: None,
            parent: None,
        };
        running.map(claim).collect()
    }

    /// The number of executions in doubt. Doubts that have just ended count until [`AdmissionTable::delist_idle_keys`]
    /// is called.
    pub fn doubt_count(&self) -> usize {
        self.doubts.len() + self.unseen.len()
    }
}
