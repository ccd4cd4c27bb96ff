//! Writes of a record whose answers are lost, with and without their effect.

use std::{cell::Cell, rc::Rc};

use fencegate_idempotency::{OperationOutcome, error::AdmitOperationError, record::OperationState};
use fencegate_zookeeper::session::client::MultiOp;
use tokio::time::timeout;

use super::fixture::{OperationFixture, T, record_path, remembered_state};
use crate::{
    faulty_client::{SessionRequest, ZkRequestFate, throttled, unanswered},
    simulated_time,
};

/// True for a transaction that writes the record of an operation.
fn writes_a_record(asked: SessionRequest<'_>) -> bool {
    let of_a_record = |step: &MultiOp<'_>| match step {
        MultiOp::Create { path, .. } | MultiOp::Set { path, .. } => path.contains("/ops/"),
        MultiOp::Check { .. } | MultiOp::Delete { .. } => false,
    };
    matches!(asked, SessionRequest::Commit { steps } if steps.iter().any(of_a_record))
}

impl OperationFixture {
    /// Gives the next `times` writes of a record this fate. Returns the number of writes since the call.
    fn inject_into_writes(&self, times: u32, fate: ZkRequestFate) -> Rc<Cell<u32>> {
        let writes = Rc::new(Cell::new(0));
        let counted = writes.clone();
        self.doctor.set_rule(move |request| {
            if !writes_a_record(request) {
                return ZkRequestFate::Passes;
            }
            counted.set(counted.get() + 1);
            if counted.get() <= times { fate.clone() } else { ZkRequestFate::Passes }
        });
        writes
    }
}

/// An operation is admitted once if the answer to its write was lost, whether or not the write was done.
#[test]
fn admission_survives_lost_answer() {
    for (fate, writes) in [(ZkRequestFate::Done(unanswered()), 1), (ZkRequestFate::Refused(unanswered()), 2)]
    {
        simulated_time::run(async {
            let stage = OperationFixture::new().await;
            // Creates the folder of the records, so that the operation below makes one write.
            stage
                .admit(&stage.operation(1))
                .await
                .expect("new")
                .complete(OperationOutcome::NotExecuted)
                .await;
            let wanted = stage.operation(2);
            let seen = stage.inject_into_writes(1, fate.clone());
            let running = stage.admit(&wanted).await.expect("new");
            assert_eq!(seen.get(), writes, "{fate:?}");
            assert_eq!(stage.stored_state(&wanted).await, (OperationState::Admitted, 0));
            running.complete(OperationOutcome::Done(200)).await;
            let (state, version) = stage.stored_state(&wanted).await;
            assert!(matches!(state, OperationState::Done { .. }) && version == 1, "{state:?} {version}");
            stage.leave().await;
        });
    }
}

/// If the answer to a second admission is lost, the operation is admitted, under the new version of its record.
#[test]
fn unanswered_readmission_is_ours() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        stage.admit(&wanted).await.expect("new").complete(OperationOutcome::NotExecuted).await;
        stage.inject_into_writes(1, ZkRequestFate::Done(unanswered()));
        let running = stage.admit(&wanted).await.expect("nothing was sent");
        assert_eq!(stage.stored_state(&wanted).await, (OperationState::Admitted, 3));
        running.complete(OperationOutcome::Done(200)).await;
        let (state, version) = stage.stored_state(&wanted).await;
        assert!(matches!(state, OperationState::Done { .. }) && version == 4, "{state:?} {version}");
        stage.leave().await;
    });
}

