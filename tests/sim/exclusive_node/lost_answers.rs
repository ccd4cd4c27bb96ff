//! Plays an accident at each operation of a request: a lost answer, a caller that goes away, the end of the session,
//! or a foreign client that removes a node. The lock is either held or not, no node of the request is left, and no
//! other node is removed.

use super::{
    CancellationToken, Cell, Duration, ForeignProgram, LockAttemptError, NodeFixture, OwnLock, Rc, T,
    WaitingRequest, ZkClient, simulated_time, sleep, spawn_local, timeout,
};
use crate::faulty_client::{ZkRequestFate, is_heartbeat, unanswered};

/// The accident, which happens just before an operation or to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepFault {
    LostAnswer,
    LostRequest,
    CallerGone,
    SessionEnds,
    NodeStolen,
    PlaceStolen,
}

/// The minimum number of operations of a request, from its first one to its release.
const LEAST: u32 = 10;

/// The holder of the node before our request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PriorHolder {
    /// The node had no holder.
    Nobody,
    /// The program that shares the node.
    Program,
}

/// A gateway's session, and a foreign program that takes the shared node after our request.
struct FaultFixture {
    stage: Rc<NodeFixture>,
    plain: Rc<ForeignProgram>,
    gone: CancellationToken,
    struck: Rc<Cell<bool>>,
}

impl FaultFixture {
    async fn new(before: PriorHolder) -> Self {
        let stage = Rc::new(NodeFixture::new().await);
        let plain = Rc::new(stage.connect_program().await);
        if before == PriorHolder::Program {
            plain.wait_taken().await;
        }
        Self { stage, plain, gone: CancellationToken::new(), struck: Rc::default() }
    }

    /// Makes the accident happen at this operation of the gateway's session, counted from now.
    fn schedule_fault(&self, accident: StepFault, at: u32) {
        let stage = self.stage.clone();
        let plain = self.plain.clone();
        let gone = self.gone.clone();
        let mut count = 0;
        let struck = self.struck.clone();
        self.stage.doctor.set_rule(move |request| {
            if is_heartbeat(request) || struck.get() {
                return ZkRequestFate::Passes;
            }
            count += 1;
            if count <= at {
                return ZkRequestFate::Passes;
            }
            struck.set(true);
            match accident {
                StepFault::LostAnswer => return ZkRequestFate::Done(unanswered()),
                StepFault::LostRequest => return ZkRequestFate::Refused(unanswered()),
                StepFault::CallerGone => gone.cancel(),
                StepFault::SessionEnds => stage.doctor.wire().expire(),
                StepFault::NodeStolen if stage.node().is_some_and(|seen| seen.owner == plain.0.id()) => {}
                StepFault::NodeStolen => stage.ensemble.delete_as_other_client(super::NODE),
                StepFault::PlaceStolen => {
                    stage.lock_nodes().iter().for_each(|path| stage.ensemble.delete_as_other_client(path))
                }
            }
            ZkRequestFate::Passes
        });
    }

    /// Releases the node if the program holds it, and takes it again as soon as possible. Returns the czxid of the
    /// program's last node.
    async fn run_program(plain: Rc<ForeignProgram>, before: PriorHolder) -> i64 {
        sleep(Duration::from_millis(200)).await;
        if before == PriorHolder::Program {
            plain.release().await;
        }
        // In this time our request takes and releases the lock.
        sleep(Duration::from_millis(200)).await;
        plain.wait_taken().await
    }

    /// Takes the lock, holds it for a while, and releases it. Returns the number of the grant, or an error if the
    /// lock was not granted.
    async fn hold_and_release(&self, ours: &OwnLock) -> Result<u64, LockAttemptError> {
        let mut asker = WaitingRequest { gone: self.gone.clone(), ..WaitingRequest::default() };
        let granted = timeout(T * 20, ours.acquire(&mut asker)).await.expect("an attempt ends");
        if granted.is_ok() {
            let removed = Cell::new(false);
            let gone = |_: &str| removed.set(true);
            drop(timeout(T / 2, ours.watch_own_node(&gone)).await);
        }
        timeout(T * 20, ours.remove_nodes()).await.expect("giving back ends");
        granted.map(|grant| grant.epoch)
    }
}

/// Plays one accident. Returns false if the request had fewer operations than `at`, so that no accident happened.
fn play(before: PriorHolder, accident: StepFault, at: u32) -> bool {
    simulated_time::run(async move {
        let what = format!("{accident:?} at operation {at}, after {before:?}");
        let scene = FaultFixture::new(before).await;
        let stage = scene.stage.clone();
        let plain = scene.plain.clone();
        let theirs = spawn_local(FaultFixture::run_program(plain.clone(), before));
        scene.schedule_fault(accident, at);
        let ours = stage.begin_lock().await;
        let came_to = scene.hold_and_release(&ours).await;
        let may_fail = !matches!(accident, StepFault::LostAnswer | StepFault::LostRequest);
        assert!(came_to.is_ok() || may_fail, "{what}: {came_to:?}");
        drop(ours);
        let theirs = timeout(T * 20, theirs).await.unwrap_or_else(|_| panic!("{what}: it is not given back"));
        // Wait for requests of the gateway that are still in flight.
        sleep(T * 3).await;
        let seen = stage.node().map(|seen| (seen.owner, seen.czxid));
        assert_eq!(
            seen,
            Some((plain.0.id(), theirs.expect("no panic"))),
            "{what}: a node of theirs was removed"
        );
        stage.assert_clear(&what);
        scene.struck.get()
    })
}

/// After an accident at any operation no node of the gateway is left, and no node of another client is removed.
#[test]
fn accident_leaves_foreign_nodes_only() {
    use StepFault::*;
    for before in [PriorHolder::Nobody, PriorHolder::Program] {
        for accident in [LostAnswer, LostRequest, CallerGone, SessionEnds, NodeStolen, PlaceStolen] {
            let steps = (0..200).find(|at| !play(before, accident, *at)).expect("it ends");
            eprintln!("{accident:?} after {before:?}: {steps} operations");
            assert!(steps >= LEAST, "{accident:?} after {before:?}: {steps} operations");
        }
    }
}
