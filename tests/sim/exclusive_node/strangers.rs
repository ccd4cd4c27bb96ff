//! Foreign clients remove the gateway's node while it is held. The gateway detects this, and leaves the foreign
//! nodes unchanged.

use super::{
    Cell, Duration, MultiOp, NODE, NodeCreateMode, NodeFixture, Rc, SessionRequest, T, WaitingRequest,
    ZkClient, creates_node, simulated_time, sleep, spawn_local, timeout,
};
use crate::faulty_client::{ZkRequestFate, throttled, unanswered};

/// True for a transaction that removes the shared node.
fn removes(asked: SessionRequest<'_>) -> bool {
    let of_it = |step: &MultiOp<'_>| matches!(step, MultiOp::Delete { path, .. } if *path == NODE);
    matches!(asked, SessionRequest::Commit { steps } if steps.iter().any(of_it))
}

/// If the delete was done but its answer was lost, the repeated delete does not remove the next holder's node.
#[test]
fn repeated_delete_spares_next_holder() {
    simulated_time::run(async {
        let stage = NodeFixture::new().await;
        let plain = Rc::new(stage.connect_program().await);
        let (ours, _) = stage.acquire_lock().await;
        let lost = Rc::new(Cell::new(0));
        let counted = lost.clone();
        stage.doctor.set_rule(move |request| match removes(request) {
            true if counted.replace(counted.get() + 1) < 3 => ZkRequestFate::Done(unanswered()),
            _ => ZkRequestFate::Passes,
        });
        let next = plain.clone();
        let taken = spawn_local(async move { next.wait_taken().await });
        ours.remove_nodes().await;
        drop(ours);
        let theirs = timeout(T, taken).await.expect("it is given back").expect("no panic");
        sleep(T * 3).await;
        assert!(lost.get() > 1, "it was not asked for again");
        assert_eq!(stage.node().map(|seen| seen.czxid), Some(theirs), "the successor's node was removed");
        stage.assert_clear("given back");
        stage.end().await;
    });
}

/// A delete that was not done is repeated until it is done.
#[test]
fn undone_delete_is_repeated() {
    simulated_time::run(async {
        let stage = NodeFixture::new().await;
        let (ours, _) = stage.acquire_lock().await;
        let lost = Cell::new(0);
        stage.doctor.set_rule(move |request| match removes(request) {
            true if lost.replace(lost.get() + 1) < 3 => ZkRequestFate::Refused(unanswered()),
            _ => ZkRequestFate::Passes,
        });
        ours.remove_nodes().await;
        drop(ours);
        assert_eq!(stage.node(), None);
        stage.assert_clear("given back");
        stage.end().await;
    });
}

/// If a foreign client removes the node, and another holder creates it again before the gateway notices, the gateway
/// detects the loss and leaves the new node.
#[test]
fn replacement_node_is_noticed_and_left() {
    for written in 0..2 {
        simulated_time::run(async move {
            let stage = NodeFixture::new().await;
            let plain = stage.connect_program().await;
            let (ours, _) = stage.acquire_lock().await;
            let watching = Rc::new(ours);
            let gone = Rc::new(Cell::new(false));
            let watched = watching.clone();
            let told = gone.clone();
            let watch = spawn_local(async move { watched.watch_own_node(&|_| told.set(true)).await });
            sleep(T).await;
            assert!(!gone.get(), "nothing has happened");
            stage.ensemble.delete_as_other_client(NODE);
            let theirs = plain.wait_taken().await;
            for _ in 0..written {
                let steps = [MultiOp::Set { path: NODE, data: b"host-7" }];
                plain.0.commit(&steps).await.expect("its own");
            }
            timeout(T / 10, watch).await.expect("it is told").expect("no panic");
            assert!(gone.get());
            watching.remove_nodes().await;
            drop(watching);
            assert_eq!(stage.node().map(|seen| seen.czxid), Some(theirs), "written {written} times");
            stage.assert_clear("given back");
            stage.end().await;
        });
    }
}

/// A release does not remove a successor's node if a foreign client has removed nodes that the gateway has not
/// missed yet: its node and its place in the queue, so that a program holds the lock, or only its place.
#[test]
fn release_spares_successor_after_removal() {
    for node in [true, false] {
        simulated_time::run(async move {
            let stage = NodeFixture::new().await;
            let plain = stage.connect_program().await;
            let (ours, _) = stage.acquire_lock().await;
            stage.lock_nodes().iter().for_each(|path| stage.ensemble.delete_as_other_client(path));
            let mut theirs = None;
            if node {
                stage.ensemble.delete_as_other_client(NODE);
                theirs = Some(plain.wait_taken().await);
            }
            ours.remove_nodes().await;
            drop(ours);
            assert_eq!(stage.node().map(|seen| seen.czxid), theirs);
            stage.assert_clear("given back");
            stage.end().await;
        });
    }
}

