//! The amount of work that a promise does to show its claim: enough in each run, and more with `tests/run --faults`.

use std::env;

/// This variable is set where there is time for the full amount.
pub const VARIABLE: &str = "FENCEGATE_TEST_THOROUGH";

/// A number of requests, keys or clients: the first one in each run, the second one where there is time.
#[must_use]
pub fn effort(each_run: usize, thorough: usize) -> usize {
    if env::var_os(VARIABLE).is_some() { thorough } else { each_run }
}
