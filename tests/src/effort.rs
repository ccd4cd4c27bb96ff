//! The amount of work of a promise: enough in each run, and more with `tests/run --faults`.

use std::env;

/// The environment variable that selects the full amount.
pub const VARIABLE: &str = "FENCEGATE_TEST_THOROUGH";

/// A number of requests, keys or clients: `thorough` if [`VARIABLE`] is set, otherwise `each_run`.
#[must_use]
pub fn effort(each_run: usize, thorough: usize) -> usize {
    if env::var_os(VARIABLE).is_some() { thorough } else { each_run }
}
