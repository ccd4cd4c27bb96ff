//! The default memory for buffered bodies: a part of the memory of this process, its container or its machine.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::{Resource, getrlimit};

/// The default budget for buffered bodies, and the limit that it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultMemoryLimit {
    pub bytes: usize,
    pub source: &'static str,
}

/// Returns the smallest of these: half of the limit of the container or process, and a quarter of the machine's
/// memory, which other processes share.
pub fn memory_allowance() -> DefaultMemoryLimit {
    let half = |(bytes, of): (u64, &'static str)| (bytes / 2, of);
    let known = [
        cgroup_limit(Path::new("/sys/fs/cgroup"), &read_file_or_empty("/proc/self/cgroup"))
            .map(|most| half((most, "cgroup"))),
        remaining(Resource::As, "VmSize:").map(|left| half((left, "address space limit"))),
        remaining(Resource::Data, "VmData:").map(|left| half((left, "data limit"))),
        parse_kib_line(&read_file_or_empty("/proc/meminfo"), "MemTotal:").map(|all| (all / 4, "machine")),
    ];
    let least = known.into_iter().flatten().min_by_key(|(bytes, _)| *bytes);
    let (bytes, of) = least.unwrap_or((LEAST, "least that is useful"));
    DefaultMemoryLimit { bytes: usize::try_from(bytes.max(LEAST)).unwrap_or(usize::MAX), source: of }
}

/// The least budget: with less memory hardly any request could be served.
const LEAST: u64 = 8 << 20;

fn read_file_or_empty(path: impl AsRef<Path>) -> String {
    // A file that cannot be read sets no limit, so its text is empty.
    fs::read_to_string(path).unwrap_or_default()
}

/// The lowest limit on the path from the process's own control group to the root. `own` is the text of
/// `/proc/self/cgroup`.
fn cgroup_limit(mounted: &Path, own: &str) -> Option<u64> {
    let bounds = own.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next().unwrap_or_default();
        let group = parts.next().unwrap_or_default();
        let (root, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (mounted.join("memory"), "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let below = PathBuf::from(group.trim_start_matches('/'));
        let way: Vec<PathBuf> = below.ancestors().map(|group| root.join(group).join(file)).collect();
        way.iter().filter_map(|bound| read_file_or_empty(bound).trim().parse::<u64>().ok()).collect()
    });
    // Version 1 writes "no limit" as a number near the largest one, so very large numbers are ignored.
    bounds.filter(|bound| *bound < 1 << 60).min()
}

/// The part of the process's limit that is left beside the memory that it uses now.
fn remaining(limit: Resource, used: &str) -> Option<u64> {
    let most = getrlimit(limit).current?;
    Some(most.saturating_sub(parse_kib_line(&read_file_or_empty("/proc/self/status"), used)?))
}

/// Reads a line such as `MemTotal:  16384 kB`, in bytes.
fn parse_kib_line(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn write_cgroup_files(files: &[(&str, &str)]) -> TempDir {
        let folder = TempDir::new().expect("a folder");
        for (file, text) in files {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().expect("below")).expect("a folder");
            fs::write(file, text).expect("a file");
        }
        folder
    }

    /// The lowest memory limit of a control group and the groups above it applies.
    #[test]
    fn lowest_cgroup_limit_applies() {
        for (files, own, bound) in [
            (&[("memory.max", "max\n")][..], "0::/\n", None),
            (&[("memory.max", "536870912\n")], "0::/\n", Some(536_870_912)),
            (&[("a/memory.max", "300\n"), ("a/b/memory.max", "max\n")], "0::/a/b\n", Some(300)),
            (&[("a/memory.max", "300\n"), ("a/b/memory.max", "200\n")], "0::/a/b\n", Some(200)),
            (&[("memory/memory.limit_in_bytes", "9223372036854771712\n")], "5:cpu,memory:/x\n", None),
            (&[("memory/x/memory.limit_in_bytes", "400\n")], "3:cpu:/\n5:cpu,memory:/x\n", Some(400)),
            (&[("memory/memory.limit_in_bytes", "500\n")], "5:memory:/docker/1\n0::/\n", Some(500)),
            (&[], "", None),
        ] {
            let mounted = write_cgroup_files(files);
            assert_eq!(cgroup_limit(mounted.path(), own), bound, "{files:?} {own:?}");
        }
    }

    #[test]
    fn memory_allowance_is_always_found() {
        let DefaultMemoryLimit { bytes, source: of } = memory_allowance();
        assert!(bytes as u64 >= LEAST && !of.is_empty());
        assert_eq!(parse_kib_line("MemFree: 1 kB\nMemTotal:  2 kB\n", "MemTotal:"), Some(2048));
    }
}