/// A node that another program has written to still belongs to the gateway, and is removed on release.
#[test]
fn overwritten_node_stays_ours() {
    simulated_time::run(async {
        let stage = NodeFixture::new().await;
        let plain = stage.connect_program().await;
        let (ours, _) = stage.acquire_lock().await;
        let watching = Rc::new(ours);
        let gone = Rc::new(Cell::new(false));
        let watched = watching.clone();
        let told = gone.clone();
        let watch = spawn_local(async move { watched.watch_own_node(&|_| told.set(true)).await });
        sleep(T / 2).await;
        plain.0.commit(&[MultiOp::Set { path: NODE, data: b"mine" }]).await.expect("anybody may");
        sleep(T / 2).await;
        assert!(!gone.get() && !watch.is_finished(), "it is still ours");
        watch.abort();
        drop(watch.await);
        watching.remove_nodes().await;
        drop(watching);
        assert_eq!(stage.node(), None, "and is given back");
        stage.assert_clear("given back");
        stage.end().await;
    });
}

/// A request is granted in the end although a foreign program, which does not queue, takes and releases the shared
/// node all the time.
#[test]
fn contended_node_is_acquired_eventually() {
    simulated_time::run(async {
        let stage = NodeFixture::new().await;
        let plain = Rc::new(stage.connect_program().await);
        let theirs = plain.clone();
        let busy = spawn_local(async move {
            loop {
                if theirs.0.create(NODE, b"host-7", NodeCreateMode::Ephemeral).await.is_ok() {
                    sleep(Duration::from_millis(5)).await;
                    theirs.release().await;
                }
                sleep(Duration::from_millis(1)).await;
            }
        });
        let (ours, _) = timeout(T * 5, stage.acquire_lock()).await.expect("it is had");
        ours.remove_nodes().await;
        busy.abort();
        drop((ours, busy.await));
        stage.assert_clear("given back");
        stage.end().await;
    });
}

/// If a foreign client removes a request's node and its place in the queue, another request of the same gateway gets
/// the lock, and the release of the first one leaves the new node.
#[test]
fn node_of_sibling_request_is_left() {
    simulated_time::run(async {
        let stage = NodeFixture::new().await;
        let (ours, _) = stage.acquire_lock().await;
        stage.lock_nodes().iter().for_each(|path| stage.ensemble.delete_as_other_client(path));
        stage.ensemble.delete_as_other_client(NODE);
        let (other, _) = stage.acquire_lock().await;
        let held = stage.node();
        ours.remove_nodes().await;
        assert_eq!(stage.node(), held);
        other.remove_nodes().await;
        drop((ours, other));
        stage.assert_clear("given back");
        stage.end().await;
    });
}

/// A node whose create was not answered is recognised by its data, even after a foreign client has removed the
/// request's place in the queue.
#[test]
fn unanswered_node_is_found_by_data() {
    simulated_time::run(async {
        let stage = NodeFixture::new().await;
        // Create the nodes above the shared node first, so that our request creates only the node itself.
        let plain = stage.connect_program().await;
        plain.wait_taken().await;
        plain.release().await;
        let ours = stage.begin_lock().await;
        let ensemble = stage.ensemble.clone();
        let tried = Cell::new(0);
        stage.doctor.set_rule(move |request| match creates_node(request) {
            true if tried.replace(tried.get() + 1) == 0 => ZkRequestFate::Done(unanswered()),
            true => {
                let places = ensemble.paths().into_iter().filter(|path| path.contains("-w-"));
                places.for_each(|path| ensemble.delete_as_other_client(&path));
                ZkRequestFate::Refused(throttled())
            }
            false => match request {
                SessionRequest::Data { path } if path == NODE && tried.get() < 2 => {
                    ZkRequestFate::Refused(unanswered())
                }
                _ => ZkRequestFate::Passes,
            },
        });
        let result = ours.acquire(&mut WaitingRequest::default()).await;
        assert!(result.is_err() && stage.node().is_some(), "{result:?}");
        ours.remove_nodes().await;
        drop(ours);
        stage.assert_clear("given back");
        stage.end().await;
    });
}
