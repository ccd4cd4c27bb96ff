//! The names under which the binary starts itself again for a command.

/// The name of the parent of a command in `ps`.
pub(super) const WATCHMAN: &str = "fencegate-watchman";
/// The name of the process that becomes the command.
pub(super) const BECOMING: &str = "fencegate-becoming";
/// The path of the running binary, which also works if its file was replaced meanwhile.
pub(super) const OURSELVES: &str = "/proc/self/exe";
