//! The parent of a lock node that other clients also use: what a session records about it, and when it leaves the
//! parent.

use std::{cell::Cell, rc::Rc};

use fencegate_zookeeper::session::client::{NodeCreateMode, ZkClient};
use tokio::time::timeout;

use super::fixture::{LockKind, T, attempt, count_requests, hold, nodes, parent_of};
use crate::{
    faulty_client::{SessionRequest, ZkRequestFate, is_heartbeat, throttled},
    simulated_time,
    supervised::{SupervisedSession, WaitingRequest},
};

/// After a release that left the parent, because another client waited below it, the next request does not try to
/// create it.
#[test]
fn unremoved_parent_is_expected_next_time() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let holds = hold(&session, LockKind::Native).await;
        let stranger = session.connect_other().await;
        let path = format!("{}/_c_0-w-", parent_of(&nodes(&session)[0]));
        stranger.create(&path, b"", NodeCreateMode::EphemeralSequential).await.expect("made");
        holds.clear().await;
        let with_its_parent =
            count_requests(&session, |asked| matches!(asked, SessionRequest::Commit { .. }));
        let waits = attempt(&session, "a").await;
        let asked = timeout(T / 4, waits.acquire(&mut WaitingRequest::default())).await;
        assert!(asked.is_err(), "the stranger holds");
        assert_eq!((with_its_parent.get(), nodes(&session).len()), (0, 2));
        waits.remove_nodes().await;
        drop((waits, holds));
        session.end().await;
    });
}

/// A request that is refused at once below a parent that other clients have created does not remove the parent.
#[test]
fn refused_request_keeps_foreign_parent() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let holds = hold(&session, LockKind::Native).await;
        let removes = Rc::new(Cell::new(0));
        let counted = removes.clone();
        session.doctor.set_rule(move |request| match request {
            SessionRequest::Create { kind: NodeCreateMode::EphemeralSequential, .. } => {
                ZkRequestFate::Refused(throttled())
            }
            SessionRequest::Commit { .. } if !is_heartbeat(request) => {
                counted.set(counted.get() + 1);
                ZkRequestFate::Passes
            }
            _ => ZkRequestFate::Passes,
        });
        let refused = attempt(&session, "a").await;
        let result = refused.acquire(&mut WaitingRequest::default()).await;
        assert!(result.is_err() && removes.get() == 0, "{result:?}");
        refused.remove_nodes().await;
        session.doctor.set_rule(|_| ZkRequestFate::Passes);
        holds.clear().await;
        drop((refused, holds));
        session.end().await;
    });
}
