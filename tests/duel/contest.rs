//! One contestant under all schedules, each time with an account of its own, and what is asserted of it.

use std::{fs, time::SystemTime};

use fencegate_tests::{
    duel::{Bout, Contestant, Expected, Report},
    scratch,
};

use crate::{
    account::{Account, Compares},
    bout::{Side, fought},
    clients::{Clients, Program},
    schedule::Schedule,
};

/// The report, in the build folder.
pub(crate) fn report() -> Report {
    let folder = scratch::binaries().with_file_name("duel");
    fs::create_dir_all(&folder).expect("the target directory can be written");
    Report::open(folder.join("report.json")).expect("a report, or none")
}

/// Contestants whose clients take the locks of a library themselves.
pub(crate) async fn clients_fight(contestant: Contestant, program: impl Fn() -> Program, server: String) {
    let start = async |account: &Account| {
        Clients::start(program(), server.clone(), &[account.address], "/pay/7").await
    };
    fight(contestant, Compares::Nothing, start).await;
}

/// # Panics
/// If the result breaks an assertion. The report is written before.
pub(crate) async fn fight<S: Side>(
    contestant: Contestant,
    compares: Compares,
    start: impl AsyncFn(&Account) -> S,
) {
    let mut bouts = Vec::new();
    for schedule in Schedule::all() {
        let account = Account::open(compares).await.expect("a free port");
        let side = start(&account).await;
        let bout = fought(side, &account, &schedule).await;
        println!("{}: {bout:?}", contestant.name());
        bouts.push(bout);
    }
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    report().replace(contestant, &date[.."2026-01-31".len()], &bouts).expect("the report can be written");
    let complaints: Vec<_> = bouts.iter().filter_map(|bout| complaint(contestant, bout)).collect();
    assert!(complaints.is_empty(), "{}: {complaints:#?}", contestant.name());
}

/// The assertion that a bout breaks, if there is one.
fn complaint(contestant: Contestant, bout: &Bout) -> Option<String> {
    let harm = [bout.overlaps, bout.lost, bout.stale] != [0; 3];
    let everywhere = bout.taken_over == bout.pauses;
    let wrong = match contestant.expected() {
        Expected::Violated => (!everywhere || bout.stale == 0).then_some("not exercised"),
        Expected::Holds | Expected::Waits if harm => Some("harm was done"),
        Expected::Holds => (!everywhere || bout.refused < bout.pauses).then_some("not exercised"),
        Expected::Waits => (bout.taken_over > 0).then_some("somebody was let in"),
    };
    wrong.map(|wrong| format!("{wrong}, seed {}: {bout:?}", bout.seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(contestant: Contestant, change: fn(&mut Bout)) -> bool {
        let (taken_over, stale, refused) = match contestant.expected() {
            Expected::Violated => (2, 1, 0),
            Expected::Holds => (2, 0, 2),
            Expected::Waits => (0, 0, 0),
        };
        let mut bout = Bout { executions: 10, pauses: 2, taken_over, stale, refused, ..Bout::default() };
        change(&mut bout);
        complaint(contestant, &bout).is_none()
    }

    #[test]
    fn what_was_not_exercised_is_no_result() {
        assert!(passes(Contestant::Kazoo, |_| ()) && passes(Contestant::Guard, |_| ()));
        assert!(!passes(Contestant::Kazoo, |bout| bout.stale = 0));
        assert!(!passes(Contestant::Kazoo, |bout| bout.taken_over = 1));
        assert!(!passes(Contestant::Guard, |bout| bout.taken_over = 1));
        assert!(!passes(Contestant::Guard, |bout| bout.refused = 1));
    }

    #[test]
    fn nothing_may_happen_where_somebody_compares_or_waits() {
        assert!(passes(Contestant::Delay, |_| ()));
        assert!(!passes(Contestant::Delay, |bout| bout.taken_over = 1));
        for contestant in [Contestant::Guard, Contestant::Upstream, Contestant::Delay] {
            assert!(!passes(contestant, |bout| bout.overlaps = 1));
            assert!(!passes(contestant, |bout| bout.lost = 1));
            assert!(!passes(contestant, |bout| bout.stale = 1));
        }
    }
}
