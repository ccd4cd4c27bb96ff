//! The parent of a lock node that is not ours alone: what we know of it, and when we leave it.

use std::{cell::Cell, rc::Rc};

use fencegate_lock::session::client::{NodeKind, ZkClient};
use tokio::time::timeout;

use super::fixture::{LockKind, T, attempt, count, hold, nodes, parent_of};
use crate::{
    faulty_client::{RequestFate, SessionRequest, is_heartbeat, throttled},
    simulated_time,
    supervised::{SupervisedSession, WaitingRequest},
};

/// Somebody came before the holder left, and the parent stays: the next request of ours expects it.
#[test]
fn a_parent_that_could_not_be_removed_is_known_to_be_there() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let holds = hold(&session, LockKind::Native).await;
        let stranger = session.connect_other().await;
        let path = format!("{}/_c_0-w-", parent_of(&nodes(&session)[0]));
        stranger.create(&path, b"", NodeKind::EphemeralSequential).await.expect("made");
        holds.clear().await;
        let with_its_parent = count(&session, |asked| matches!(asked, SessionRequest::Commit { .. }));
        let waits = attempt(&session, "a").await;
        let asked = timeout(T / 4, waits.acquire(&mut WaitingRequest::default())).await;
        assert!(asked.is_err(), "the stranger holds");
        assert_eq!((with_its_parent.get(), nodes(&session).len()), (0, 2));
        waits.clear().await;
        drop((waits, holds));
        session.end().await;
    });
}

/// The node is refused at once, below a parent that others have made: it is not ours to remove.
#[test]
fn who_is_refused_removes_no_parent_that_it_has_not_made() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let holds = hold(&session, LockKind::Native).await;
        let removes = Rc::new(Cell::new(0));
        let counted = removes.clone();
        session.doctor.set_rule(move |asked| match asked {
            SessionRequest::Create { kind: NodeKind::EphemeralSequential, .. } => {
                RequestFate::Refused(throttled())
            }
            SessionRequest::Commit { .. } if !is_heartbeat(asked) => {
                counted.set(counted.get() + 1);
                RequestFate::Passes
            }
            _ => RequestFate::Passes,
        });
        let refused = attempt(&session, "a").await;
        let told = refused.acquire(&mut WaitingRequest::default()).await;
        assert!(told.is_err() && removes.get() == 0, "{told:?}");
        refused.clear().await;
        session.doctor.set_rule(|_| RequestFate::Passes);
        holds.clear().await;
        drop((refused, holds));
        session.end().await;
    });
}
