//! The settings of a run from the environment: the seed, so that a failure can be repeated, and the number of cases.

/// The seed of `FENCEGATE_SEED`, or a new one. It is printed.
pub(crate) fn seed(test: &str) -> u64 {
    let seed = number("FENCEGATE_SEED").unwrap_or_else(|| getrandom::u64().expect("the kernel has booted"));
    eprintln!("{test}: FENCEGATE_SEED={seed}");
    seed
}

/// As [`seed`] if `FENCEGATE_CASES` is set, and otherwise `first`, so that each run of all tests plays the same
/// cases.
pub(crate) fn seed_from(first: u64, test: &str) -> u64 {
    if number("FENCEGATE_CASES").is_some() { seed(test) } else { first }
}

/// The number of `FENCEGATE_CASES`, or `usual` if it is not set.
pub(crate) fn cases(usual: u32) -> u32 {
    number("FENCEGATE_CASES").map_or(usual, |cases| cases.try_into().expect("a sensible number of cases"))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}
