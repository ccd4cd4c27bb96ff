//! The names under which the binary starts itself anew, as another process around a command.

/// The parent of a command, as `ps` shows it.
pub(super) const WATCHMAN: &str = "fencegate-watchman";
/// What becomes the command.
pub(super) const BECOMING: &str = "fencegate-becoming";
/// Ourselves, also when our file was replaced since.
pub(super) const OURSELVES: &str = "/proc/self/exe";
