//! The one binary.

use std::process::ExitCode;

/// A request allocates and frees some thirty pieces of memory, a few of them of 8 KiB. This allocator keeps the
/// pieces of each thread ready for reuse.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _armed = fencegate_process::failpoint::arm_from_env();
    fencegate::cli::run()
}
