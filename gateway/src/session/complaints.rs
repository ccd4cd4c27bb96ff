//! Says once why there is no session, although every session of the process finds it out, and again and again.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What was said last, and when.
#[derive(Debug, Default)]
pub struct Complaints(Mutex<Option<(String, Instant)>>);

/// Who reads the log later should not have to look far back.
const REMIND: Duration = Duration::from_secs(30);

impl Complaints {
    /// It is not what was said last, or that was long ago. Then it counts as said.
    pub fn is_news(&self, why: &str) -> bool {
        self.is_news_at(why, Instant::now())
    }

    fn is_news_at(&self, why: &str, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last
            .as_ref()
            .is_some_and(|(said, at)| said == why && now.saturating_duration_since(*at) < REMIND);
        if !known {
            *last = Some((why.to_owned(), now));
        }
        !known
    }

    /// It is over: should it come again, that is news.
    pub fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_not_said_again_until_it_changes_ends_or_was_long_ago() {
        let (complaints, now) = (Complaints::default(), Instant::now());
        assert!(complaints.is_news_at("away", now));
        assert!(!complaints.is_news_at("away", now + REMIND / 2));
        assert!(complaints.is_news_at("another reason", now + REMIND / 2));
        assert!(complaints.is_news_at("away", now + REMIND / 2));
        assert!(complaints.is_news_at("away", now + REMIND * 2));
        complaints.forget();
        assert!(complaints.is_news_at("away", now + REMIND * 2));
    }
}
