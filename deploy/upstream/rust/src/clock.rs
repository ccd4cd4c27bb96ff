//! The clocks of this machine: the wall clock, and the clock of its kernel since boot.

use std::{
    fs, io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// One moment, as the clocks of one machine show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since 1970-01-01 UTC.
    pub wall_ms: u64,
    /// `None` if the kernel's clock cannot be used.
    pub boot: Option<BootTime>,
}

/// A moment on the clock of one kernel (`CLOCK_BOOTTIME`), which counts the time in which the machine slept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootTime {
    /// The name of this boot of the kernel (`/proc/sys/kernel/random/boot_id`).
    pub id: String,
    /// Milliseconds since the boot.
    pub uptime_ms: u64,
}

/// Reads the clocks of this machine.
///
/// The kernel's clock is read from `/proc/uptime`. The kernel's clock is not used if that file may show another clock
/// than the one that the sender reads: in a time namespace with an offset, and where something is mounted over the
/// file, as LXCFS does.
#[derive(Debug, Clone)]
pub struct Clock {
    boot_id: Option<String>,
}

/// `/proc/uptime` has hundredths of a second and rounds down: the true time is less than this many milliseconds above
/// it.
const RESOLUTION_MS: u64 = 10;

impl Default for Clock {
    /// Reads the boot id once: it does not change while a process runs.
    fn default() -> Self {
        Self { boot_id: boot_id(Path::new("/proc")) }
    }
}

impl Clock {
    /// The present moment. A wall clock before 1970 counts as one after every deadline.
    pub fn now(&self) -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_ms = since.map_or(u64::MAX, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let boot_time = |id: &String| {
            let uptime_ms = parse_uptime(&fs::read_to_string("/proc/uptime").ok()?)?;
            Some(BootTime { id: id.clone(), uptime_ms })
        };
        Moment { wall_ms, boot: self.boot_id.as_ref().and_then(boot_time) }
    }
}

/// The boot id, if `uptime` below the same `proc` shows the clock of this boot without an offset. `proc`: the path at
/// which procfs is mounted.
fn boot_id(proc: &Path) -> Option<String> {
    let id = fs::read_to_string(proc.join("sys/kernel/random/boot_id")).ok()?.trim().to_owned();
    let has_offset = match fs::read_to_string(proc.join("self/timens_offsets")) {
        Ok(offsets) => {
            offsets.lines().any(|line| line.split_whitespace().skip(1).any(|number| number != "0"))
        }
        // A kernel without time namespaces has no such file, and so no offset.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    let mounts = fs::read_to_string(proc.join("self/mountinfo")).ok()?;
    let mut mount_points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let is_covered =
        mount_points.any(|point| point == "/proc/uptime" || point.starts_with("/proc/sys/kernel/random"));
    (!id.is_empty() && !has_offset && !is_covered).then_some(id)
}

/// The uptime in milliseconds, rounded up so that no deadline seems later than it is. `text`: the content of
/// `/proc/uptime`, such as `651.13 294.76`.
fn parse_uptime(text: &str) -> Option<u64> {
    let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    if hundredths.len() != 2 {
        return None;
    }
    let hundredths: u64 = hundredths.parse().ok()?;
    let seconds: u64 = seconds.parse().ok()?;
    seconds.checked_mul(1000)?.checked_add(hundredths * 10 + RESOLUTION_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_is_rounded_up() {
        assert_eq!(parse_uptime("651.13 294.76\n"), Some(651_140));
        assert_eq!(parse_uptime("0.00 0.00\n"), Some(10));
        for text in ["", "651", "651.1 2", "651.130 2", "-1.00 2", "x.00 2"] {
            assert_eq!(parse_uptime(text), None, "{text}");
        }
    }

    #[test]
    fn boot_clock_advances() {
        let clock = Clock::default();
        let first = clock.now();
        let second = clock.now();
        assert!(first.wall_ms > 1_700_000_000_000 && second.wall_ms >= first.wall_ms);
        let first = first.boot.expect("procfs");
        let second = second.boot.expect("procfs");
        assert!(first.id == second.id && second.uptime_ms >= first.uptime_ms);
    }

    /// The uptime is ignored if procfs may show the uptime of another clock. Each case: the files of procfs, and
    /// whether the uptime is used.
    #[test]
    fn uptime_of_other_clock_is_rejected() {
        let home = std::env::temp_dir().join(format!("fencegate-clock-{}", std::process::id()));
        let plain = "22 1 0:20 / /proc rw - proc proc rw\n";
        let lxcfs = "22 1 0:20 / /proc rw - proc proc rw\n99 22 0:50 /proc/uptime /proc/uptime rw - fuse.lxcfs lxcfs rw\n";
        let covered = "99 22 0:50 /x /proc/sys/kernel/random/boot_id ro - tmpfs tmpfs rw\n";
        let zero = "monotonic           0         0\nboottime            0         0\n";
        let offset = "monotonic           0         0\nboottime         -100         0\n";
        for (id, offsets, mounts, believed) in [
            (Some("b"), Some(zero), Some(plain), true),
            (Some("b"), None, Some(plain), true),
            (Some("b"), Some(offset), Some(plain), false),
            (Some("b"), Some(zero), Some(lxcfs), false),
            (Some("b"), Some(zero), Some(covered), false),
            (Some("b"), Some(zero), None, false),
            (Some(""), Some(zero), Some(plain), false),
            (None, Some(zero), Some(plain), false),
        ] {
            fs::create_dir_all(home.join("sys/kernel/random")).expect("a folder");
            fs::create_dir_all(home.join("self")).expect("a folder");
            for (name, text) in [
                ("sys/kernel/random/boot_id", id),
                ("self/timens_offsets", offsets),
                ("self/mountinfo", mounts),
            ] {
                if let Some(text) = text {
                    fs::write(home.join(name), text).expect("our own folder");
                }
            }
            assert_eq!(boot_id(&home).is_some(), believed, "{id:?} {offsets:?} {mounts:?}");
            fs::remove_dir_all(&home).expect("our own folder");
        }
    }
}
