//! An operation of `once: {store: zookeeper}` was written down, its issuer did not hear so, and the server refuses to
//! show it. The operation was not sent, and that is written down as soon as possible. If something else stands in its
//! place, or nothing can be read, no session is kept open for that.

use std::cell::Cell;

use fencegate_lock::{
    idempotency::{OperationOutcome, error::AdmitOperationError, record::OperationState},
    session::client::{MultiOp, NodeKind, ZkClient, ZkConnector, ZkError},
};
use fencegate_policies::plan::Hold;
use fencegate_tests::memory::{EnsembleSettings, SimEnsemble};
use tokio::time::{sleep, timeout};

use super::fixture::{T, operation, place, stored_state};
use crate::{
    faulty_client::{
        FaultInjector, FaultyClient, LockSide, RequestFate, SessionRequest, throttled, unanswered,
    },
    simulated_time,
};

/// The next operation is written down, but the answer is lost. The first look at the operation is refused.
fn loses_the_word(asked: SessionRequest<'_>, lost: &Cell<bool>, refused: &Cell<bool>) -> RequestFate {
    let is_operation = |path: &str| path.contains("/ops/");
    match asked {
        SessionRequest::Commit { steps } if !lost.get() => {
            let admits =
                |step: &MultiOp<'_>| matches!(step, MultiOp::Create { path, .. } if is_operation(path));
            if !steps.iter().any(admits) {
                return RequestFate::Passes;
            }
            lost.set(true);
            RequestFate::Done(unanswered())
        }
        SessionRequest::Data { path } if is_operation(path) && !refused.replace(true) => {
            RequestFate::Refused(throttled())
        }
        _ => RequestFate::Passes,
    }
}

#[test]
fn what_was_written_down_unheard_and_not_sent_is_taken_back() {
    simulated_time::run(async {
        let (ensemble, doctor) = (SimEnsemble::start(EnsembleSettings::default()), FaultInjector::new());
        let library = FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
        let locks = LockSide::new(library).await;
        let tenure = locks.acquire(&["account/1"], Hold::Strict).await.expect("free");
        // An earlier operation makes the folder.
        let before = locks.keeper.admit(operation(1, &tenure)).await.expect("new");
        before.complete(OperationOutcome::NotExecuted).await;

        let wanted = operation(2, &tenure);
        let (lost, refused) = (Cell::new(false), Cell::new(false));
        doctor.set_rule(move |asked| loses_the_word(asked, &lost, &refused));
        let told = locks.keeper.admit(wanted.clone()).await.map(drop);
        assert!(matches!(told, Err(AdmitOperationError::Service(_))), "nothing may be sent: {told:?}");
        let settled = async {
            while !matches!(stored_state(&ensemble, &wanted).await.0, OperationState::Aborted { .. }) {
                sleep(T / 10).await;
            }
        };
        let settled = timeout(T * 5, settled).await.is_ok();
        assert!(
            settled,
            "unknown for ever, and nothing was sent: {:?}",
            stored_state(&ensemble, &wanted).await.0
        );
        let repeat = locks.keeper.admit(wanted).await.expect("nothing came of the one before");
        repeat.complete(OperationOutcome::NotExecuted).await;
        tenure.mark_settled();
        drop(tenure);
        locks.stop().await;
    });
}

/// The first look is refused, so the issuer does not know whether the operation was written down. Every further look
/// meets `then`. A gateway that stops closes its session nevertheless.
fn stops_although_it_is_unsettled(then: RequestFate) {
    simulated_time::run(async {
        let (ensemble, doctor) = (SimEnsemble::start(EnsembleSettings::default()), FaultInjector::new());
        let library = FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
        let locks = LockSide::new(library).await;
        let session = ensemble.sessions();
        let tenure = locks.acquire(&["account/1"], Hold::Strict).await.expect("free");
        let before = locks.keeper.admit(operation(1, &tenure)).await.expect("new");
        before.complete(OperationOutcome::NotExecuted).await;

        let wanted = operation(2, &tenure);
        let other = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
        other.create(&place(&wanted), b"of another kind", NodeKind::Persistent).await.expect("made");
        other.close().await;
        let looks = Cell::new(0);
        doctor.set_rule(move |asked| match asked {
            SessionRequest::Data { path } if path.contains("/ops/") => match looks.replace(looks.get() + 1) {
                0 => RequestFate::Refused(ZkError::SessionEnded),
                _ => then.clone(),
            },
            _ => RequestFate::Passes,
        });
        let told = locks.keeper.admit(wanted).await.map(drop);
        assert!(matches!(told, Err(AdmitOperationError::Service(_))), "nothing may be sent: {told:?}");
        tenure.mark_settled();
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
    stops_although_it_is_unsettled(RequestFate::Passes);
}

#[test]
fn an_operation_that_cannot_be_looked_for_keeps_no_session_from_being_closed() {
    stops_although_it_is_unsettled(RequestFate::Refused(throttled()));
}
