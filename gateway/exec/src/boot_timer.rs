//! A timer that counts while the machine sleeps: a moment that passes during the sleep is reported at once when
//! the machine wakes.

use std::{io, time::Duration};

use fencegate_process::clock::BootInstant;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// One timer of CLOCK_BOOTTIME. The timers of the runtime stand still while the machine sleeps, and would be late by
/// that time.
///
/// The timer is read like a pipe, because the runtime needs less for a pipe than for other descriptors.
pub(super) struct BootClockTimer(Receiver);

impl BootClockTimer {
    /// A new timer.
    ///
    /// # Errors
    /// Returns an error if the process has no descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Receiver::from_owned_fd_unchecked(timerfd_create(TimerfdClockId::Boottime, flags)?).map(Self)
    }

    /// Returns at `at`, or at once if that time has passed.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses to set the timer.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing: the next call sets the timer anew.
    pub(super) async fn sleep_until(&self, at: BootInstant) -> io::Result<()> {
        // Zero would disarm the timer.
        let at = Duration::from_nanos(at.as_nanos().max(1));
        let at = Timespec { tv_sec: at.as_secs().cast_signed(), tv_nsec: i64::from(at.subsec_nanos()) };
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let set = Itimerspec { it_interval: once, it_value: at };
        // This also cancels an expiry that was not read.
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &set)?;
        loop {
            self.0.readable().await?;
            match self.0.try_read(&mut [0; 8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fencegate_process::clock::{Clock, MachineClock};

    use super::*;

    /// The timer returns when its moment is reached and not before, and at once for a moment that is past.
    #[tokio::test]
    async fn never_returns_before_deadline() {
        let timer = BootClockTimer::new().expect("a descriptor");
        for at in
            [MachineClock.now() + Duration::from_millis(30), BootInstant::from_nanos(0), MachineClock.now()]
        {
            timer.sleep_until(at).await.expect("a timer");
            assert!(MachineClock.now() >= at);
        }
    }

    /// After a wait that was abandoned, the timer serves the next one.
    #[tokio::test]
    async fn abandoned_timer_is_set_anew() {
        let timer = BootClockTimer::new().expect("a descriptor");
        let far = MachineClock.now() + Duration::from_secs(60);
        assert!(tokio::time::timeout(Duration::from_millis(10), timer.sleep_until(far)).await.is_err());
        timer.sleep_until(MachineClock.now() + Duration::from_millis(10)).await.expect("a timer");
    }
}
