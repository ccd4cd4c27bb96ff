//! Removes network namespaces when their process has ended, however it has ended.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

/// Begins the names of all namespaces of tests. The process id of the test follows.
pub(super) const OURS: &str = "fencegate-test-";

/// A child that waits for our end, or for the end of this value, and removes namespaces then.
pub(super) struct NamespaceCleanup(Child);

/// The kernel closes our end of the pipe. A namespace goes when no process is left in it, and its interfaces go with it.
const WAITS: &str = r#"read -r _; for name in "$@"; do ip netns del "$name"; done 2>/dev/null"#;

impl NamespaceCleanup {
    /// # Panics
    /// If there is no `sh`.
    pub(super) fn start(names: &[String]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", WAITS, "sh"]).args(names).stdin(Stdio::piped()).stdout(Stdio::null());
        // Ctrl-C in a terminal is for us, and not for it.
        Self(command.process_group(0).spawn().expect("sh"))
    }
}

impl Drop for NamespaceCleanup {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It fails only where another caller has waited for it.
        drop(self.0.wait());
    }
}

/// Removes what killed tests have left behind.
pub(super) fn remove_stale_namespaces() {
    for place in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = place.file_name().to_string_lossy().into_owned();
        if is_stale_namespace(&name) {
            // Another process may be sweeping, too.
            drop(Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status());
        }
    }
}

/// Its process is gone.
fn is_stale_namespace(name: &str) -> bool {
    let owner = name.strip_prefix(OURS).and_then(|rest| rest.split('-').next());
    owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists())
}
