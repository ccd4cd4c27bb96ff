//! Answers to writes of a record that are lost, with and without their effect.

use std::{cell::Cell, rc::Rc};

use fencegate_lock::{
    once::{Came, denied::Denied, record::State},
    session::link::{Fault, Step},
};

use super::stage::{Stage, T, remembered};
use crate::{
    doctored::{Asked, Fate},
    simulated,
};

fn unheard() -> Fault {
    Fault::Ambiguous("the connection broke".into())
}

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
    for (fate, writes) in [(Fate::Done(unheard()), 1), (Fate::Refused(unheard()), 2)] {
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
        stage.writes_meet(1, Fate::Done(unheard()));
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
    let refused = || Fault::Refused("throttled".into());
    for (fate, writes) in
        [(Fate::Done(unheard()), 1), (Fate::Refused(unheard()), 2), (Fate::Refused(refused()), 2)]
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
        stage.writes_meet(1, Fate::Refused(Fault::Refused("throttled".into())));
        let denied = stage.denied(&stage.operation(2)).await;
        assert!(matches!(denied, Denied::Service(_)), "{denied:?}");
        assert_eq!(remembered(&stage.ensemble, &stage.operation(2)).await, None);
        stage.leave().await;
    });
}
