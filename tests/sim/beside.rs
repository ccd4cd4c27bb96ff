//! Locks among those of other programs. In every layout a node is found again if the answer to its create was lost,
//! and parent nodes are created as the foreign program would create them.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use fencegate_policies::plan::{CachedHoldLimits, ForeignLockLayout, LockLocation, LockReusePolicy};
use fencegate_tests::memory::{EnsembleSettings, SimEnsemble};
use fencegate_zookeeper::session::client::{NodeCreateMode, ZkClient, ZkConnector};
use tokio::time::sleep;

use crate::{
    faulty_client::{
        FaultInjector, FaultyClient, GatewayLockStack, SessionRequest, ZkRequestFate, unanswered,
    },
    simulated_time,
};

const T: Duration = Duration::from_secs(2);
const PARENT: &str = "/app/locks/7";
const LINES: [(ForeignLockLayout, &str); 3] = [
    (ForeignLockLayout::CuratorMutex, "-lock-"),
    (ForeignLockLayout::CuratorReadWrite, "-__WRIT__"),
    (ForeignLockLayout::Kazoo, "__lock__"),
];

fn foreign_site(layout: ForeignLockLayout) -> LockLocation {
    LockLocation::Foreign { layout, path: PARENT.into() }
}

fn nodes(ensemble: &SimEnsemble) -> Vec<String> {
    let below = format!("{PARENT}/");
    ensemble.paths().iter().filter_map(|path| path.strip_prefix(&below)).map(str::to_owned).collect()
}

async fn start(doctor: &FaultInjector) -> (SimEnsemble, GatewayLockStack) {
    // So long an interval that the server removes no empty containers during the test.
    let settings = EnsembleSettings { containers: Duration::from_secs(3000), ..EnsembleSettings::default() };
    let ensemble = SimEnsemble::start(settings);
    let library = FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
    (ensemble, GatewayLockStack::new(library).await)
}

/// Loses the answer to the first create of a lock node. The create itself takes effect.
fn lose_answer(doctor: &FaultInjector) {
    let lost = Cell::new(false);
    doctor.set_rule(move |request| match request {
        SessionRequest::Create { kind: NodeCreateMode::EphemeralSequential, .. } if !lost.replace(true) => {
            ZkRequestFate::Done(unanswered())
        }
        _ => ZkRequestFate::Passes,
    });
}

/// A node in a foreign layout whose create was not answered is found by its name, and removed at the end.
#[test]
fn unanswered_create_is_found_by_name() {
    for (layout, mark) in LINES {
        simulated_time::run(async {
            let doctor = FaultInjector::new();
            let (ensemble, locks) = start(&doctor).await;
            let first = locks
                .acquire_at(&["a"], &[foreign_site(layout)], LockReusePolicy::Strict)
                .await
                .expect("free");
            drop(first);
            sleep(T).await;
            assert_eq!(nodes(&ensemble), [""; 0], "{layout:?}");
            assert!(ensemble.paths().iter().any(|path| path == PARENT), "{layout:?}: it stays");

            lose_answer(&doctor);
            let second = locks
                .acquire_at(&["a"], &[foreign_site(layout)], LockReusePolicy::Strict)
                .await
                .expect("free");
            let made = nodes(&ensemble);
            assert!(matches!(&*made, [one] if one.contains(mark)), "{layout:?}: {made:?}");
            drop(second);
            sleep(T).await;
            assert_eq!(nodes(&ensemble), [""; 0], "{layout:?}");
            locks.stop().await;
        });
    }
}

/// Parents have the mode that the foreign program would give them: kazoo's stays, and Curator's is a container,
/// which goes when it is empty.
#[test]
fn parent_is_created_like_foreign_program() {
    for (layout, stays) in [
        (ForeignLockLayout::CuratorMutex, false),
        (ForeignLockLayout::CuratorReadWrite, false),
        (ForeignLockLayout::Kazoo, true),
    ] {
        simulated_time::run(async {
            let (ensemble, locks) = start(&FaultInjector::new()).await;
            drop(
                locks
                    .acquire_at(&["a"], &[foreign_site(layout)], LockReusePolicy::Strict)
                    .await
                    .expect("free"),
            );
            sleep(T).await;
            ensemble.remove_empty_containers();
            assert_eq!(ensemble.paths().iter().any(|path| path == PARENT), stays, "{layout:?}");
            locks.stop().await;
        });
    }
}

/// Only the levels above a foreign lock node that do not exist yet are created.
#[test]
fn only_missing_levels_are_created() {
    for there in 0..3 {
        simulated_time::run(async {
            let doctor = FaultInjector::new();
            let (ensemble, locks) = start(&doctor).await;
            let stranger = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
            let levels = ["/app", "/app/locks", PARENT];
            for path in &levels[..there] {
                stranger.create(path, b"theirs", NodeCreateMode::Persistent).await.expect("new");
            }
            let made = Rc::<RefCell<Vec<String>>>::default();
            let noted = made.clone();
            doctor.set_rule(move |request| {
                if let SessionRequest::Create { path, kind } = request
                    && kind != NodeCreateMode::EphemeralSequential
                {
                    noted.borrow_mut().push(path.to_owned());
                }
                ZkRequestFate::Passes
            });
            drop(
                locks
                    .acquire_at(&["a"], &[foreign_site(ForeignLockLayout::Kazoo)], LockReusePolicy::Strict)
                    .await
                    .expect("free"),
            );
            assert_eq!(*made.borrow(), levels[there..]);
            locks.stop().await;
        });
    }
}

/// If a new plan places the lock of a key elsewhere, the key is locked at the new place, and the old lock node is
/// removed.
#[test]
fn moved_lock_is_taken_where_placed() {
    simulated_time::run(async {
        let (ensemble, locks) = start(&FaultInjector::new()).await;
        let hold =
            LockReusePolicy::Cached(CachedHoldLimits { linger: T * 100, ..CachedHoldLimits::default() });
        drop(locks.acquire(&["a"], hold).await.expect("free"));
        let moved =
            locks.acquire_at(&["a"], &[foreign_site(ForeignLockLayout::Kazoo)], hold).await.expect("free");
        assert_eq!(nodes(&ensemble).len(), 1);
        sleep(T).await;
        let native = ensemble.paths().iter().filter(|path| path.contains("-w-")).count();
        assert_eq!(native, 0, "kept for nobody");
        drop(moved);
        locks.stop().await;
    });
}

/// The native and foreign nodes of one set are made in one transaction, each with the name that its layout demands.
#[test]
fn set_locks_keys_across_layouts() {
    simulated_time::run(async {
        let (ensemble, locks) = start(&FaultInjector::new()).await;
        let sites = [LockLocation::Native, foreign_site(ForeignLockLayout::CuratorMutex)];
        let both = locks.acquire_at(&["a", "b"], &sites, LockReusePolicy::Strict).await.expect("free");
        let made = nodes(&ensemble);
        assert!(matches!(&*made, [one] if one.starts_with("_c_") && one.contains("-lock-")), "{made:?}");
        assert!(ensemble.paths().iter().any(|path| path.contains("-w-")));
        assert_eq!(both.node_paths().len(), 2);
        drop(both);
        sleep(T).await;
        assert_eq!(nodes(&ensemble), [""; 0]);
        locks.stop().await;
    });
}
