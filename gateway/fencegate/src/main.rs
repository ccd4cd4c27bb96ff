//! The one binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _armed = fencegate_process::failpoint::armed_by_environment();
    fencegate::cli::run()
}
