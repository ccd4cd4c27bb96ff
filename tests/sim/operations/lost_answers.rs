//! Answers to writes of a record that are lost, with and without their effect.

use std::{cell::Cell, rc::Rc};

use fencegate_lock::{
    once::{Came, denied::Denied, record::State},
    session::link::Step,
};

use tokio::time::timeout;

use super::stage::{Stage, T, place, remembered};
use crate::{
    doctored::{Asked, Fate, throttled, unanswered},
    simulated,
};

/// Whether a transaction writes the record of an operation.
fn writes_a_record(asked: Asked<'_>) -> bool {
    let of_a_record = |step: &Step<'_>| match step {
        Step::Create { path, .. } | Step::Set { path, .. } => path.contains("/ops/"),
        Step::Check { .. } | Step::Delete { .. } => false,
    };
    matches!(asked, Asked::Commit { steps } if steps.iter().any(of_a_record))
}

impl Stage {
    /// This happens to the next `times` writes of a record. Returns how many writes there were since.
    fn writes_meet(&self, times: u32, fate: Fate) -> Rc<Cell<u32>> {
        let writes = Rc::new(Cell::new(0));
        let counted = writes.clone();
        self.doctor.rules(move |asked| {
            if !writes_a_record(asked) {
                return Fate::Passes;
            }
            counted.set(counted.get() + 1);
            if counted.get() <= times { fate.clone() } else { Fate::Passes }
        });
        writes
    }
}

#[test]
fn an_admission_is_sent_whether_or_not_its_answer_was_lost() {
    for (fate, writes) in [(Fate::Done(unanswered()), 1), (Fate::Refused(unanswered()), 2)] {
        simulated::run(async {
            let stage = Stage::set().await;
            // Makes the folder.
            stage.admit(&stage.operation(1)).await.expect("new").came(Came::Nothing).await;
            let wanted = stage.operation(2);
            let seen = stage.writes_meet(1, fate.clone());
            let running = stage.admit(&wanted).await.expect("new");
            assert_eq!(seen.get(), writes, "{fate:?}");
            assert_eq!(stage.written(&wanted).await, (State::Admitted, 0));
            running.came(Came::Done(200)).await;
            let (state, version) = stage.written(&wanted).await;
            assert!(matches!(state, State::Done { .. }) && version == 1, "{state:?} {version}");
            stage.leave().await;
        });
    }
}

#[test]
fn what_is_admitted_again_unheard_is_ours_under_its_new_version() {
    simulated::run(async {
        let stage = Stage::set().await;
        let wanted = stage.operation(1);
        stage.admit(&wanted).await.expect("new").came(Came::Nothing).await;
        stage.writes_meet(1, Fate::Done(unanswered()));
        let running = stage.admit(&wanted).await.expect("nothing was sent");
        assert_eq!(stage.written(&wanted).await, (State::Admitted, 3));
        running.came(Came::Done(200)).await;
        let (state, version) = stage.written(&wanted).await;
        assert!(matches!(state, State::Done { .. }) && version == 4, "{state:?} {version}");
        stage.leave().await;
    });
}

#[test]
fn an_outcome_is_written_once_whether_or_not_its_answer_was_lost() {
    for (fate, writes) in
        [(Fate::Done(unanswered()), 1), (Fate::Refused(unanswered()), 2), (Fate::Refused(throttled()), 2)]
    {
        simulated::run(async {
            let stage = Stage::set().await;
            let wanted = stage.operation(1);
            let running = stage.admit(&wanted).await.expect("new");
            let seen = stage.writes_meet(1, fate.clone());
            running.came(Came::Done(200)).await;
            // A pause lies between two tries, and the answer does not wait for the second one.
            tokio::time::sleep(T * 5).await;
            assert_eq!(seen.get(), writes, "{fate:?}");
            let (state, version) = stage.written(&wanted).await;
            assert!(matches!(state, State::Done { .. }) && version == 1, "{fate:?}: {state:?} {version}");
            assert_eq!(stage.denied(&wanted).await, Denied::Done { status: Some(200) });
            stage.leave().await;
        });
    }
}

#[test]
fn a_server_that_refuses_to_write_a_record_refuses_the_request() {
    simulated::run(async {
        let stage = Stage::set().await;
        stage.admit(&stage.operation(1)).await.expect("new").came(Came::Nothing).await;
        stage.writes_meet(1, Fate::Refused(throttled()));
        let denied = stage.denied(&stage.operation(2)).await;
        assert!(matches!(denied, Denied::Service(_)), "{denied:?}");
        assert_eq!(remembered(&stage.ensemble, &stage.operation(2)).await, None);
        stage.leave().await;
    });
}

/// The record could be admitted again, and was forgotten between our look at it and our write.
#[test]
fn a_record_that_goes_while_it_is_admitted_again_is_made_anew() {
    simulated::run(async {
        let stage = Stage::set().await;
        let wanted = stage.operation(1);
        stage.admit(&wanted).await.expect("new").came(Came::Nothing).await;
        let (ensemble, path, gone) = (stage.ensemble.clone(), place(&wanted), Cell::new(false));
        let admits_again = |step: &Step<'_>| matches!(step, Step::Set { path, .. } if path.contains("/ops/"));
        stage.doctor.rules(move |asked| {
            if matches!(asked, Asked::Commit { steps } if steps.iter().any(admits_again))
                && !gone.replace(true)
            {
                ensemble.steal(&path);
            }
            Fate::Passes
        });
        let running = stage.admit(&wanted).await.expect("nothing was sent");
        assert_eq!(stage.written(&wanted).await, (State::Admitted, 0));
        stage.doctor.rules(|_| Fate::Passes);
        running.came(Came::Done(200)).await;
        stage.leave().await;
    });
}

/// Neither the answer to the write was heard, nor that to the first looks at what became of it.
#[test]
fn a_look_that_is_not_answered_is_taken_again_while_the_session_lives() {
    simulated::run(async {
        let stage = Stage::set().await;
        let wanted = stage.operation(1);
        let looks = Rc::new(Cell::new(0));
        let (counted, path) = (looks.clone(), place(&wanted));
        stage.doctor.rules(move |asked| match asked {
            Asked::Data { path: read } if read == path && counted.get() < 3 => {
                counted.set(counted.get() + 1);
                Fate::Refused(unanswered())
            }
            _ if writes_a_record(asked) && counted.get() == 0 => Fate::Done(unanswered()),
            _ => Fate::Passes,
        });
        let running = stage.admit(&wanted).await.expect("new");
        assert_eq!((looks.get(), stage.written(&wanted).await), (3, (State::Admitted, 0)));
        running.came(Came::Done(200)).await;
        stage.leave().await;
    });
}

/// The client library has died: each request fails like this, for ever. Nothing was sent, and the next session says so.
#[test]
fn an_admission_over_a_library_that_is_gone_ends_with_the_session() {
    simulated::run(async {
        let stage = Stage::set().await;
        let wanted = stage.operation(1);
        stage.doctor.end_task(unanswered());
        let told = timeout(T * 10, stage.denied(&wanted)).await.expect("it does not look for ever");
        assert!(matches!(told, Denied::Service(_)), "{told:?}");
        drop(stage);
    });
}
