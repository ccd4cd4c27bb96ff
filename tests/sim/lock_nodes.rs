//! The nodes of each kind of lock, without tenures: which of them are watched, which may be removed, and the number
//! of requests that their release takes.

mod fixture;
mod sets;
mod shared_parent;
mod signs;
mod unheard_create;
mod waiting;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use fencegate_tests::memory::SimSession;
use fencegate_zookeeper::session::client::{MultiOp, NodeCreateMode, ZkClient, ZkError};
use tokio::time::{sleep, timeout};

use self::fixture::{ALL, HeldLock, LockKind, SHARED, T, count_requests, hold, nodes, registered_counts};
use crate::{
    faulty_client::{SessionRequest, ZkRequestFate},
    simulated_time,
    supervised::SupervisedSession,
};

/// So long that the janitor runs several times meanwhile.
const LONG: Duration = Duration::from_secs(20);

/// An attempt that is dropped without removing its nodes, as after a panic, leaves them, because they may still
/// hold.
#[test]
fn dropped_attempt_keeps_its_nodes() {
    for (kind, attempts) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            drop(hold(&session, kind).await);
            let made = nodes(&session);
            sleep(LONG).await;
            assert_eq!(nodes(&session), made, "{kind:?}");
            let (kept, bytes) = registered_counts(&session);
            assert_eq!(kept, attempts, "{kind:?}");
            assert!(bytes > 0, "{kind:?}");
            let ensemble = session.ensemble.clone();
            session.end().await;
            sleep(T * 3).await;
            assert!(ensemble.sessions().is_empty(), "{kind:?}: its nodes have gone with it");
        });
    }
}

/// All nodes of a holder are removed by one request, and no request follows.
#[test]
fn release_takes_one_request() {
    for (kind, _) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let asked = count_requests(&session, |_| true);
            held.clear().await;
            drop(held);
            assert_eq!(asked.get(), 1, "{kind:?}");
            assert_eq!((nodes(&session).len(), registered_counts(&session)), (0, (0, 0)), "{kind:?}");
            session.end().await;
        });
    }
}

/// Watches a lock while `happens` runs. `Ok`: the watch has ended, after it reported these paths as gone. `Err`: it
/// goes on.
async fn watch_while(
    session: &SupervisedSession,
    held: &HeldLock,
    happens: impl AsyncFnOnce(),
) -> Result<Vec<String>, Vec<String>> {
    let told = RefCell::<Vec<String>>::default();
    let gone = |path: &str| RefCell::borrow_mut(&told).push(path.to_owned());
    let watched = async {
        let watching = timeout(LONG, held.watch_own(&gone));
        let happening = async {
            // Wait until the watches are set.
            sleep(T).await;
            happens().await;
        };
        tokio::join!(watching, happening).0
    };
    let ended = watched.await.is_ok();
    session.doctor.set_rule(|_| ZkRequestFate::Passes);
    if ended { Ok(told.into_inner()) } else { Err(told.into_inner()) }
}

/// A holder is notified of each of its nodes that another client removes.
#[test]
fn holder_learns_of_each_removed_node() {
    for (kind, _) in ALL {
        for at in 0..2 {
            simulated_time::run(async {
                let session = SupervisedSession::start(T).await;
                let held = hold(&session, kind).await;
                let Some(stolen) = nodes(&session).get(at).cloned() else { return };
                // The place in the queue for a shared node is not the lock itself, so its loss is not reported.
                if matches!(held, HeldLock::Shared(_)) && stolen != SHARED {
                    return;
                }
                let steals = async || session.ensemble.delete_as_other_client(&stolen);
                let told = watch_while(&session, &held, steals).await;
                let lock = match held {
                    // For a native lock the path of the key's parent is reported, and not that of the node.
                    HeldLock::One(_) => stolen.rsplit_once('/').expect("absolute").0.to_owned(),
                    HeldLock::Shared(_) | HeldLock::Permit(_) => stolen,
                };
                assert_eq!(told, Ok(vec![lock]), "{kind:?}");
                held.clear().await;
                drop(held);
                session.end().await;
            });
        }
    }
}

/// A holder watches its nodes until its session ends, and that end is reported as no removal.
#[test]
fn session_end_reports_no_removal() {
    for (kind, _) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let told = watch_while(&session, &held, async || session.doctor.wire().expire()).await;
            assert_eq!(told, Ok(Vec::new()), "{kind:?}");
            drop(held);
            session.end().await;
        });
    }
}

/// If the client library has died, so that each request fails with this error, the watch ends with the session.
#[test]
fn watch_ends_with_session_without_client() {
    for (kind, _) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let stranger = session.connect_other().await;
            let happens = async || {
                session.doctor.end_task(ZkError::Ambiguous("nobody is there".into()));
                write_to_all(&session, &stranger).await;
            };
            let told = watch_while(&session, &held, happens).await;
            assert_eq!(told, Ok(Vec::new()), "{kind:?}");
            drop(held);
            session.end().await;
        });
    }
}

/// Writes to every lock node, which fires the watch on each.
async fn write_to_all(session: &SupervisedSession, stranger: &SimSession) {
    for path in nodes(session) {
        stranger.commit(&[MultiOp::Set { path: &path, data: b"a note" }]).await.expect("there");
    }
}

/// The server fires a watch when a node changes, so an undisturbed holder sends no further requests.
#[test]
fn undisturbed_holder_sends_no_requests() {
    for (kind, _) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let asked = Rc::new(Cell::new(0));
            let of_the_lock = nodes(&session);
            let counted = asked.clone();
            let counts = async || {
                session.doctor.set_rule(move |asked| {
                    let watches =
                        matches!(asked, SessionRequest::Other { path } if of_the_lock.iter().any(|of| of == path));
                    counted.set(counted.get() + u32::from(watches));
                    ZkRequestFate::Passes
                });
            };
            assert_eq!(watch_while(&session, &held, counts).await, Err(Vec::new()), "{kind:?}");
            assert_eq!(asked.get(), 0, "{kind:?}");
            held.clear().await;
            drop(held);
            session.end().await;
        });
    }
}

/// A node that another client writes to still belongs to its holder: it is held and removed.
#[test]
fn overwritten_node_is_kept_and_removed() {
    for (kind, _) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let stranger = session.connect_other().await;
            let writes = async || write_to_all(&session, &stranger).await;
            assert_eq!(watch_while(&session, &held, writes).await, Err(Vec::new()), "{kind:?}");
            held.clear().await;
            drop(held);
            assert_eq!(nodes(&session), [""; 0], "{kind:?}");
            session.end().await;
        });
    }
}

/// A node that another client creates at the path of a removed one is reported as a loss, and not removed. This can
/// happen only to shared nodes and permits: the names of nodes in a queue are unique.
#[test]
fn replacement_node_is_reported_and_left() {
    for kind in [LockKind::Shared, LockKind::Permit] {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let stranger = session.connect_other().await;
            let lock = nodes(&session).pop().expect("the node beside the line");
            let happens = async || {
                session.ensemble.delete_as_other_client(&lock);
                stranger.create(&lock, b"theirs", NodeCreateMode::Ephemeral).await.expect("free");
            };
            assert_eq!(watch_while(&session, &held, happens).await, Ok(vec![lock.clone()]), "{kind:?}");
            held.clear().await;
            drop(held);
            assert_eq!(nodes(&session), [lock], "{kind:?}");
            session.end().await;
        });
    }
}
