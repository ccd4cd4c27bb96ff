//! The clock for deadlines on which safety depends: CLOCK_BOOTTIME, which goes on while the machine sleeps.

use std::{
    fmt, fs, io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fencegate_policies::not_after::{BootClockMoment, BootId, NotAfter};
use tokio::time::sleep;

/// An instant of CLOCK_BOOTTIME, in nanoseconds since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this instant. It saturates, as the operators of this type do.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for BootInstant {
    type Output = Self;
    fn add(self, rest: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl std::ops::Sub<Duration> for BootInstant {
    type Output = Self;
    fn sub(self, rest: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The source of the time; a simulation brings its own.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    fn now(&self) -> BootInstant;

    /// Milliseconds of the wall clock since 1970. A clock that has no wall clock counts its instants from 1970.
    fn unix_ms(&self) -> u64 {
        self.now().as_nanos() / MS
    }

    /// The kernel whose boot clock [`Clock::now`] is. `None` if other processes of that kernel may read another time,
    /// as in a time namespace.
    fn boot_id(&self) -> Option<BootId> {
        None
    }
}

const MS: u64 = 1_000_000;

impl dyn Clock + '_ {
    /// Converts `deadline` for other processes into a moment of the wall clock and of the boot clock. It is never later
    /// than `deadline`: if this process is paused between the two reads, the moment of the wall clock is earlier.
    pub fn not_after(&self, deadline: BootInstant) -> NotAfter {
        // The wall clock is read first. If it were read after a pause, its moment would be too late.
        let unix_ms = self.unix_ms();
        let left = deadline.since(self.now());
        let unix_ms = unix_ms.saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        let uptime = self.boot_id().map(|boot| BootClockMoment::new(boot, deadline.as_nanos() / MS));
        NotAfter::new(unix_ms, uptime)
    }

    /// The end of a sender's permission, on this clock. The sender's wall clock differs from this machine's by at most
    /// `clock_error`. Nothing may be started at this instant or later; if no time is left, the instant is long past.
    pub fn deadline_of(&self, not_after: &NotAfter, clock_error: Duration) -> BootInstant {
        let same_kernel = self.boot_id().and_then(|boot| not_after.uptime_ms(boot));
        if let Some(uptime_ms) = same_kernel {
            return BootInstant::from_nanos(uptime_ms.saturating_mul(MS));
        }
        // Here the wall clock is read last: after a pause between the two reads the deadline is then earlier, not
        // later.
        let now = self.now();
        match not_after.remaining_at(self.unix_ms(), clock_error) {
            Duration::ZERO => BootInstant::from_nanos(0),
            left => now + left,
        }
    }
}

/// The machine's clock. CLOCK_MONOTONIC is not safe here: it stands still while the machine is suspended, and a session
/// may expire meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn now(&self) -> BootInstant {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = time.tv_sec.cast_unsigned();
        let nanos = time.tv_nsec.cast_unsigned();
        BootInstant(seconds * 1_000_000_000 + nanos)
    }

    fn unix_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn boot_id(&self) -> Option<BootId> {
        static ID: OnceLock<Option<BootId>> = OnceLock::new();
        *ID.get_or_init(|| {
            let id = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
            let id = BootId::parse(id.trim_ascii())?;
            is_boot_clock_unshifted(fs::read_to_string("/proc/self/timens_offsets")).then_some(id)
        })
    }
}

/// Whether the boot clock is the kernel's own. False in a time namespace whose boot clock is shifted
/// (time_namespaces(7)), and if that cannot be found out. A kernel without time namespaces has no file of offsets,
/// which means not shifted.
fn is_boot_clock_unshifted(offsets: io::Result<String>) -> bool {
    let offsets = match offsets {
        Ok(offsets) => offsets,
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    };
    let mut lines = offsets.lines().map(str::split_ascii_whitespace);
    lines.any(|line| line.eq(["boottime", "0", "0"]))
}

/// Seconds of the wall clock since 1970: for people, never for safety. A clock before 1970 gives 0.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A clock that is shared by several owners.
pub type SharedClock = Arc<dyn Clock>;

/// A permission to write bytes, which ends at some time.
pub trait SendPermission: fmt::Debug + Send + Sync {
    /// Whether the permission holds at `now`. The answer comes from memory, so check before every write.
    fn may_send_at(&self, now: BootInstant) -> bool;

    /// The end of the permission, as known now. It may move on later, and the permission may be revoked before.
    fn valid_until(&self) -> BootInstant;
}

impl dyn SendPermission + '_ {
    /// Returns when the permission no longer holds. If it is revoked early, that is detected within [`LOOK`].
    pub async fn wait_expired(&self, clock: &SharedClock) {
        loop {
            let now = clock.now();
            if !self.may_send_at(now) {
                return;
            }
            sleep(self.valid_until().since(now).min(LOOK)).await;
        }
    }
}

