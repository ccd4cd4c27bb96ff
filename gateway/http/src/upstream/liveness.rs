//! Whether the process at an address is heard of, while requests wait for its answers.

use std::{
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, Instant},
};

/// What is known of one address. Only upstreams with introductions and several addresses use it: elsewhere there is no
/// other process that could do the same.
///
/// Times are milliseconds after `born`.
#[derive(Debug)]
pub struct Liveness {
    /// Exchanges under way.
    outstanding: AtomicUsize,
    /// When an answer came, or when an exchange began while no other was under way.
    heard: AtomicU64,
    /// When it was asked last; 0: never.
    asked: AtomicU64,
    /// New requests go elsewhere until then, because it has not answered a question. Each further question that is not
    /// answered moves it.
    silent_until: AtomicU64,
    /// New requests go elsewhere until then, because it has said that it can serve nobody.
    avoided_until: AtomicU64,
    born: Instant,
}

/// With an exchange under way and no answer for this time, the process is asked whether it is there.
pub const QUIET: Duration = Duration::from_millis(250);

/// The time between two questions.
const PAUSE: Duration = Duration::from_secs(1);

/// How long an unanswered question counts. Longer than the time to the next one.
const SILENT: Duration = Duration::from_secs(3);

/// How long a process is avoided after it has said that it can serve nobody.
const AVOIDED: Duration = Duration::from_secs(2);

impl Default for Liveness {
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

impl Liveness {
    /// An exchange begins. Call [`Liveness::end`] once for it.
    pub(super) fn begin(&self) {
        if self.outstanding.fetch_add(1, SeqCst) == 0 {
            self.record_response();
        }
    }

    pub(super) fn end(&self) {
        self.outstanding.fetch_sub(1, SeqCst);
    }

    /// An answer has come.
    pub(super) fn record_response(&self) {
        self.heard.store(self.now(), Relaxed);
    }

    /// Whether new requests should go elsewhere.
    pub(super) fn is_silent(&self) -> bool {
        let until = self.silent_until.load(Relaxed).max(self.avoided_until.load(Relaxed));
        until != 0 && self.now() < until
    }

    /// Whether to ask it now: requests wait, and nothing was heard; or it has not answered the last question.
    pub(super) fn is_due(&self) -> bool {
        let now = self.now();
        let asked = self.asked.load(Relaxed);
        if asked != 0 && now.saturating_sub(asked) < millis(PAUSE) {
            return false;
        }
        let waiting = self.outstanding.load(SeqCst) > 0;
        self.silent_until.load(Relaxed) > now
            || waiting && now.saturating_sub(self.heard.load(Relaxed)) >= millis(QUIET)
    }

    /// A question is sent.
    pub(super) fn record_probe(&self) {
        self.asked.store(self.now().max(1), Relaxed);
    }

    /// The question was answered. True if one before was not.
    pub(super) fn record_probe_answer(&self) -> bool {
        self.record_response();
        self.silent_until.swap(0, Relaxed) > self.now()
    }

    /// The question is not answered so far. True if the one before was.
    pub(super) fn record_probe_miss(&self) -> bool {
        let now = self.now();
        self.silent_until.swap(now + millis(SILENT), Relaxed) <= now
    }

    /// It has said that it can serve nobody, and did nothing.
    pub(super) fn avoid(&self) {
        self.avoided_until.store(self.now() + millis(AVOIDED), Relaxed);
    }

    fn now(&self) -> u64 {
        millis(self.born.elapsed())
    }

    #[cfg(test)]
    fn age(&mut self, by: Duration) {
        self.born -= by;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_silence_while_requests_wait_is_asked_about_and_once_a_second() {
        let mut liveness = Liveness::default();
        liveness.age(Duration::from_secs(60));
        assert!(!liveness.is_due(), "nobody waits");
        liveness.begin();
        assert!(!liveness.is_due(), "it has just begun");
        liveness.age(QUIET);
        assert!(liveness.is_due());
        liveness.record_response();
        assert!(!liveness.is_due(), "it has answered another one");
        liveness.age(QUIET);
        liveness.record_probe();
        assert!(!liveness.is_due(), "it was asked");
        liveness.age(PAUSE);
        assert!(liveness.is_due());
        liveness.end();
        assert!(!liveness.is_due());
    }

    #[test]
    fn a_silent_address_is_avoided_and_asked_until_it_answers_or_nobody_asks() {
        let mut liveness = Liveness::default();
        assert!(liveness.record_probe_miss(), "news");
        assert!(!liveness.record_probe_miss() && liveness.is_silent());
        assert!(liveness.is_due(), "also while nobody waits");
        assert!(liveness.record_probe_answer() && !liveness.is_silent());
        assert!(!liveness.record_probe_answer());
        liveness.record_probe_miss();
        liveness.age(SILENT);
        assert!(!liveness.is_silent(), "whoever asked has ended");
    }

    #[test]
    fn what_can_serve_nobody_is_avoided_for_a_while_whatever_it_answers() {
        let mut liveness = Liveness::default();
        liveness.avoid();
        assert!(!liveness.record_probe_answer() && liveness.is_silent());
        liveness.age(AVOIDED);
        assert!(!liveness.is_silent());
    }
}
