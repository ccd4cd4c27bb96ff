//! How much a promise does to show what it says: enough in each run, and all of it where `tests/run --faults` asks for it.

use std::env;

/// Set where there is time for all.
pub const VARIABLE: &str = "FENCEGATE_TEST_THOROUGH";

/// A number of requests, keys or clients: the first one in each run, the second one where there is time.
#[must_use]
pub fn effort(each_run: usize, thorough: usize) -> usize {
    if env::var_os(VARIABLE).is_some() { thorough } else { each_run }
}
