//! An operation of `once: {store: zookeeper}` whose admission was recorded without an answer, while the server
//! refuses to show the record. The operation is not sent, and this is recorded as soon as possible. If another
//! record is in its place, or none can be read, the session is closed nevertheless.

use std::cell::Cell;

use fencegate_idempotency::{OperationOutcome, error::AdmitOperationError, record::OperationState};
use fencegate_policies::plan::LockReusePolicy;
use fencegate_tests::memory::{EnsembleSettings, SimEnsemble};
use fencegate_zookeeper::session::client::{MultiOp, NodeCreateMode, ZkClient, ZkConnector, ZkError};
use tokio::time::{sleep, timeout};

use super::fixture::{T, operation, record_path, stored_state};
use crate::{
    faulty_client::{
        FaultInjector, FaultyClient, GatewayLockStack, SessionRequest, ZkRequestFate, throttled, unanswered,
    },
    simulated_time,
};

/// The fates of requests: the next record of an operation is written, but its answer is lost, and the first read of
/// a record is refused.
fn loses_the_word(asked: SessionRequest<'_>, lost: &Cell<bool>, refused: &Cell<bool>) -> ZkRequestFate {
    let is_operation = |path: &str| path.contains("/ops/");
    match asked {
        SessionRequest::Commit { steps } if !lost.get() => {
            let admits =
                |step: &MultiOp<'_>| matches!(step, MultiOp::Create { path, .. } if is_operation(path));
            if !steps.iter().any(admits) {
                return ZkRequestFate::Passes;
            }
            lost.set(true);
            ZkRequestFate::Done(unanswered())
        }
        SessionRequest::Data { path } if is_operation(path) && !refused.replace(true) => {
            ZkRequestFate::Refused(throttled())
        }
        _ => ZkRequestFate::Passes,
    }
}

/// An operation whose admission was recorded without an answer, and which was not sent, is recorded as aborted.
#[test]
fn unsent_unanswered_admission_is_aborted() {
    simulated_time::run(async {
        let ensemble = SimEnsemble::start(EnsembleSettings::default());
        let doctor = FaultInjector::new();
        let library = FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
        let locks = GatewayLockStack::new(library).await;
        let tenure = locks.acquire(&["account/1"], LockReusePolicy::Strict).await.expect("free");
        // An earlier operation creates the folder of the records.
        let before = locks.keeper.admit_operation(operation(1, &tenure)).await.expect("new");
        before.complete(OperationOutcome::NotExecuted).await;

        let wanted = operation(2, &tenure);
        let lost = Cell::new(false);
        let refused = Cell::new(false);
        doctor.set_rule(move |request| loses_the_word(request, &lost, &refused));
        let result = locks.keeper.admit_operation(wanted.clone()).await.map(drop);
        assert!(matches!(result, Err(AdmitOperationError::Service(_))), "nothing may be sent: {result:?}");
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
        let repeat = locks.keeper.admit_operation(wanted).await.expect("nothing came of the one before");
        repeat.complete(OperationOutcome::NotExecuted).await;
        tenure.mark_upstream_settled();
        drop(tenure);
        locks.stop().await;
    });
}

/// Asserts that a gateway that stops closes its session, although it could not find out whether an operation was
/// recorded: the first read of the record is refused, and every further read has the fate `then`.
fn assert_stops_while_unsettled(then: ZkRequestFate) {
    simulated_time::run(async {
        let ensemble = SimEnsemble::start(EnsembleSettings::default());
        let doctor = FaultInjector::new();
        let library = FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
        let locks = GatewayLockStack::new(library).await;
        let session = ensemble.sessions();
        let tenure = locks.acquire(&["account/1"], LockReusePolicy::Strict).await.expect("free");
        let before = locks.keeper.admit_operation(operation(1, &tenure)).await.expect("new");
        before.complete(OperationOutcome::NotExecuted).await;

        let wanted = operation(2, &tenure);
        let other = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
        other
            .create(&record_path(&wanted), b"of another kind", NodeCreateMode::Persistent)
            .await
            .expect("made");
        other.close().await;
        let looks = Cell::new(0);
        doctor.set_rule(move |request| match request {
            SessionRequest::Data { path } if path.contains("/ops/") => match looks.replace(looks.get() + 1) {
                0 => ZkRequestFate::Refused(ZkError::SessionEnded),
                _ => then.clone(),
            },
            _ => ZkRequestFate::Passes,
        });
        let result = locks.keeper.admit_operation(wanted).await.map(drop);
        assert!(matches!(result, Err(AdmitOperationError::Service(_))), "nothing may be sent: {result:?}");
        tenure.mark_upstream_settled();
        drop(tenure);
        // Stop between two attempts, which happen at round fractions of a second.
        sleep(T + T / 7).await;
        assert_eq!(ensemble.sessions(), session, "it is the same one");
        locks.stop().await;
        assert!(ensemble.sessions().is_empty(), "left to its timeout");
    });
}

/// A session is closed although another record is in the place of an unsettled operation, and cannot be read.
#[test]
fn stop_ignores_unreadable_record() {
    assert_stops_while_unsettled(ZkRequestFate::Passes);
}

/// A session is closed although the read of an unsettled operation is refused.
#[test]
fn stop_proceeds_when_record_read_fails() {
    assert_stops_while_unsettled(ZkRequestFate::Refused(throttled()));
}
