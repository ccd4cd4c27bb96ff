//! One node that gateways share with foreign programs. The creator of the node holds the lock. A gateway removes
//! only its own node.

mod lost_answers;
mod strangers;

use std::{cell::Cell, ops::Deref, rc::Rc, time::Duration};

use fencegate_process::randomness::{Guid, SystemRandomness};
use fencegate_recipe::{
    exclusive_node::ExclusiveNodeAttempt,
    grant::{LockAttemptError, LockGrant},
    node_data,
};
use fencegate_tests::memory::SimSession;
use fencegate_zookeeper::{
    error::GrantError,
    session::client::{MultiOp, NodeCreateMode, NodeStat, ZkClient, ZkError},
};
use tokio::{
    task::{JoinHandle, spawn_local},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    faulty_client::{FaultySession, SessionRequest, ZkRequestFate, key},
    plan::ROOT,
    simulated_time,
    supervised::{SupervisedSession, WaitingRequest},
};

const T: Duration = Duration::from_secs(2);
const NODE: &str = "/app/locks/7";

/// A gateway's session that takes part in the lock of the shared node.
struct NodeFixture(SupervisedSession);

impl Deref for NodeFixture {
    type Target = SupervisedSession;

    fn deref(&self) -> &SupervisedSession {
        &self.0
    }
}

type OwnLock = ExclusiveNodeAttempt<FaultySession>;

impl NodeFixture {
    async fn new() -> Self {
        Self(SupervisedSession::start(T).await)
    }

    async fn begin_lock(&self) -> OwnLock {
        ExclusiveNodeAttempt::begin(&self.live(), &key("7"), NODE).await.expect("room")
    }

    /// Takes the lock with a request of this session.
    async fn acquire_lock(&self) -> (OwnLock, LockGrant) {
        let ours = self.begin_lock().await;
        let grant =
            ours.acquire(&mut WaitingRequest::default()).await.unwrap_or_else(|stop| panic!("{stop:?}"));
        (ours, grant)
    }

    async fn connect_program(&self) -> ForeignProgram {
        ForeignProgram(self.connect_other().await)
    }

    fn node(&self) -> Option<NodeStat> {
        self.ensemble.stat(NODE)
    }

    /// Asserts that no lock node of this session is left or registered.
    fn assert_clear(&self, what: &str) {
        let ours = self.node().filter(|seen| seen.owner == self.live().client.id());
        assert_eq!((ours, self.lock_nodes()), (None, Vec::new()), "{what}");
        assert_eq!((self.live().registry.node_count(), self.live().registry.path_bytes()), (0, 0), "{what}");
    }

    async fn end(self) {
        self.0.end().await;
    }
}

/// A foreign program, without a gateway.
struct ForeignProgram(SimSession);

impl ForeignProgram {
    /// Waits until the program has created the node. Returns the czxid.
    async fn wait_taken(&self) -> i64 {
        loop {
            match self.0.create(NODE, b"host-7", NodeCreateMode::Ephemeral).await {
                Ok(created) => return created.stat.czxid,
                Err(ZkError::NodeExists) => {}
                Err(ZkError::NoNode) => {
                    for above in ["/app", "/app/locks"] {
                        self.0.create(above, b"", NodeCreateMode::Persistent).await.ok();
                    }
                    continue;
                }
                Err(fault) => panic!("{fault}"),
            }
            if let Ok(gone) = self.0.watch(NODE).await {
                gone.await;
            }
        }
    }

    async fn release(&self) {
        self.0.delete(NODE).await.expect("nobody else removes it");
    }
}

/// True for a transaction that creates the shared node.
fn creates_node(asked: SessionRequest<'_>) -> bool {
    let makes = |step: &MultiOp<'_>| matches!(step, MultiOp::Create { path, .. } if *path == NODE);
    matches!(asked, SessionRequest::Commit { steps } if steps.iter().any(makes))
}

/// Starts a request that waits until it can create the node.
fn acquire(ours: OwnLock) -> (Rc<Cell<bool>>, JoinHandle<(OwnLock, LockGrant)>) {
    let mut asker = WaitingRequest::default();
    let behind = asker.behind.clone();
    let granted = spawn_local(async move {
        let grant = ours.acquire(&mut asker).await.unwrap_or_else(|stop| panic!("{stop:?}"));
        (ours, grant)
    });
    (behind, granted)
}

/// The creator of the node holds the lock, and each holder's number is larger than the one before, whether the
/// holder is a gateway or a program.
#[test]
fn creator_holds_and_numbers_grow() {
    simulated_time::run(async {
        let stage = NodeFixture::new().await;
        let plain = Rc::new(stage.connect_program().await);
        let mut last = 0;
        let (mut ours, mut grant) = stage.acquire_lock().await;
        for round in 0..3 {
            let seen = stage.node().expect("made");
            let live = stage.live();
            let number = u64::try_from(seen.czxid).expect("counted from one");
            assert_eq!((grant.epoch, grant.sequence, seen.owner), (live.base + number, 0, live.client.id()));
            assert!(seen.czxid > last, "round {round}");
            let theirs = plain.clone();
            let taken = spawn_local(async move { theirs.wait_taken().await });
            sleep(T).await;
            assert!(!taken.is_finished() && stage.node() == Some(seen), "round {round}: held twice");
            ours.remove_nodes().await;
            drop(ours);
            stage.assert_clear("given back");
            last = taken.await.expect("no panic");
            assert!(last > seen.czxid, "round {round}");

            let (behind, granted) = acquire(stage.begin_lock().await);
            sleep(T).await;
            assert!(behind.get() && !granted.is_finished(), "round {round}: held twice");
            plain.release().await;
            (ours, grant) = granted.await.expect("no panic");
            assert!(grant.contended, "round {round}");
        }
        ours.remove_nodes().await;
        drop(ours);
        stage.assert_clear("at the end");
        stage.end().await;
    });
}

