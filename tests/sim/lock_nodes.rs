//! What each kind of lock does with its nodes, without the tenures above it: who watches them, who may remove them, and
//! what it costs to give them back.

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

use fencegate_lock::session::client::{MultiOp, NodeKind, ZkClient, ZkError};
use fencegate_tests::memory::SimSession;
use tokio::time::{sleep, timeout};

use self::fixture::{ALL, HeldLock, LockKind, SHARED, T, count, hold, nodes, registered_counts};
use crate::{
    faulty_client::{RequestFate, SessionRequest},
    simulated_time,
    supervised::SupervisedSession,
};

/// The janitor comes several times meanwhile.
const LONG: Duration = Duration::from_secs(20);

/// An attempt that is dropped before it has cleared its nodes, as after a panic: they may still hold.
#[test]
fn what_may_still_hold_stays_until_the_session_ends() {
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

/// All nodes of a holder go in one request, and nothing is asked afterwards.
#[test]
fn what_is_given_back_takes_one_request() {
    for (kind, _) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let asked = count(&session, |_| true);
            held.clear().await;
            drop(held);
            assert_eq!(asked.get(), 1, "{kind:?}");
            assert_eq!((nodes(&session).len(), registered_counts(&session)), (0, (0, 0)), "{kind:?}");
            session.end().await;
        });
    }
}

/// Watches while `happens`, and returns the paths that were told as gone. `Err`: it still watches.
async fn told_while(
    session: &SupervisedSession,
    held: &HeldLock,
    happens: impl AsyncFnOnce(),
) -> Result<Vec<String>, Vec<String>> {
    let told = RefCell::<Vec<String>>::default();
    let gone = |path: &str| RefCell::borrow_mut(&told).push(path.to_owned());
    let watched = async {
        let watching = timeout(LONG, held.watch_own(&gone));
        let happening = async {
            // The watches are set by then.
            sleep(T).await;
            happens().await;
        };
        tokio::join!(watching, happening).0
    };
    let ended = watched.await.is_ok();
    session.doctor.set_rule(|_| RequestFate::Passes);
    if ended { Ok(told.into_inner()) } else { Err(told.into_inner()) }
}

#[test]
fn a_holder_is_told_of_each_of_its_nodes_that_somebody_removes() {
    for (kind, _) in ALL {
        for at in 0..2 {
            simulated_time::run(async {
                let session = SupervisedSession::start(T).await;
                let held = hold(&session, kind).await;
                let Some(stolen) = nodes(&session).get(at).cloned() else { return };
                // The place in line for a shared node is nobody's lock.
                if matches!(held, HeldLock::Shared(_)) && stolen != SHARED {
                    return;
                }
                let steals = async || session.ensemble.steal(&stolen);
                let told = told_while(&session, &held, steals).await;
                let lock = match held {
                    // A node in line is told by the parent of its key.
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

#[test]
fn a_holder_watches_until_its_session_is_over_and_tells_nobody_of_that() {
    for (kind, _) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let told = told_while(&session, &held, async || session.doctor.wire().expire()).await;
            assert_eq!(told, Ok(Vec::new()), "{kind:?}");
            drop(held);
            session.end().await;
        });
    }
}

/// The client library has died: each request fails like this, for ever.
#[test]
fn who_looks_again_over_a_library_that_is_gone_ends_with_the_session() {
    for (kind, _) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let stranger = session.connect_other().await;
            let happens = async || {
                session.doctor.end_task(ZkError::Ambiguous("nobody is there".into()));
                write_to_all(&session, &stranger).await;
            };
            let told = told_while(&session, &held, happens).await;
            assert_eq!(told, Ok(Vec::new()), "{kind:?}");
            drop(held);
            session.end().await;
        });
    }
}

/// Each watch is told of it.
async fn write_to_all(session: &SupervisedSession, stranger: &SimSession) {
    for path in nodes(session) {
        stranger.commit(&[MultiOp::Set { path: &path, data: b"a note" }]).await.expect("there");
    }
}

/// The server tells when a node changes, so nobody has to look again and again.
#[test]
fn a_holder_to_which_nothing_happens_asks_nothing_more() {
    for (kind, _) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let (asked, of_the_lock) = (Rc::new(Cell::new(0)), nodes(&session));
            let counted = asked.clone();
            let counts = async || {
                session.doctor.set_rule(move |asked| {
                    let watches =
                        matches!(asked, SessionRequest::Other { path } if of_the_lock.iter().any(|of| of == path));
                    counted.set(counted.get() + u32::from(watches));
                    RequestFate::Passes
                });
            };
            assert_eq!(told_while(&session, &held, counts).await, Err(Vec::new()), "{kind:?}");
            assert_eq!(asked.get(), 0, "{kind:?}");
            held.clear().await;
            drop(held);
            session.end().await;
        });
    }
}

/// A stranger writes into the node: it is ours all the same.
#[test]
fn a_node_of_ours_that_somebody_writes_to_is_held_and_removed_by_us() {
    for (kind, _) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let stranger = session.connect_other().await;
            let writes = async || write_to_all(&session, &stranger).await;
            assert_eq!(told_while(&session, &held, writes).await, Err(Vec::new()), "{kind:?}");
            held.clear().await;
            drop(held);
            assert_eq!(nodes(&session), [""; 0], "{kind:?}");
            session.end().await;
        });
    }
}

/// Somebody else has the path by the time that we look. A node that stands in line has a name that nobody else gets.
#[test]
fn what_another_one_made_in_the_place_of_our_node_is_theirs() {
    for kind in [LockKind::Shared, LockKind::Permit] {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            let held = hold(&session, kind).await;
            let stranger = session.connect_other().await;
            let lock = nodes(&session).pop().expect("the node beside the line");
            let happens = async || {
                session.ensemble.steal(&lock);
                stranger.create(&lock, b"theirs", NodeKind::Ephemeral).await.expect("free");
            };
            assert_eq!(told_while(&session, &held, happens).await, Ok(vec![lock.clone()]), "{kind:?}");
            held.clear().await;
            drop(held);
            assert_eq!(nodes(&session), [lock], "{kind:?}");
            session.end().await;
        });
    }
}
