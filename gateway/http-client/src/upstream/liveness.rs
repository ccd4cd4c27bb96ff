//! Tracks whether the process at an address answers, while requests wait for its responses.

use std::{
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, Instant},
};

/// The liveness of one address. Only upstreams with identity checks and several addresses use it: in any other
/// upstream no other process could take the requests.
///
/// Moments are stored as milliseconds after `born`.
#[derive(Debug)]
pub struct AddressLiveness {
    /// The number of exchanges that wait for a response or receive it.
    outstanding: AtomicUsize,
    /// The moment of the last response, or of the begin of an exchange when no other was in progress.
    heard: AtomicU64,
    /// The moment of the last probe; 0 if there was none.
    asked: AtomicU64,
    /// New requests go elsewhere until this moment, because the address has not answered a probe. Each further
    /// unanswered probe postpones it.
    silent_until: AtomicU64,
    /// New requests go elsewhere until this moment, because the process has reported that it can serve no request.
    avoided_until: AtomicU64,
    born: Instant,
}

/// If an exchange is in progress and no response comes for this time, the process is probed.
pub const QUIET: Duration = Duration::from_millis(250);

/// The time between two probes.
const PAUSE: Duration = Duration::from_secs(1);

/// How long after an unanswered probe the address counts as silent. It is longer than the time to the next probe.
const SILENT: Duration = Duration::from_secs(3);

/// How long a process is avoided after it has reported that it can serve no request.
const AVOIDED: Duration = Duration::from_secs(2);

impl Default for AddressLiveness {
    fn default() -> Self {
        Self {
            outstanding: AtomicUsize::new(0),
            heard: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            silent_until: AtomicU64::new(0),
            avoided_until: AtomicU64::new(0),
            born: Instant::now(),
        }
    }
}

impl AddressLiveness {
    /// Counts an exchange that begins. [`AddressLiveness::end_exchange`] has to be called once for it.
    pub(super) fn begin_exchange(&self) {
        if self.outstanding.fetch_add(1, SeqCst) == 0 {
            self.record_response();
        }
    }

    pub(super) fn end_exchange(&self) {
        self.outstanding.fetch_sub(1, SeqCst);
    }

    /// Records that a response has come.
    pub(super) fn record_response(&self) {
        self.heard.store(self.millis_since_creation(), Relaxed);
    }

    /// True if new requests should go elsewhere.
    pub(super) fn is_silent(&self) -> bool {
        let until = self.silent_until.load(Relaxed).max(self.avoided_until.load(Relaxed));
        until != 0 && self.millis_since_creation() < until
    }

    /// True if the address has to be probed now: requests wait without a response, or it has not answered the last
    /// probe.
    pub(super) fn is_probe_due(&self) -> bool {
        let now = self.millis_since_creation();
        let probed = self.asked.load(Relaxed);
        if probed != 0 && now.saturating_sub(probed) < millis(PAUSE) {
            return false;
        }
        let waiting = self.outstanding.load(SeqCst) > 0;
        self.silent_until.load(Relaxed) > now
            || waiting && now.saturating_sub(self.heard.load(Relaxed)) >= millis(QUIET)
    }

    /// Records that a probe is sent.
    pub(super) fn record_probe(&self) {
        self.asked.store(self.millis_since_creation().max(1), Relaxed);
    }

    /// Records that the probe was answered. Returns true if the address counted as silent before.
    pub(super) fn record_probe_answer(&self) -> bool {
        self.record_response();
        self.silent_until.swap(0, Relaxed) > self.millis_since_creation()
    }

    /// Records that the probe is not answered so far. Returns true if the address did not count as silent before.
    pub(super) fn mark_silent(&self) -> bool {
        let now = self.millis_since_creation();
        self.silent_until.swap(now + millis(SILENT), Relaxed) <= now
    }

    /// Records that the process has reported that it can serve no request, and has begun with none.
    pub(super) fn avoid_address(&self) {
        self.avoided_until.store(self.millis_since_creation() + millis(AVOIDED), Relaxed);
    }

    fn millis_since_creation(&self) -> u64 {
        millis(self.born.elapsed())
    }

    #[cfg(test)]
    fn make_older(&mut self, by: Duration) {
        self.born -= by;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address is probed only if it is silent while requests wait, and at most once a second.
    #[test]
    fn silence_with_waiting_requests_is_probed() {
        let mut liveness = AddressLiveness::default();
        liveness.make_older(Duration::from_secs(60));
        assert!(!liveness.is_probe_due(), "nobody waits");
        liveness.begin_exchange();
        assert!(!liveness.is_probe_due(), "it has just begun");
        liveness.make_older(QUIET);
        assert!(liveness.is_probe_due());
        liveness.record_response();
        assert!(!liveness.is_probe_due(), "it has answered another one");
        liveness.make_older(QUIET);
        liveness.record_probe();
        assert!(!liveness.is_probe_due(), "it was asked");
        liveness.make_older(PAUSE);
        assert!(liveness.is_probe_due());
        liveness.end_exchange();
        assert!(!liveness.is_probe_due());
    }

    /// A silent address is avoided and probed until it answers; without further probes it is avoided only for a
    /// while.
    #[test]
    fn silent_address_is_avoided_and_probed() {
        let mut liveness = AddressLiveness::default();
        assert!(liveness.mark_silent(), "news");
        assert!(!liveness.mark_silent() && liveness.is_silent());
        assert!(liveness.is_probe_due(), "also while nobody waits");
        assert!(liveness.record_probe_answer() && !liveness.is_silent());
        assert!(!liveness.record_probe_answer());
        liveness.mark_silent();
        liveness.make_older(SILENT);
        assert!(!liveness.is_silent(), "whoever asked has ended");
    }

    /// An address that can serve no request is avoided for a while, even if it answers.
    #[test]
    fn unusable_address_is_avoided_despite_answers() {
        let mut liveness = AddressLiveness::default();
        liveness.avoid_address();
        assert!(!liveness.record_probe_answer() && liveness.is_silent());
        liveness.make_older(AVOIDED);
        assert!(!liveness.is_silent());
    }
}
