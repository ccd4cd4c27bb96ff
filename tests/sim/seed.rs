//! The seed of a run: another one each time, and said, so that a failure can be repeated.

/// `FENCEGATE_SEED` if it is set.
pub(super) fn of_this_run(test: &str) -> u64 {
    let wanted = std::env::var("FENCEGATE_SEED").ok();
    let seed = wanted.map_or_else(random, |text| text.parse().expect("FENCEGATE_SEED is a number"));
    eprintln!("{test}: FENCEGATE_SEED={seed}");
    seed
}

fn random() -> u64 {
    getrandom::u64().expect("the kernel gives random bytes once it has booted")
}
