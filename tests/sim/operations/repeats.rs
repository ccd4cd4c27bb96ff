//! What a request is told whose operation is known already, and when it may run.

use fencegate_lock::idempotency::{
    OperationOutcome, error::AdmitOperationError, quota::QuotaOwner, record::OperationState,
};
use fencegate_policies::{operation::Fingerprint, plan::OperationQuota};

use super::fixture::{OperationFixture, T, gateway, id, operation, remembered_state};
use crate::{
    faulty_client::{FaultInjector, key},
    simulated_time,
};

#[test]
fn what_was_done_is_not_sent_again() {
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

#[test]
fn a_name_that_was_used_for_another_request_is_refused() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        stage.admit(&wanted).await.expect("new").complete(OperationOutcome::Done(200)).await;
        let mut other_body = wanted.clone();
        other_body.operation.fingerprint = Fingerprint::from_bytes([2; 32]);
        assert_eq!(stage.expect_denied(&other_body).await, AdmitOperationError::Mismatch);
        let mut other_key = wanted.clone();
        other_key.keys = vec![key("account/2")];
        assert_eq!(stage.expect_denied(&other_key).await, AdmitOperationError::Mismatch);
        // While a lock is migrated, one of both has a key more.
        let mut migrated = wanted.clone();
        migrated.keys = vec![key("account/1"), key("konto/1")];
        assert_eq!(stage.expect_denied(&migrated).await, AdmitOperationError::Done { status: Some(200) });
        stage.leave().await;
    });
}

#[test]
fn what_is_running_is_waited_for_and_what_was_left_is_unknown() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        let running = stage.admit(&wanted).await.expect("new");
        assert_eq!(stage.expect_denied(&wanted).await, AdmitOperationError::InProgress);
        // Another gateway cannot know whether it is running.
        let (other, tenure) = gateway(&stage.ensemble, &FaultInjector::new(), "account/2").await;
        let repeat = operation(1, &tenure);
        let unknown = AdmitOperationError::Unknown { reference: id(1).reference() };
        assert_eq!(other.keeper.admit(repeat).await.map(drop), Err(unknown.clone()));
        drop(running);
        // Its end is noticed by a task of the session.
        tokio::time::sleep(T / 10).await;
        assert_eq!(stage.expect_denied(&wanted).await, unknown);
        assert_eq!(stage.stored_state(&wanted).await, (OperationState::Admitted, 0));
        tenure.mark_settled();
        drop(tenure);
        other.stop().await;
        stage.leave().await;
    });
}

#[test]
fn what_was_not_sent_may_run_again_and_the_version_of_its_record_says_so() {
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

#[test]
fn what_nobody_waits_for_any_more_is_written_down_as_not_sent() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let wanted = stage.operation(1);
        {
            let admitting = stage.admit(&wanted);
            tokio::pin!(admitting);
            // The request is with the session's thread, and its client goes away.
            assert!(futures_util::poll!(&mut admitting).is_pending());
        }
        tokio::time::sleep(T / 10).await;
        let (state, _) = stage.stored_state(&wanted).await;
        assert!(matches!(state, OperationState::Aborted { .. }), "{state:?}");
        stage.leave().await;
    });
}

#[test]
fn nothing_is_written_down_without_the_lock() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let aborted = stage.operation(1);
        stage.admit(&aborted).await.expect("new").complete(OperationOutcome::NotExecuted).await;
        let before = stage.stored_state(&aborted).await;
        let gone = [stage.tenure.nodes()[0].clone() + "1"];
        for mut wanted in [stage.operation(2), aborted.clone()] {
            wanted.nodes = gone.clone().into();
            assert_eq!(stage.expect_denied(&wanted).await, AdmitOperationError::Lost);
        }
        assert_eq!(remembered_state(&stage.ensemble, &stage.operation(2)).await, None);
        assert_eq!(stage.stored_state(&aborted).await, before);
        stage.leave().await;
    });
}

#[test]
fn an_operation_that_a_former_build_named_is_found_under_that_name() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let (done, unknown, aborted) = (stage.operation(1), stage.operation(2), stage.operation(3));
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
        // By the name that people were told.
        let told = AdmitOperationError::Unknown { reference: id(2).reference() };
        assert_eq!(stage.expect_denied(&renamed(12, 2)).await, told);
        let mut other_body = renamed(11, 1);
        other_body.operation.fingerprint = Fingerprint::from_bytes([2; 32]);
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

#[test]
fn a_share_that_is_used_up_refuses_new_operations_and_tells_repeats_what_came() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let shared = |number: u8, client: Option<&str>| {
            let mut wanted = stage.operation(number);
            wanted.owner = QuotaOwner { route: "pay".into(), client: client.map(str::to_owned) };
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
        // It stands already, and takes no further room.
        stage
            .admit(&shared(4, Some("b")))
            .await
            .expect("nothing was sent")
            .complete(OperationOutcome::Done(200))
            .await;
        stage.leave().await;
    });
}
