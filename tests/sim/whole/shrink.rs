//! Removes the events that a failure does not need, so that a reader can understand the failure.

use super::sim_run::SimRun;

/// Returns the same failure with fewer events. The search removes halves first and single events last.
pub(super) fn shrink(failing: &SimRun, wrong: &[String]) -> SimRun {
    let mut least = failing.clone();
    let mut size = least.events() / 2;
    while size > 0 {
        let mut at = 0;
        let mut left_something_out = false;
        while at < least.events() {
            let events = least.numbers().into_iter().skip(at).take(size);
            let less = least.without_events(events);
            if fails_same_way(&less.run().wrong, wrong) {
                least = less;
                left_something_out = true;
            } else {
                at += size;
            }
        }
        // An event may be needed only by another event, so after each removal all single events are tried again.
        size = if size == 1 && left_something_out { 1 } else { size / 2 };
    }
    least
}

/// True if a violation of the same kind remains.
fn fails_same_way(wrong: &[String], before: &[String]) -> bool {
    let kind = |wrong: &String| wrong.split([' ', '(']).next().unwrap_or_default().to_owned();
    wrong.iter().any(|wrong| before.iter().any(|before| kind(before) == kind(wrong)))
}

/// Shrinks a failing run, and describes it for the developer.
pub(super) fn describe(failing: &SimRun, wrong: &[String]) -> String {
    describe_shrunk(failing, wrong, &shrink(failing, wrong))
}

/// Describes a failing run and its shrunk form for the developer.
pub(super) fn describe_shrunk(failing: &SimRun, wrong: &[String], least: &SimRun) -> String {
    let played = least.clone().with_log().run();
    format!(
        "{}\nFENCEGATE_SEED={} FENCEGATE_CASES=1 fails: {wrong:#?}\nof its {} events these do: {:#?}\n{}",
        played.chronicle,
        failing.seed,
        failing.events(),
        played.wrong,
        least.schedule(),
    )
}
