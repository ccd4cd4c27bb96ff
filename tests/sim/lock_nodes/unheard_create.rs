//! If the answer to the create of a lock node is lost, the attempt finds its node by the GUID in the name.

use std::{cell::Cell, rc::Rc};

use fencegate_zookeeper::session::client::{NodeCreateMode, ZkClient};
use tokio::time::{sleep, timeout};

use super::fixture::{LockKind, T, attempt, hold, nodes, parent_of};
use crate::{
    faulty_client::{SessionRequest, ZkRequestFate, unanswered},
    simulated_time,
    supervised::{SupervisedSession, WaitingRequest},
};

/// If the client library has repeated a create, and both were done, the node with the lower number holds, and the
/// other one is removed.
#[test]
fn lower_of_two_nodes_holds() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        // Another lock below the same parent exists first, so that our request creates only its node.
        let stranger = session.connect_other().await;
        let before = hold(&session, LockKind::Native).await;
        let parent = parent_of(&nodes(&session)[0]);
        let deaf = Rc::new(Cell::new(true));
        let still = deaf.clone();
        session.doctor.set_rule(move |request| match request {
            // From the create on, all answers are lost for a while.
            SessionRequest::Create { kind: NodeCreateMode::EphemeralSequential, .. } => {
                ZkRequestFate::Done(unanswered())
            }
            SessionRequest::Children { .. } if still.get() => ZkRequestFate::Refused(unanswered()),
            _ => ZkRequestFate::Passes,
        });
        let twice = attempt(&session, "a").await;
        let asker = &mut WaitingRequest::default();
        let (granted, ()) = tokio::join!(twice.acquire(asker), async {
            sleep(T / 4).await;
            let ours = nodes(&session).pop().expect("the later one of two");
            session.doctor.set_rule(|_| ZkRequestFate::Passes);
            let again = &ours[..ours.len() - 10];
            session
                .live()
                .client
                .create(again, b"", NodeCreateMode::EphemeralSequential)
                .await
                .expect("made");
            assert_eq!(stranger.children(&parent).await.expect("there").len(), 3);
            deaf.set(false);
            sleep(T / 4).await;
            before.clear().await;
        });
        let granted = granted.unwrap_or_else(|stop| panic!("{stop:?}"));
        assert_eq!((granted.sequence, nodes(&session)), (1, granted.nodes.to_vec()));
        twice.remove_nodes().await;
        drop((before, twice));
        assert_eq!(nodes(&session), [""; 0]);
        session.end().await;
    });
}

/// If a request is given up while it looks for a node whose create was not answered, the node is found and removed.
#[test]
fn abandoned_search_removes_found_node() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let holds = hold(&session, LockKind::Native).await;
        let fails = Rc::new(Cell::new(u32::MAX));
        let failing = fails.clone();
        session.doctor.set_rule(move |request| match request {
            SessionRequest::Create { kind: NodeCreateMode::EphemeralSequential, .. } => {
                ZkRequestFate::Done(unanswered())
            }
            SessionRequest::Children { .. } if failing.get() > 0 => {
                failing.set(failing.get() - 1);
                ZkRequestFate::Refused(unanswered())
            }
            _ => ZkRequestFate::Passes,
        });
        let waits = attempt(&session, "a").await;
        let given_up = timeout(T / 4, waits.acquire(&mut WaitingRequest::default())).await;
        assert!(given_up.is_err() && nodes(&session).len() == 2);
        fails.set(2);
        waits.remove_nodes().await;
        assert_eq!(nodes(&session).len(), 1, "of the holder");
        holds.clear().await;
        drop((waits, holds));
        session.end().await;
    });
}
