//! An operation of `once: {store: zookeeper}` was written down, its issuer did not hear so, and the server refuses to
//! show it. The operation was not sent, and that is written down as soon as possible. If something else stands in its
//! place, or nothing can be read, no session is kept open for that.

use std::cell::Cell;

use fencegate_lock::{
    once::{Came, denied::Denied, record::State},
    session::link::{Connect, Fault, Kind, Link, Step},
};
use fencegate_policies::plan::Hold;
use fencegate_tests::memory::{Ensemble, Settings};
use tokio::time::{sleep, timeout};

use super::stage::{T, operation, place, written};
use crate::{
    doctored::{Asked, Doctor, Fate, Library, Locks, throttled, unanswered},
    simulated,
};

/// The next operation is written down, but the answer is lost. The first look at the operation is refused.
fn loses_the_word(asked: Asked<'_>, lost: &Cell<bool>, refused: &Cell<bool>) -> Fate {
    let is_operation = |path: &str| path.contains("/ops/");
    match asked {
        Asked::Commit { steps } if !lost.get() => {
            let admits = |step: &Step<'_>| matches!(step, Step::Create { path, .. } if is_operation(path));
            if !steps.iter().any(admits) {
                return Fate::Passes;
            }
            lost.set(true);
            Fate::Done(unanswered())
        }
        Asked::Data { path } if is_operation(path) && !refused.replace(true) => Fate::Refused(throttled()),
        _ => Fate::Passes,
    }
}

#[test]
fn what_was_written_down_unheard_and_not_sent_is_taken_back() {
    simulated::run(async {
        let (ensemble, doctor) = (Ensemble::start(Settings::default()), Doctor::new());
        let library = Library { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
        let locks = Locks::over(library).await;
        let tenure = locks.acquire(&["account/1"], Hold::Strict).await.expect("free");
        // An earlier operation makes the folder.
        let before = locks.keeper.admit(operation(1, &tenure)).await.expect("new");
        before.came(Came::Nothing).await;

        let wanted = operation(2, &tenure);
        let (lost, refused) = (Cell::new(false), Cell::new(false));
        doctor.rules(move |asked| loses_the_word(asked, &lost, &refused));
        let told = locks.keeper.admit(wanted.clone()).await.map(drop);
        assert!(matches!(told, Err(Denied::Service(_))), "nothing may be sent: {told:?}");
        let settled = async {
            while !matches!(written(&ensemble, &wanted).await.0, State::Aborted { .. }) {
                sleep(T / 10).await;
            }
        };
        let settled = timeout(T * 5, settled).await.is_ok();
        assert!(settled, "unknown for ever, and nothing was sent: {:?}", written(&ensemble, &wanted).await.0);
        let repeat = locks.keeper.admit(wanted).await.expect("nothing came of the one before");
        repeat.came(Came::Nothing).await;
        tenure.known();
        drop(tenure);
        locks.stop().await;
    });
}

/// The first look is refused, so the issuer does not know whether the operation was written down. Every further look
/// meets `then`. A gateway that stops closes its session nevertheless.
fn stops_although_it_is_unsettled(then: Fate) {
    simulated::run(async {
        let (ensemble, doctor) = (Ensemble::start(Settings::default()), Doctor::new());
        let library = Library { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
        let locks = Locks::over(library).await;
        let session = ensemble.sessions();
        let tenure = locks.acquire(&["account/1"], Hold::Strict).await.expect("free");
        let before = locks.keeper.admit(operation(1, &tenure)).await.expect("new");
        before.came(Came::Nothing).await;

        let wanted = operation(2, &tenure);
        let other = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
        other.create(&place(&wanted), b"of another kind", Kind::Persistent).await.expect("made");
        other.close().await;
        let looks = Cell::new(0);
        doctor.rules(move |asked| match asked {
            Asked::Data { path } if path.contains("/ops/") => match looks.replace(looks.get() + 1) {
                0 => Fate::Refused(Fault::Over),
                _ => then.clone(),
            },
            _ => Fate::Passes,
        });
        let told = locks.keeper.admit(wanted).await.map(drop);
        assert!(matches!(told, Err(Denied::Service(_))), "nothing may be sent: {told:?}");
        tenure.known();
        drop(tenure);
        // Stops in the middle of a pause. Pauses end at round parts of a second.
        sleep(T + T / 7).await;
        assert_eq!(ensemble.sessions(), session, "it is the same one");
        locks.stop().await;
        assert!(ensemble.sessions().is_empty(), "left to its timeout");
    });
}

#[test]
fn what_stands_in_the_place_of_an_operation_and_cannot_be_read_is_not_waited_for() {
    stops_although_it_is_unsettled(Fate::Passes);
}

#[test]
fn an_operation_that_cannot_be_looked_for_keeps_no_session_from_being_closed() {
    stops_although_it_is_unsettled(Fate::Refused(throttled()));
}
