//! Requests whose operation is already recorded: their answers, and when the operation may run again.

use fencegate_idempotency::{
    OperationOutcome, error::AdmitOperationError, quota::OperationQuotaOwner, record::OperationState,
};
use fencegate_policies::{operation::RequestFingerprint, plan::OperationQuota};

use super::fixture::{OperationFixture, T, gateway, id, operation, remembered_state};
use crate::{
    faulty_client::{FaultInjector, key},
    simulated_time,
};

/// A repeat of a done operation is not sent, and gets the recorded status.
#[test]
fn done_operation_is_not_resent() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        stage.admit(&wanted).await.expect("new").complete(OperationOutcome::Done(201)).await;
        assert_eq!(stage.expect_denied(&wanted).await, AdmitOperationError::Done { status: Some(201) });
        let (state, version) = stage.stored_state(&wanted).await;
        assert!(matches!(state, OperationState::Done { status: Some(201), .. }), "{state:?}");
        assert_eq!(version, 1, "its first outcome");
        stage.leave().await;
    });
}

/// An operation name that was used for a request with another body or other keys is refused.
#[test]
fn reused_operation_name_is_mismatch() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        stage.admit(&wanted).await.expect("new").complete(OperationOutcome::Done(200)).await;
        let mut other_body = wanted.clone();
        other_body.operation.fingerprint = RequestFingerprint::from_bytes([2; 32]);
        assert_eq!(stage.expect_denied(&other_body).await, AdmitOperationError::Mismatch);
        let mut other_key = wanted.clone();
        other_key.keys = vec![key("account/2")];
        assert_eq!(stage.expect_denied(&other_key).await, AdmitOperationError::Mismatch);
        // During a migration of locks one of both requests has an additional key, which is no mismatch.
        let mut migrated = wanted.clone();
        migrated.keys = vec![key("account/1"), key("konto/1")];
        assert_eq!(stage.expect_denied(&migrated).await, AdmitOperationError::Done { status: Some(200) });
        stage.leave().await;
    });
}

/// A repeat of a running operation is in progress. At another gateway, or after the operation was abandoned, its
/// outcome is unknown.
#[test]
fn abandoned_operation_is_unknown() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        let running = stage.admit(&wanted).await.expect("new");
        assert_eq!(stage.expect_denied(&wanted).await, AdmitOperationError::InProgress);
        // Another gateway cannot know whether it is running.
        let (other, tenure) = gateway(&stage.ensemble, &FaultInjector::new(), "account/2").await;
        let repeat = operation(1, &tenure);
        let unknown = AdmitOperationError::Unknown { reference: id(1).reference() };
        assert_eq!(other.keeper.admit_operation(repeat).await.map(drop), Err(unknown.clone()));
        drop(running);
        // A task of the session notices that the operation was abandoned; give it time to run.
        tokio::time::sleep(T / 10).await;
        assert_eq!(stage.expect_denied(&wanted).await, unknown);
        assert_eq!(stage.stored_state(&wanted).await, (OperationState::Admitted, 0));
        tenure.mark_upstream_settled();
        drop(tenure);
        other.stop().await;
        stage.leave().await;
    });
}

/// An operation that was not sent may run again, and the version of its record counts each admission.
#[test]
fn unsent_operation_may_run_again() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        for (admitted, ended) in [(0, 1), (3, 4), (6, 7)] {
            let running = stage.admit(&wanted).await.expect("nothing was sent");
            assert_eq!(stage.stored_state(&wanted).await, (OperationState::Admitted, admitted));
            running.complete(OperationOutcome::NotExecuted).await;
            let (state, version) = stage.stored_state(&wanted).await;
            assert!(matches!(state, OperationState::Aborted { .. }), "{state:?}");
            assert_eq!(version, ended);
        }
        stage.leave().await;
    });
}

/// An admission whose client goes away is recorded as aborted.
#[test]
fn abandoned_admission_is_recorded_aborted() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        {
            let admitting = stage.admit(&wanted);
            tokio::pin!(admitting);
            // The session's thread has the request when its client goes away.
            assert!(futures_util::poll!(&mut admitting).is_pending());
        }
        tokio::time::sleep(T / 10).await;
        let (state, _) = stage.stored_state(&wanted).await;
        assert!(matches!(state, OperationState::Aborted { .. }), "{state:?}");
        stage.leave().await;
    });
}

