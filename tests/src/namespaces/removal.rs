//! Removes the network namespaces of a process when the process has ended, even if it was killed.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

/// The first part of the names of all namespaces of tests. The process id of the test follows.
pub(super) const OURS: &str = "fencegate-test-";

/// A child process that removes namespaces when this value is dropped, or when this process ends.
pub(super) struct NamespaceCleanup(Child);

/// The script of the child. `read` returns when this process ends, because the kernel then closes the pipe. A
/// deleted namespace disappears with its interfaces when it has no process left.
const WAITS: &str = r#"read -r _; for name in "$@"; do ip netns del "$name"; done 2>/dev/null"#;

impl NamespaceCleanup {
    /// # Panics
    /// If there is no `sh`.
    pub(super) fn start(names: &[String]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", WAITS, "sh"]).args(names).stdin(Stdio::piped()).stdout(Stdio::null());
        // The child has a process group of its own, so that Ctrl-C in a terminal does not end the child.
        Self(command.process_group(0).spawn().expect("sh"))
    }
}

impl Drop for NamespaceCleanup {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // `wait` fails only if another caller has already waited for the child.
        drop(self.0.wait());
    }
}

/// Removes the namespaces of tests that were killed together with their cleanup.
pub(super) fn remove_stale_namespaces() {
    for place in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = place.file_name().to_string_lossy().into_owned();
        if is_stale_namespace(&name) {
            // A failure is ignored, because another process may remove the namespace at the same time.
            drop(Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status());
        }
    }
}

/// True if the process that made this namespace has ended.
fn is_stale_namespace(name: &str) -> bool {
    let owner = name.strip_prefix(OURS).and_then(|rest| rest.split('-').next());
    owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists())
}
