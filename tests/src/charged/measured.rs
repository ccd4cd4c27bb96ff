//! The time from the end of a command to the moment at which another holder got its lock.

use std::time::Duration;

use fencegate_lock::client::LockClient;
use fencegate_process::clock::{BootInstant, Clock, MachineClock};
use tokio::time::sleep;

use super::{LockedCommand, is_alive, wait_dead};

/// The times that were measured after one fault.
#[derive(Debug, Clone)]
pub struct FaultTiming<M> {
    pub mishap: M,
    /// The time from the last moment at which the command ran to the end of its session deadline, in milliseconds.
    /// Negative if the command ran beyond its deadline.
    pub before_the_end: f64,
    /// The time from the last moment at which the command ran to the grant of the lock to the next holder, in
    /// milliseconds.
    pub before_the_next: f64,
    /// The exit code of the lock keeper; `None` if it was killed.
    pub code: Option<i32>,
    /// True if the next holder's token is larger.
    pub grows: bool,
}

/// A command that has ended, and whose lock another holder has got.
pub struct CommandDeath<'a> {
    charged: &'a LockedCommand,
    before: String,
    granted: BootInstant,
    token: String,
}

impl<'a> CommandDeath<'a> {
    /// Waits until another holder has got the lock of `key`.
    ///
    /// # Panics
    /// If the command still runs at that time.
    pub async fn observe(charged: &'a LockedCommand, key: &str, next: &LockClient) -> Self {
        let command = charged.command();
        let before = charged.wait_record().await.token;
        let (granted, token) = loop {
            if let Ok(held) = next.lock(key).wait(Duration::from_secs(60)).await {
                let got = (MachineClock.now(), held.token().to_string());
                held.release();
                break got;
            }
            sleep(Duration::from_millis(20)).await;
        };
        assert!(!is_alive(command), "the command for {key} runs on under another's lock");
        wait_dead(command).await;
        Self { charged, before, granted, token }
    }

    /// Measures the times. `tells` is true if the lock keeper lives and can report its exit code.
    ///
    /// # Panics
    /// If the command never ran.
    pub async fn measure<M>(self, mishap: M, tells: bool) -> FaultTiming<M> {
        let proven = self.charged.proof_deadline().await;
        let code = if tells { Some(self.charged.exit().await) } else { None };
        let last = self.charged.record().expect("it lived").last;
        let before_the_end = millis(last, proven);
        let before_the_next = millis(last, self.granted);
        FaultTiming { mishap, before_the_end, before_the_next, code, grows: self.token > self.before }
    }
}

impl<M> FaultTiming<M> {
    /// True if the command ended in time, and the exit code of the lock keeper states that the command was ended.
    pub fn is_good(&self) -> bool {
        let told = self.code.is_none_or(|code| code == 123);
        self.before_the_next > 0.0 && self.before_the_end > 0.0 && self.grows && told
    }
}

/// The measurements in one line.
pub fn summary<'a, M: 'a>(all: impl Iterator<Item = &'a FaultTiming<M>> + Clone) -> String {
    format!(
        "{} times; dead before the proof ended by {}; before the next one held the lock by {}",
        all.clone().count(),
        format_spread(all.clone().map(|measured| measured.before_the_end)),
        format_spread(all.map(|measured| measured.before_the_next)),
    )
}

/// The smallest, the middle and the largest time, in milliseconds.
fn format_spread(times: impl Iterator<Item = f64>) -> String {
    let mut times: Vec<_> = times.collect();
    times.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (times.first(), times.last()) else { return "nothing".to_owned() };
    format!("{least:.0} ms at least, {:.0} ms mostly, {most:.0} ms at most", times[times.len() / 2])
}

/// The time between two moments in milliseconds; negative if `to` is earlier.
fn millis(from: BootInstant, to: BootInstant) -> f64 {
    (to.as_nanos() as f64 - from.as_nanos() as f64) / 1e6
}
