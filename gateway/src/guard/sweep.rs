//! What a guard does by itself: forgets what nobody needs, counts, and leaves in order.

use super::{
    Guard,
    refused::Refused,
    register::Register,
    store::{Change, CleanStop, OpenDoubt, WholeMarks},
    wall_clock,
};
use crate::session::clock::Boot;

impl Guard {
    /// Forgets keys that were not used for long, and operations that are kept no longer.
    pub fn sweep(&self) {
        let now = self.now();
        let idle_since = now - self.rules.evict_after;
        {
            let mut state = self.lock();
            let changes = state.register.evict(idle_since, super::MOST_KEYS, now);
            self.committer.submit(changes);
        }
        let before = wall_clock();
        match self.store.outlived(before, MOST_AT_ONCE) {
            Ok(ids) => {
                // One that is run again has been reserved, and is written anew by who has reserved it.
                let state = self.lock();
                let free = ids.into_iter().filter(|id| !state.underway.is_reserved(id));
                self.committer.submit(free.map(|id| Change::ForgetFinished { id, before }).collect());
            }
            Err(error) => {
                self.metrics.store_error("read");
                tracing::error!(%error, "guard.store_unreadable");
            }
        }
    }

    /// The gauges, as they are now.
    pub fn count(&self) {
        let state = self.lock();
        let doubts = state.register.doubts(self.now());
        self.metrics.in_doubt(doubts);
        self.metrics.store_keys(state.register.len());
    }

    /// After the last exchange: writes down what only memory knows, so that the next start needs no quarantine.
    ///
    /// # Errors
    /// Then the next start takes this one for a crash.
    pub async fn leave(&self) -> Result<(), Refused> {
        let moment = {
            let state = self.lock();
            let stop = clean_stop(&state.register, self.now(), self.rules.max_execution);
            self.committer.submit(vec![Change::CleanStop(stop)])
        };
        self.durable(moment).await?;
        self.committer.close();
        Ok(())
    }
}

/// Operations forgotten in one go.
const MOST_AT_ONCE: usize = 1000;

fn clean_stop(register: &Register, now: Boot, max_execution: std::time::Duration) -> CleanStop {
    let whole = register.exact_marks().map(|(key, write, read)| WholeMarks { key: key.clone(), write, read });
    let quarantine = register.quarantine().filter(|until| now < *until);
    let mut doubts: Vec<OpenDoubt> = register
        .open_doubts(now)
        .into_iter()
        .map(|doubt| OpenDoubt {
            keys: doubt.keys,
            token: doubt.token,
            mode: doubt.mode,
            remaining: doubt.until.since(now),
        })
        .collect();
    // What did not end within the drain ends with its connection, and its execution when it likes.
    doubts.extend(register.open_dispatches().into_iter().map(|claim| OpenDoubt {
        keys: claim.keys.to_vec(),
        token: claim.token,
        mode: claim.mode,
        remaining: max_execution,
    }));
    CleanStop { marks: whole.collect(), doubts, quarantine: quarantine.map(|until| until.since(now)) }
}
