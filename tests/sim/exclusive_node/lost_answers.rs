//! Plays an accident at each step: a lost answer, a caller that goes away, the end of the session, or a foreign
//! client that removes a node. The lock is either held or not, no node of ours is left, and no other node is removed.

use super::{
    CancellationToken, Cell, Duration, ForeignProgram, LockAttemptError, NodeFixture, OwnLock, Rc, T,
    WaitingRequest, ZkClient, simulated_time, sleep, spawn_local, timeout,
};
use crate::faulty_client::{ZkRequestFate, is_heartbeat, unanswered};

/// The accident just before an operation, or at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepFault {
    LostAnswer,
    LostRequest,
    CallerGone,
    SessionEnds,
    NodeStolen,
    PlaceStolen,
}

/// The fewest operations from the request for the lock to its end.
const LEAST: u32 = 10;

/// The holder of the node before us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PriorHolder {
    /// The node had no holder.
    Nobody,
    /// The program that shares the node.
    Program,
}

/// A program that shares the node and wants it after us.
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

    /// Lets the accident happen at this operation of our session, counted from now.
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
                StepFault::NodeStolen => stage.ensemble.steal(super::NODE),
                StepFault::PlaceStolen => {
                    stage.lock_nodes().iter().for_each(|path| stage.ensemble.steal(path))
                }
            }
            ZkRequestFate::Passes
        });
    }

    /// The czxid of the program's node at the end. The program gives its node back, and takes the node again as soon
    /// as possible.
    async fn run_program(plain: Rc<ForeignProgram>, before: PriorHolder) -> i64 {
        sleep(Duration::from_millis(200)).await;
        if before == PriorHolder::Program {
            plain.release().await;
        }
        // Our request has its turn in this time.
        sleep(Duration::from_millis(200)).await;
        plain.wait_taken().await
    }

    /// Takes the lock, holds it for a while, and gives it back. `Err`: the lock was not granted.
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

/// Returns whether our session came to that operation.
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
        // Requests of ours may still be on their way.
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

/// An accident at any step leaves no node of ours, and all nodes of other clients.
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
