//! A request that is refused after it has created the parents of its node removes them: ZooKeeper never removes a
//! container that never had a child. If the server refuses the removal, it is tried again.

use std::{cell::Cell, rc::Rc, time::Duration};

use fencegate_policies::plan::LockReusePolicy;
use fencegate_tests::memory::{EnsembleSettings, SimEnsemble};
use fencegate_zookeeper::session::client::{MultiOp, NodeCreateMode, ZkClient, ZkConnector, ZkError};
use tokio::time::sleep;

use crate::{
    faulty_client::{
        FaultInjector, FaultyClient, GatewayLockStack, SessionRequest, ZkRequestFate, throttled,
    },
    plan::ROOT,
    simulated_time,
};

const T: Duration = Duration::from_secs(2);

fn is_sequential(step: &MultiOp<'_>) -> bool {
    matches!(step, MultiOp::Create { kind: NodeCreateMode::EphemeralSequential, .. })
}

fn parents(ensemble: &SimEnsemble) -> Vec<String> {
    let mut paths = ensemble.paths();
    paths.retain(|path| {
        path.strip_prefix(ROOT)
            .is_some_and(|rest| rest.starts_with("/locks/") && rest.matches('/').count() == 3)
    });
    paths
}

async fn start(doctor: &FaultInjector) -> (SimEnsemble, GatewayLockStack) {
    // So long an interval that the server removes no empty containers during the test.
    let settings = EnsembleSettings { containers: Duration::from_secs(3000), ..EnsembleSettings::default() };
    let ensemble = SimEnsemble::start(settings);
    let library = FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
    (ensemble, GatewayLockStack::new(library).await)
}

/// A set that is refused removes also the parents from its earlier attempts, whether a later attempt is refused or
/// none is left.
#[test]
fn refused_set_leaves_no_parent() {
    for refused_after in [2, u32::MAX] {
        simulated_time::run(async {
            let doctor = FaultInjector::new();
            let (ensemble, locks) = start(&doctor).await;
            let round = Cell::new(0_u32);
            doctor.set_rule(move |request| match request {
                SessionRequest::Commit { steps } if steps.iter().all(is_sequential) => {
                    let now = round.replace(round.get() + 1);
                    // The answer for a parent that has disappeared since it was created.
                    let no = if now < refused_after { ZkError::NoNode } else { throttled() };
                    ZkRequestFate::Refused(no)
                }
                _ => ZkRequestFate::Passes,
            });
            let result = locks.acquire(&["a", "b"], LockReusePolicy::Strict).await.map(drop);
            assert!(result.is_err(), "every round was refused");
            sleep(T).await;
            assert_eq!(parents(&ensemble), [""; 0], "refused after {refused_after}");
            locks.stop().await;
        });
    }
}

/// A single key that is refused removes its parent, which attempts from the fifth on create in a separate request
/// before the node.
#[test]
fn refused_node_leaves_no_parent() {
    simulated_time::run(async {
        let doctor = FaultInjector::new();
        let (ensemble, locks) = start(&doctor).await;
        // Creates the folder above the parent.
        drop(locks.acquire(&["a"], LockReusePolicy::Strict).await.expect("free"));
        sleep(T).await;
        assert_eq!(parents(&ensemble), [""; 0], "of a request that is over");
        let there = ensemble.clone();
        doctor.set_rule(move |request| match request {
            // The answers for a parent that another client created, and removed before our next request.
            SessionRequest::Commit { steps } if steps.iter().any(is_sequential) => {
                ZkRequestFate::Refused(ZkError::NodeExists)
            }
            SessionRequest::Create { kind: NodeCreateMode::EphemeralSequential, .. }
                if parents(&there).is_empty() =>
            {
                ZkRequestFate::Refused(ZkError::NoNode)
            }
            SessionRequest::Create { kind: NodeCreateMode::EphemeralSequential, .. } => {
                ZkRequestFate::Refused(throttled())
            }
            _ => ZkRequestFate::Passes,
        });
        let result = locks.acquire(&["a"], LockReusePolicy::Strict).await.map(drop);
        assert!(result.is_err(), "every round was refused");
        sleep(T).await;
        assert_eq!(parents(&ensemble), [""; 0]);
        locks.stop().await;
    });
}

/// While the server refuses a removal, it is tried again after pauses, and not in a busy loop.
#[test]
fn refused_removal_retries_after_pause() {
    simulated_time::run(async {
        let doctor = FaultInjector::new();
        let (ensemble, locks) = start(&doctor).await;
        let tenure = locks.acquire(&["a"], LockReusePolicy::Strict).await.expect("free");
        let [parent] = &parents(&ensemble)[..] else { panic!("one key") };
        // Another client waits in the queue, so that the release removes the node without its parent.
        let other = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
        other
            .create(&format!("{parent}/_c_0-w-"), b"", NodeCreateMode::EphemeralSequential)
            .await
            .expect("made");
        let tried = Rc::new(Cell::new(0));
        let counted = tried.clone();
        doctor.set_rule(move |request| {
            if !matches!(request, SessionRequest::Delete { .. }) {
                return ZkRequestFate::Passes;
            }
            counted.set(counted.get() + 1);
            assert!(counted.get() < 100, "without a pause");
            ZkRequestFate::Refused(throttled())
        });
        tenure.mark_upstream_settled();
        drop(tenure);
        sleep(T).await;
        assert!((2..10).contains(&tried.get()), "{} tries in {T:?}", tried.get());
        doctor.set_rule(|_| ZkRequestFate::Passes);
        sleep(T).await;
        assert_eq!(other.children(parent).await.expect("it stays").len(), 1, "ours is gone");
        locks.stop().await;
    });
}
