//! The one binary.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Each request makes some dozens of things that live as long as it does, a few of them of some kilobytes. The allocator of the
/// C library keeps those apart from the small ones, and merges and splits them anew each time: an eighth of all instructions.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _armed = fencegate_process::failpoint::armed_by_environment();
    fencegate::cli::run()
}
