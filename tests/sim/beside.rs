//! Locks among those of other programs. If the answer to a create is lost, an attempt finds its node again in every
//! layout. The parent nodes that it has made stay.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use fencegate_lock::session::link::{Connect, Kind, Link};
use fencegate_policies::plan::{Caching, Foreign, Hold, LockSite};
use fencegate_tests::memory::{Ensemble, Settings};
use tokio::time::sleep;

use crate::{
    doctored::{Asked, Doctor, Fate, Library, Locks, unanswered},
    simulated,
};

const T: Duration = Duration::from_secs(2);
const PARENT: &str = "/app/locks/7";
const LINES: [(Foreign, &str); 3] = [
    (Foreign::CuratorMutex, "-lock-"),
    (Foreign::CuratorReadWrite, "-__WRIT__"),
    (Foreign::Kazoo, "__lock__"),
];

fn at(layout: Foreign) -> LockSite {
    LockSite::Foreign { layout, path: PARENT.into() }
}

fn nodes(ensemble: &Ensemble) -> Vec<String> {
    let below = format!("{PARENT}/");
    ensemble.paths().iter().filter_map(|path| path.strip_prefix(&below)).map(str::to_owned).collect()
}

async fn start(doctor: &Doctor) -> (Ensemble, Locks) {
    // The server removes no empty containers during the test.
    let settings = Settings { containers: Duration::from_secs(3000), ..Settings::default() };
    let ensemble = Ensemble::start(settings);
    let library = Library { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
    (ensemble, Locks::over(library).await)
}

/// The first create of a lock node is done, and its answer is lost.
fn loses_an_answer(doctor: &Doctor) {
    let lost = Cell::new(false);
    doctor.rules(move |asked| match asked {
        Asked::Create { kind: Kind::EphemeralSequential, .. } if !lost.replace(true) => {
            Fate::Done(unanswered())
        }
        _ => Fate::Passes,
    });
}

#[test]
fn a_node_whose_create_was_not_answered_is_found_by_its_name() {
    for (layout, mark) in LINES {
        simulated::run(async {
            let doctor = Doctor::new();
            let (ensemble, locks) = start(&doctor).await;
            let first = locks.acquire_at(&["a"], &[at(layout)], Hold::Strict).await.expect("free");
            drop(first);
            sleep(T).await;
            assert_eq!(nodes(&ensemble), [""; 0], "{layout:?}");
            assert!(ensemble.paths().iter().any(|path| path == PARENT), "{layout:?}: it stays");

            loses_an_answer(&doctor);
            let second = locks.acquire_at(&["a"], &[at(layout)], Hold::Strict).await.expect("free");
            let made = nodes(&ensemble);
            assert!(matches!(&*made, [one] if one.contains(mark)), "{layout:?}: {made:?}");
            drop(second);
            sleep(T).await;
            assert_eq!(nodes(&ensemble), [""; 0], "{layout:?}");
            locks.stop().await;
        });
    }
}

/// kazoo makes sure of its parent once, and Curator each time. So kazoo's stays, and Curator's goes when it is empty.
#[test]
fn the_parent_is_made_as_the_other_programs_make_it() {
    for (layout, stays) in
        [(Foreign::CuratorMutex, false), (Foreign::CuratorReadWrite, false), (Foreign::Kazoo, true)]
    {
        simulated::run(async {
            let (ensemble, locks) = start(&Doctor::new()).await;
            drop(locks.acquire_at(&["a"], &[at(layout)], Hold::Strict).await.expect("free"));
            sleep(T).await;
            ensemble.remove_empty_containers();
            assert_eq!(ensemble.paths().iter().any(|path| path == PARENT), stays, "{layout:?}");
            locks.stop().await;
        });
    }
}

/// What stands above is made with the access rights of the node above it, and one of them may be there already.
#[test]
fn only_the_levels_that_are_missing_are_made() {
    for there in 0..3 {
        simulated::run(async {
            let doctor = Doctor::new();
            let (ensemble, locks) = start(&doctor).await;
            let stranger = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
            let levels = ["/app", "/app/locks", PARENT];
            for path in &levels[..there] {
                stranger.create(path, b"theirs", Kind::Persistent).await.expect("new");
            }
            let made = Rc::<RefCell<Vec<String>>>::default();
            let noted = made.clone();
            doctor.rules(move |asked| {
                if let Asked::Create { path, kind } = asked
                    && kind != Kind::EphemeralSequential
                {
                    noted.borrow_mut().push(path.to_owned());
                }
                Fate::Passes
            });
            drop(locks.acquire_at(&["a"], &[at(Foreign::Kazoo)], Hold::Strict).await.expect("free"));
            assert_eq!(*made.borrow(), levels[there..]);
            locks.stop().await;
        });
    }
}

/// A new plan places the lock of a key elsewhere. The key is locked at the new place, and the old lock node is
/// removed.
#[test]
fn a_key_whose_lock_has_moved_is_locked_where_it_is_now() {
    simulated::run(async {
        let (ensemble, locks) = start(&Doctor::new()).await;
        let hold = Hold::Cached(Caching { linger: T * 100, ..Caching::default() });
        drop(locks.acquire(&["a"], hold).await.expect("free"));
        let moved = locks.acquire_at(&["a"], &[at(Foreign::Kazoo)], hold).await.expect("free");
        assert_eq!(nodes(&ensemble).len(), 1);
        sleep(T).await;
        let native = ensemble.paths().iter().filter(|path| path.contains("-w-")).count();
        assert_eq!(native, 0, "kept for nobody");
        drop(moved);
        locks.stop().await;
    });
}

/// The native and foreign nodes of one set are made in one transaction, each with the name that its layout asks for.
#[test]
fn the_keys_of_a_set_may_lie_in_different_layouts() {
    simulated::run(async {
        let (ensemble, locks) = start(&Doctor::new()).await;
        let sites = [LockSite::Native, at(Foreign::CuratorMutex)];
        let both = locks.acquire_at(&["a", "b"], &sites, Hold::Strict).await.expect("free");
        let made = nodes(&ensemble);
        assert!(matches!(&*made, [one] if one.starts_with("_c_") && one.contains("-lock-")), "{made:?}");
        assert!(ensemble.paths().iter().any(|path| path.contains("-w-")));
        assert_eq!(both.nodes().len(), 2);
        drop(both);
        sleep(T).await;
        assert_eq!(nodes(&ensemble), [""; 0]);
        locks.stop().await;
    });
}
