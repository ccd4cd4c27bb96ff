//! The settings of a run from outside: the seed, so that a failure can be repeated, and the number of cases.

/// The seed from `FENCEGATE_SEED`, or a new one each time. It is printed.
pub(crate) fn seed(test: &str) -> u64 {
    let seed = number("FENCEGATE_SEED").unwrap_or_else(|| getrandom::u64().expect("the kernel has booted"));
    eprintln!("{test}: FENCEGATE_SEED={seed}");
    seed
}

/// As [`seed`], but without `FENCEGATE_CASES` the seed is `first`, so that each run of all tests plays the same cases.
pub(crate) fn seed_from(first: u64, test: &str) -> u64 {
    if number("FENCEGATE_CASES").is_some() { seed(test) } else { first }
}

/// `FENCEGATE_CASES`, else `usual`.
pub(crate) fn cases(usual: u32) -> u32 {
    number("FENCEGATE_CASES").map_or(usual, |cases| cases.try_into().expect("a sensible number of cases"))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}
