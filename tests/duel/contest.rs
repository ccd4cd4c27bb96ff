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

/// In the folder of the build.
pub(crate) fn report() -> Report {
    let folder = scratch::binaries().with_file_name("duel");
    fs::create_dir_all(&folder).expect("the target directory can be written");
    Report::open(folder.join("report.json")).expect("a report, or none")
}

/// Clients that take the locks of one library themselves.
pub(crate) async fn clients_fight(contestant: Contestant, program: impl Fn() -> Program, server: String) {
    let start = async |account: &Account| {
        Clients::start(program(), server.clone(), &[account.address], "/pay/7").await
    };
    fight(contestant, Compares::Nothing, start).await;
}

/// # Panics
/// If it is not what is asserted of it, after the report was written.
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
    for bout in &bouts {
        judge(contestant, bout);
    }
}

fn judge(contestant: Contestant, bout: &Bout) {
    let everywhere = bout.taken_over == bout.pauses;
    let exercised = match contestant.expected() {
        Expected::Violated => everywhere && bout.stale > 0,
        Expected::Holds => everywhere && bout.refused >= bout.pauses,
        Expected::Told => true,
    };
    let of = format!("{}, seed {}", contestant.name(), bout.seed);
    if contestant.expected() == Expected::Holds {
        assert_eq!([bout.overlaps, bout.lost, bout.stale], [0; 3], "{of}: {bout:?}");
    }
    assert!(exercised, "not exercised: {of}: {bout:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(contestant: Contestant) -> Bout {
        let (stale, refused) = if contestant == Contestant::Guard { (0, 2) } else { (1, 0) };
        Bout { executions: 10, pauses: 2, taken_over: 2, stale, refused, ..Bout::default() }
    }

    fn passes(contestant: Contestant, change: fn(&mut Bout)) -> bool {
        let mut bout = good(contestant);
        change(&mut bout);
        std::panic::catch_unwind(|| judge(contestant, &bout)).is_ok()
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
    fn nothing_may_happen_where_somebody_compares() {
        assert!(!passes(Contestant::Guard, |bout| bout.overlaps = 1));
        assert!(!passes(Contestant::Guard, |bout| bout.lost = 1));
        assert!(!passes(Contestant::Guard, |bout| bout.stale = 1));
    }
}