/// No record is written or changed if the lock node does not exist.
#[test]
fn no_record_without_lock() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let aborted = stage.operation(1);
        stage.admit(&aborted).await.expect("new").complete(OperationOutcome::NotExecuted).await;
        let before = stage.stored_state(&aborted).await;
        let gone = [stage.tenure.node_paths()[0].clone() + "1"];
        for mut wanted in [stage.operation(2), aborted.clone()] {
            wanted.nodes = gone.clone().into();
            assert_eq!(stage.expect_denied(&wanted).await, AdmitOperationError::Lost);
        }
        assert_eq!(remembered_state(&stage.ensemble, &stage.operation(2)).await, None);
        assert_eq!(stage.stored_state(&aborted).await, before);
        stage.leave().await;
    });
}

/// An operation that an earlier version recorded under another id is found under that id, with its outcome.
#[test]
fn operation_is_found_under_former_name() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let done = stage.operation(1);
        let unknown = stage.operation(2);
        let aborted = stage.operation(3);
        stage.admit(&done).await.expect("new").complete(OperationOutcome::Done(200)).await;
        drop(stage.admit(&unknown).await.expect("new"));
        stage.admit(&aborted).await.expect("new").complete(OperationOutcome::NotExecuted).await;
        let renamed = |number: u8, former: u8| {
            let mut wanted = stage.operation(number);
            wanted.operation.former = Some(id(former));
            wanted
        };
        assert_eq!(
            stage.expect_denied(&renamed(11, 1)).await,
            AdmitOperationError::Done { status: Some(200) }
        );
        tokio::time::sleep(T / 10).await;
        // The reference is that of the former id, which clients have received.
        let told = AdmitOperationError::Unknown { reference: id(2).reference() };
        assert_eq!(stage.expect_denied(&renamed(12, 2)).await, told);
        let mut other_body = renamed(11, 1);
        other_body.operation.fingerprint = RequestFingerprint::from_bytes([2; 32]);
        assert_eq!(stage.expect_denied(&other_body).await, AdmitOperationError::Mismatch);
        for may_run in [renamed(13, 3), renamed(14, 4)] {
            stage
                .admit(&may_run)
                .await
                .expect("nothing was sent")
                .complete(OperationOutcome::NotExecuted)
                .await;
        }
        stage.leave().await;
    });
}

/// A full quota of a route or client refuses new operations. A repeat still gets the outcome of the first attempt.
#[test]
fn full_quota_refuses_new_operations_only() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let shared = |number: u8, client: Option<&str>| {
            let mut wanted = stage.operation(number);
            wanted.owner = OperationQuotaOwner { route: "pay".into(), client: client.map(str::to_owned) };
            wanted.memory = OperationQuota { route: 3, client: client.map(|_| 2) };
            wanted
        };
        for number in [1, 2] {
            stage
                .admit(&shared(number, Some("a")))
                .await
                .expect("room")
                .complete(OperationOutcome::Done(200))
                .await;
        }
        assert_eq!(stage.expect_denied(&shared(3, Some("a"))).await, AdmitOperationError::ClientFull);
        stage.admit(&shared(4, Some("b"))).await.expect("room").complete(OperationOutcome::NotExecuted).await;
        assert_eq!(stage.expect_denied(&shared(5, Some("b"))).await, AdmitOperationError::RouteFull);
        assert_eq!(stage.expect_denied(&shared(5, None)).await, AdmitOperationError::RouteFull);
        for number in [3, 5] {
            assert_eq!(remembered_state(&stage.ensemble, &shared(number, None)).await, None);
        }
        assert_eq!(
            stage.expect_denied(&shared(1, Some("a"))).await,
            AdmitOperationError::Done { status: Some(200) }
        );
        // This operation already has a record, so its repeat takes no further capacity.
        stage
            .admit(&shared(4, Some("b")))
            .await
            .expect("nothing was sent")
            .complete(OperationOutcome::Done(200))
            .await;
        stage.leave().await;
    });
}
