//! Operations with an unknown outcome: operators list and resolve them.

use fencegate_idempotency::{
    OperationOutcome,
    error::AdmitOperationError,
    record::OperationState,
    unresolved::{self, ResolveOperationError},
};
use fencegate_zookeeper::session::paths::ZkPaths;

use super::fixture::{OperationFixture, T, connect_observer, id};
use crate::{plan::ROOT, simulated_time};

/// The outcome that an operator records counts. Neither the gateway nor a second resolution overwrites it.
#[test]
fn operator_resolution_is_not_overwritten() {
    simulated_time::run(async {
        for done in [true, false] {
            let stage = OperationFixture::new().await;
            let wanted = stage.operation(1);
            let running = stage.admit(&wanted).await.expect("new");
            let operator = connect_observer(&stage.ensemble).await;
            let paths = ZkPaths::new(ROOT);
            let open =
                unresolved::find_unresolved(&operator, &paths, 0, &id(1).reference()).await.expect("unknown");
            assert_eq!(open.reference, id(1).reference());
            open.resolve(&operator, done).await.expect("written");
            running.complete(OperationOutcome::Done(200)).await;
            let (state, version) = stage.stored_state(&wanted).await;
            match state {
                OperationState::Done { status, .. } => assert_eq!((done, status), (true, None)),
                OperationState::Aborted { .. } => assert!(!done),
                other => panic!("{other:?}"),
            }
            assert_eq!(version, 1);
            let again = open.resolve(&operator, true).await;
            assert!(matches!(again, Err(ResolveOperationError::Write { .. })), "{again:?}");
            if done {
                assert_eq!(stage.expect_denied(&wanted).await, AdmitOperationError::Done { status: None });
            } else {
                stage
                    .admit(&wanted)
                    .await
                    .expect("nothing was sent")
                    .complete(OperationOutcome::NotExecuted)
                    .await;
            }
            stage.leave().await;
        }
    });
}

/// An unresolved operation is listed as possibly running while its lock is held, and not afterwards.
#[test]
fn operation_may_run_while_locked() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        let operator = connect_observer(&stage.ensemble).await;
        let paths = ZkPaths::new(ROOT);
        let listed = async || {
            let all = unresolved::list_unresolved(&operator, &paths, 0).await.expect("listed");
            all.iter().map(|open| (open.reference.clone(), open.may_run)).collect::<Vec<_>>()
        };
        assert_eq!(listed().await, [], "there is no folder yet");
        stage.admit(&stage.operation(1)).await.expect("new").complete(OperationOutcome::Done(200)).await;
        drop(stage.admit(&stage.operation(2)).await.expect("new"));
        assert_eq!(listed().await, [(id(2).reference(), true)]);
        let reference = id(2).reference();
        let OperationFixture { locks, tenure, .. } = stage;
        tenure.mark_upstream_settled();
        drop(tenure);
        tokio::time::sleep(T / 10).await;
        assert_eq!(listed().await, [(reference, false)]);
        locks.stop().await;
    });
}

/// An operation is found by its full reference only, and only if that is unambiguous.
#[test]
fn only_full_reference_finds_operation() {
    simulated_time::run(async {
        let stage = OperationFixture::new().await;
        drop(stage.admit(&stage.operation(1)).await.expect("new"));
        let operator = connect_observer(&stage.ensemble).await;
        let paths = ZkPaths::new(ROOT);
        let whole = id(1).reference();
        assert!(unresolved::find_unresolved(&operator, &paths, 0, &whole).await.is_ok());
        let longer = format!("{whole}0");
        for wrong in
            ["", &whole[..2], &whole[1..], &*longer, "0707070707070708", "../meta", "07070707070707G7"]
        {
            let found = unresolved::find_unresolved(&operator, &paths, 0, wrong).await;
            assert!(matches!(found, Err(ResolveOperationError::NotFound(_))), "{wrong}: {found:?}");
        }
        // The ids of both operations differ only in the last digit, so that they have the same reference.
        drop(stage.admit(&stage.operation(2)).await.expect("new"));
        let found = unresolved::find_unresolved(&operator, &paths, 0, &whole).await;
        assert!(matches!(found, Err(ResolveOperationError::Several(_))), "{found:?}");
        stage.leave().await;
    });
}
