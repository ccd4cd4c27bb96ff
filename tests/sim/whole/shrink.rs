//! Leaves out what a failure does not take, so that somebody can read what it does.

use super::played::Play;

/// The same failure with as few events as leaving them out finds: in halves first, one by one at last.
pub(super) fn shrunk(failing: &Play, wrong: &[String]) -> Play {
    let mut least = failing.clone();
    let mut size = least.events() / 2;
    while size > 0 {
        let mut at = 0;
        let mut left_something_out = false;
        while at < least.events() {
            let events = least.numbers().into_iter().skip(at).take(size);
            let less = least.leaving_out(events);
            if fails_alike(&less.run().wrong, wrong) {
                least = less;
                left_something_out = true;
            } else {
                at += size;
            }
        }
        // One that is needed only by another one may go when that has gone.
        size = if size == 1 && left_something_out { 1 } else { size / 2 };
    }
    least
}

/// Something of the same kind is wrong.
fn fails_alike(wrong: &[String], before: &[String]) -> bool {
    let kind = |wrong: &String| wrong.split([' ', '(']).next().unwrap_or_default().to_owned();
    wrong.iter().any(|wrong| before.iter().any(|before| kind(before) == kind(wrong)))
}

/// For who has to find out why.
pub(super) fn told(failing: &Play, wrong: &[String]) -> String {
    let least = shrunk(failing, wrong);
    let played = least.clone().told().run();
    format!(
        "{}\nFENCEGATE_SEED={} FENCEGATE_CASES=1 fails: {wrong:#?}\nof its {} events these do: {:#?}\n{}",
        played.chronicle,
        failing.seed,
        failing.events(),
        played.wrong,
        least.schedule(),
    )
}
