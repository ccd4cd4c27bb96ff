//! Detects pauses of the process. This runs beside a session and beside the attempts to get one, so a pause that costs
//! the session is reported like any other.

use std::{convert::Infallible, future::poll_fn, pin::pin, task::Poll, time::Duration};

use fencegate_process::{clock::SharedClock, display::FormattedDuration};
use tokio::time::sleep;
use tracing::warn;

use super::{heartbeat::HeartbeatSchedule, settings::SessionSettings};

/// Reports pauses of the process, each once, even if several sessions run this. It only sleeps and reads the clock, so
/// that slow answers of ZooKeeper do not count as pauses. `schedule`: the schedule of the session, if there is one.
pub(super) async fn run_pause_detection(
    settings: &SessionSettings,
    schedule: impl Fn() -> Option<HeartbeatSchedule>,
) -> Infallible {
    let policy = &settings.policy;
    loop {
        let HeartbeatSchedule { timeout, period, .. } =
            schedule().unwrap_or_else(|| HeartbeatSchedule::new(policy, policy.session_timeout));
        let begin = settings.clock.now();
        // A pause is only seen from the end of the sleep on. So the sleep is short compared with a third of the session
        // timeout, the pause that an alert is about.
        let late = measure_sleep_overrun(&settings.clock, period / 8, policy.tick / 2).await;
        if late > policy.tick / 2 && settings.log_dedup.claim_pause_report(begin, settings.clock.now()) {
            warn!(late = %FormattedDuration(late), "process.paused");
            settings.metrics.record_process_pause(late, timeout);
        }
    }
}

/// Sleeps for `rest`, and returns by how much longer the sleep took. After a pause of more than `least` it returns at
/// the first poll, whatever the timer says: a future that is polled after this one may end the session because of that
/// pause, and the pause has to be reported before.
async fn measure_sleep_overrun(clock: &SharedClock, rest: Duration, least: Duration) -> Duration {
    let begin = clock.now();
    let late = || clock.now().since(begin).saturating_sub(rest);
    let mut timer = pin!(sleep(rest));
    poll_fn(|cx| if late() > least { Poll::Ready(()) } else { timer.as_mut().poll(cx) }).await;
    late()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fencegate_process::clock::ManualClock;

    use super::*;

    /// A pause is detected in the poll in which another future ends because of it, although the timer has not fired.
    #[tokio::test]
    async fn pause_is_seen_before_what_it_ends() {
        let manual = Arc::new(ManualClock::default());
        let clock: SharedClock = manual.clone();
        let pause = Duration::from_secs(30);
        let seen = tokio::select! {
            biased;
            late = measure_sleep_overrun(&clock, Duration::from_secs(60), Duration::from_secs(1)) => Some(late),
            () = async {
                tokio::task::yield_now().await;
                manual.advance(Duration::from_secs(60) + pause);
                tokio::task::yield_now().await;
            } => None,
        };
        assert_eq!(seen, Some(pause));
    }

    /// A sleep without a pause is not late.
    #[tokio::test]
    async fn plain_sleep_is_not_late() {
        let clock: SharedClock = Arc::new(ManualClock::default());
        let late = measure_sleep_overrun(&clock, Duration::from_millis(1), Duration::from_secs(1)).await;
        assert_eq!(late, Duration::ZERO);
    }
}