/// Requests of one gateway queue and are granted in order, and only the first of them watches the node.
#[test]
fn only_first_waiter_watches_node() {
    simulated_time::run(async {
        let stage = NodeFixture::new().await;
        let plain = stage.connect_program().await;
        plain.wait_taken().await;
        let mut asking = Vec::new();
        for _ in 0..5 {
            asking.push(acquire(stage.begin_lock().await).1);
            sleep(T / 100).await;
        }
        let tries = Rc::new(Cell::new(0));
        let counted = tries.clone();
        stage.doctor.set_rule(move |request| {
            counted.set(counted.get() + u32::from(creates_node(request)));
            ZkRequestFate::Passes
        });
        sleep(T).await;
        assert_eq!((stage.lock_nodes().len(), tries.get()), (5, 0), "nothing has changed");
        plain.release().await;
        let mut last = 0;
        for granted in asking {
            let (ours, grant) = granted.await.expect("no panic");
            assert!(grant.epoch > last, "first come, first served");
            last = grant.epoch;
            ours.remove_nodes().await;
        }
        assert_eq!(tries.get(), 5, "each makes it once");
        stage.assert_clear("all were served");
        stage.end().await;
    });
}

/// A request that does not wait is refused at once, and leaves nothing.
#[test]
fn impatient_request_is_refused_at_once() {
    simulated_time::run(async {
        let stage = NodeFixture::new().await;
        let plain = stage.connect_program().await;
        let theirs = plain.wait_taken().await;
        let ours = stage.begin_lock().await;
        let result = ours.acquire(&mut WaitingRequest { impatient: true, ..WaitingRequest::default() }).await;
        assert!(matches!(result, Err(LockAttemptError::NotGranted(GrantError::Locked))), "{result:?}");
        ours.remove_nodes().await;
        drop(ours);
        stage.assert_clear("refused");
        assert_eq!(stage.node().map(|seen| seen.czxid), Some(theirs));
        stage.end().await;
    });
}

/// Missing nodes above the lock node are created as persistent nodes, and existing ones are left unchanged.
#[test]
fn missing_parents_are_created_persistent() {
    simulated_time::run(async {
        let stage = NodeFixture::new().await;
        let plain = stage.connect_program().await;
        plain.0.create("/app", b"theirs", NodeCreateMode::Persistent).await.expect("new");
        plain.0.create("/app/other", b"", NodeCreateMode::Ephemeral).await.expect("new");
        let (ours, _) = stage.acquire_lock().await;
        ours.remove_nodes().await;
        stage.ensemble.remove_empty_containers();
        let kept = ["/app", "/app/locks", "/app/other"].map(|path| stage.ensemble.stat(path).is_some());
        assert_eq!(kept, [true; 3]);
        assert_eq!(plain.0.data("/app").await.expect("theirs").0, b"theirs");
        stage.end().await;
    });
}

/// A node that is not ephemeral is not accepted as a lock, with a message that names `lock_path`.
#[test]
fn persistent_node_is_no_lock() {
    for kind in [NodeCreateMode::Persistent, NodeCreateMode::Container] {
        simulated_time::run(async move {
            let stage = NodeFixture::new().await;
            let plain = stage.connect_program().await;
            for (path, kind) in [
                ("/app", NodeCreateMode::Persistent),
                ("/app/locks", NodeCreateMode::Persistent),
                (NODE, kind),
            ] {
                plain.0.create(path, b"", kind).await.expect("new");
            }
            let ours = stage.begin_lock().await;
            let told = ours.acquire(&mut WaitingRequest::default()).await;
            let why = format!("{told:?}");
            assert!(why.contains("PlaceTaken") && why.contains("lock_path"), "{why}");
            ours.remove_nodes().await;
            drop(ours);
            stage.assert_clear("refused");
            stage.end().await;
        });
    }
}

/// The janitor removes a lock node of this session that has no owner. Nodes without its signature and those of other
/// sessions stay.
#[test]
fn janitor_removes_only_own_forgotten_nodes() {
    simulated_time::run(async {
        let stage = NodeFixture::new().await;
        let (held, _) = stage.acquire_lock().await;
        let live = stage.live();
        let plain = stage.connect_program().await;
        let forgotten = node_data::encode_exclusive_node_data(&live.member, Guid::new(&SystemRandomness));
        live.client
            .create("/app/forgotten", forgotten.as_bytes(), NodeCreateMode::Ephemeral)
            .await
            .expect("new");
        let in_line = format!("{ROOT}/locks/{}-w-", Guid::new(&SystemRandomness));
        let in_line = live
            .client
            .create(&in_line, b"", NodeCreateMode::EphemeralSequential)
            .await
            .map(|made| format!("{in_line}{:010}", made.sequence))
            .expect("new");
        // A node of this session that another recipe created, and a node of another session.
        live.client.create("/app/unsigned", b"x", NodeCreateMode::Ephemeral).await.expect("new");
        plain.0.create("/app/theirs", forgotten.as_bytes(), NodeCreateMode::Ephemeral).await.expect("new");
        sleep(T * 3).await;
        let left = [&*in_line, "/app/forgotten", "/app/unsigned", "/app/theirs", NODE];
        assert_eq!(left.map(|path| stage.ensemble.stat(path).is_some()), [false, false, true, true, true]);
        held.remove_nodes().await;
        stage.end().await;
    });
}