/// An outcome is recorded exactly once, whether its first write was done without an answer, was lost, or was
/// refused.
#[test]
fn outcome_is_recorded_once() {
    for (fate, writes) in [
        (ZkRequestFate::Done(unanswered()), 1),
        (ZkRequestFate::Refused(unanswered()), 2),
        (ZkRequestFate::Refused(throttled()), 2),
    ] {
        simulated_time::run(async {
            let stage = OperationFixture::new().await;
            let wanted = stage.operation(1);
            let running = stage.admit(&wanted).await.expect("new");
            let seen = stage.inject_into_writes(1, fate.clone());
            running.complete(OperationOutcome::Done(200)).await;
            // Wait for the second attempt: a pause precedes it, and `complete` does not wait for it.
            tokio::time::sleep(T * 5).await;
            assert_eq!(seen.get(), writes, "{fate:?}");
            let (state, version) = stage.stored_state(&wanted).await;
            assert!(
                matches!(state, OperationState::Done { .. }) && version == 1,
                "{fate:?}: {state:?} {version}"
            );
            assert_eq!(stage.expect_denied(&wanted).await, AdmitOperationError::Done { status: Some(200) });
            stage.leave().await;
        });
    }
}

#[test]
fn refused_record_write_refuses_request() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        stage.admit(&stage.operation(1)).await.expect("new").complete(OperationOutcome::NotExecuted).await;
        stage.inject_into_writes(1, ZkRequestFate::Refused(throttled()));
        let denied = stage.expect_denied(&stage.operation(2)).await;
        assert!(matches!(denied, AdmitOperationError::Service(_)), "{denied:?}");
        assert_eq!(remembered_state(&stage.ensemble, &stage.operation(2)).await, None);
        stage.leave().await;
    });
}

/// A record that can be admitted again, but is removed between the gateway's read and its write, is created anew.
#[test]
fn record_lost_during_readmission_is_recreated() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        stage.admit(&wanted).await.expect("new").complete(OperationOutcome::NotExecuted).await;
        let ensemble = stage.ensemble.clone();
        let path = record_path(&wanted);
        let gone = Cell::new(false);
        let admits_again =
            |step: &MultiOp<'_>| matches!(step, MultiOp::Set { path, .. } if path.contains("/ops/"));
        stage.doctor.set_rule(move |request| {
            if matches!(request, SessionRequest::Commit { steps } if steps.iter().any(admits_again))
                && !gone.replace(true)
            {
                ensemble.delete_as_other_client(&path);
            }
            ZkRequestFate::Passes
        });
        let running = stage.admit(&wanted).await.expect("nothing was sent");
        assert_eq!(stage.stored_state(&wanted).await, (OperationState::Admitted, 0));
        stage.doctor.set_rule(|_| ZkRequestFate::Passes);
        running.complete(OperationOutcome::Done(200)).await;
        stage.leave().await;
    });
}

/// If the answers to the write and to the first reads of the record are lost, the read is repeated for as long as
/// the session lives.
#[test]
fn unanswered_read_retries_while_session_lives() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        let looks = Rc::new(Cell::new(0));
        let counted = looks.clone();
        let path = record_path(&wanted);
        stage.doctor.set_rule(move |request| match request {
            SessionRequest::Data { path: read } if read == path && counted.get() < 3 => {
                counted.set(counted.get() + 1);
                ZkRequestFate::Refused(unanswered())
            }
            _ if writes_a_record(request) && counted.get() == 0 => ZkRequestFate::Done(unanswered()),
            _ => ZkRequestFate::Passes,
        });
        let running = stage.admit(&wanted).await.expect("new");
        assert_eq!((looks.get(), stage.stored_state(&wanted).await), (3, (OperationState::Admitted, 0)));
        running.complete(OperationOutcome::Done(200)).await;
        stage.leave().await;
    });
}

/// If the client library has died, so that each request fails with this error, the operation is not admitted.
/// Nothing was sent, and the next session records that.
#[test]
fn admission_fails_when_zookeeper_client_died() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        stage.doctor.end_task(unanswered());
        let told = timeout(T * 10, stage.expect_denied(&wanted)).await.expect("it does not look for ever");
        assert!(matches!(told, AdmitOperationError::Service(_)), "{told:?}");
        drop(stage);
    });
}