/// A running exchange checks its permission this often.
const LOOK: Duration = Duration::from_millis(100);

/// A clock that the caller moves, for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicU64,
    leap: AtomicU64,
}

impl ManualClock {
    pub fn advance(&self, by: Duration) {
        self.now.fetch_add(nanos(by), Ordering::SeqCst);
    }

    /// Advances the clock after the next read, as if the reader were paused with the value that it has read.
    pub fn advance_after_next_read(&self, by: Duration) {
        self.leap.store(nanos(by), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> BootInstant {
        let leap = self.leap.swap(0, Ordering::SeqCst);
        BootInstant(self.now.fetch_add(leap, Ordering::SeqCst))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &[u8] = b"0b2f1a3c-89ab-4cde-8f01-23456789abcd";

    /// The clock of a machine whose wall clock is `ahead` of its boot clock.
    #[derive(Debug)]
    struct TestClock {
        now: BootInstant,
        ahead: u64,
        boot: Option<BootId>,
    }

    impl Clock for TestClock {
        fn now(&self) -> BootInstant {
            self.now
        }

        fn unix_ms(&self) -> u64 {
            self.now.as_nanos() / MS + self.ahead
        }

        fn boot_id(&self) -> Option<BootId> {
            self.boot
        }
    }

    fn test_clock(ms: u64, ahead: u64, boot: &[u8]) -> TestClock {
        TestClock { now: BootInstant::from_nanos(ms * MS), ahead, boot: BootId::parse(boot) }
    }

    /// On the same kernel a deadline is read by the boot clock, even if the wall clock was set back meanwhile.
    #[test]
    fn same_boot_ignores_wall_clock() {
        let deadline = BootInstant::from_nanos(7_000 * MS + 999);
        let moment = (&test_clock(5_000, 1_000_000, ID) as &dyn Clock).not_after(deadline);
        assert_eq!(moment.to_string(), format!("1007000;boot=\"{}\";uptime=7000", ID.escape_ascii()));
        // The wall clock of the other process was set back, so only the boot clock can give the right deadline.
        let other: &dyn Clock = &test_clock(6_000, 0, ID);
        assert_eq!(other.deadline_of(&moment, Duration::from_secs(9)), BootInstant::from_nanos(7_000 * MS));
    }

    /// On another kernel a deadline is read by the wall clock, less the tolerated clock error.
    #[test]
    fn other_boot_subtracts_wall_clock_error() {
        let moment =
            (&test_clock(5_000, 1_000_000, ID) as &dyn Clock).not_after(BootInstant::from_nanos(7_000 * MS));
        for boot in [&b""[..], b"ffffffff-89ab-4cde-8f01-23456789abcd"] {
            let other: &dyn Clock = &test_clock(100, 1_005_000, boot);
            let end = other.deadline_of(&moment, Duration::from_millis(500));
            assert_eq!(end, BootInstant::from_nanos((100 + 1_900 - 500) * MS));
            let late: &dyn Clock = &test_clock(3_000, 1_005_000, boot);
            let over = late.deadline_of(&moment, Duration::ZERO);
            assert_eq!(over, BootInstant::from_nanos(0), "nothing is left");
        }
    }

    /// A boot clock shifted by a time namespace is not the kernel's; an unreadable offset counts as shifted.
    #[test]
    fn shifted_boot_clock_is_detected() {
        for (offsets, same) in [
            ("monotonic           0         0\nboottime            0         0\n", true),
            ("monotonic  0 0\nboottime  86400 0\n", false),
            ("monotonic  0 0\nboottime  0 7\n", false),
            ("", false),
        ] {
            assert_eq!(is_boot_clock_unshifted(Ok(offsets.to_owned())), same, "{offsets}");
        }
        let error = |kind: io::ErrorKind| Err(io::Error::from(kind));
        assert!(is_boot_clock_unshifted(error(io::ErrorKind::NotFound)));
        assert!(!is_boot_clock_unshifted(error(io::ErrorKind::PermissionDenied)));
    }

    /// The clock of the machine reads its own deadline back, never later and at most half a second earlier.
    #[test]
    fn machine_clock_round_trips_deadline() {
        let clock: &dyn Clock = &MachineClock;
        let deadline = clock.now() + Duration::from_secs(5);
        let moment = clock.not_after(deadline);
        let end = clock.deadline_of(&moment, Duration::ZERO);
        assert!(end <= deadline && deadline.since(end) < Duration::from_millis(500), "{end:?}, {deadline:?}");
    }
}
