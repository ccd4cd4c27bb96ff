//! What a run is told from outside: the seed, so that a failure can be repeated, and how much is to be tried.

/// `FENCEGATE_SEED`, else another one each time; it is said.
pub(crate) fn seed(test: &str) -> u64 {
    let seed = number("FENCEGATE_SEED").unwrap_or_else(|| getrandom::u64().expect("the kernel has booted"));
    eprintln!("{test}: FENCEGATE_SEED={seed}");
    seed
}

/// The same, where `FENCEGATE_CASES` asks for as many as somebody has time for; else `first`, so that each run of all tests plays the same.
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
