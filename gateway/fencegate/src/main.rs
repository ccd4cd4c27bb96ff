//! The one binary.

use std::process::ExitCode;

/// A request takes and gives back some thirty pieces of memory, a few of which are of 8 KiB. This allocator keeps those of each thread
/// ready for it.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _armed = fencegate_process::failpoint::arm_from_env();
    fencegate::cli::run()
}
