//! The binary `fencegate`.

use std::process::ExitCode;

/// A request allocates and frees some thirty blocks of memory, a few of them of 8 KiB. jemalloc keeps freed
/// blocks in a cache of each thread.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _armed = fencegate_process::failpoint::arm_from_env();
    fencegate::cli::run()
}
