//! The one binary.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// That of the C library takes locks and walks lists for each of the many small pieces that a request is made of.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _armed = fencegate::failpoint::armed_by_environment();
    fencegate::cli::run()
}
