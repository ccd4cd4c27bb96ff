//! An operation, and what ZooKeeper remembers of it.

use std::time::Duration;

use fencegate_lock::{
    once::{
        Admitted, Unwritten,
        denied::Denied,
        record::{Record, State},
        room::Owner,
    },
    session::link::{Connect, Fault, Link},
    tenures::tenure::Tenure,
};
use fencegate_policies::{
    operation::{Fingerprint, Operation, OperationId},
    plan::{Hold, Memory},
};
use fencegate_tests::memory::{Ensemble, Session, Settings};

use crate::{
    doctored::{Doctor, Library, Locks, key},
    plan::ROOT,
};

/// The session timeout.
pub(super) const T: Duration = Duration::from_secs(2);

pub(super) fn id(number: u8) -> OperationId {
    let mut id = [7; 32];
    id[31] = number;
    OperationId::of(id)
}

/// A request under the lock of `under`, which is the operation of this number.
pub(super) fn operation(number: u8, under: &Tenure) -> Unwritten {
    Unwritten {
        operation: Operation {
            id: id(number),
            former: None,
            fingerprint: Fingerprint::of([1; 32]),
            keep: 60,
            finals: Vec::new(),
            askable: true,
        },
        keys: vec![key("account/1")],
        nodes: under.nodes(),
        token: under.first_token().expect("nothing was sent yet"),
        method: "POST".into(),
        target: "/pay/1".into(),
        name: None,
        owner: Owner { route: "pay".into(), client: None },
        memory: Memory { route: 100, client: None },
    }
}

/// The path of the operation's record.
pub(super) fn place(wanted: &Unwritten) -> String {
    path(&wanted.operation.id)
}

pub(super) fn path(id: &OperationId) -> String {
    let id = id.to_string();
    format!("{ROOT}/ops/{}/{id}", &id[..2])
}

/// A session that is nobody's gateway.
pub(super) async fn looker(ensemble: &Ensemble) -> Session {
    ensemble.client(&ensemble.wire(), T).connect().await.expect("a session")
}

/// The state of the operation, as another session reads it, and the version of its node.
pub(super) async fn written(ensemble: &Ensemble, wanted: &Unwritten) -> (State, i32) {
    remembered(ensemble, wanted).await.expect("it was written down")
}

/// The same; `None` if nothing was written down.
pub(super) async fn remembered(ensemble: &Ensemble, wanted: &Unwritten) -> Option<(State, i32)> {
    match looker(ensemble).await.data(&place(wanted)).await {
        Ok((data, seen)) => Some((Record::parse(&data).expect("a record").state, seen.version)),
        Err(Fault::NoNode) => None,
        Err(fault) => panic!("{fault:?}"),
    }
}

/// A gateway that holds the lock of `account/1`.
pub(super) struct Stage {
    pub(super) ensemble: Ensemble,
    pub(super) doctor: Doctor,
    pub(super) locks: Locks,
    pub(super) tenure: Tenure,
}

impl Stage {
    pub(super) async fn set() -> Self {
        let (ensemble, doctor) = (Ensemble::start(Settings::default()), Doctor::new());
        let (locks, tenure) = gateway(&ensemble, &doctor, "account/1").await;
        Self { ensemble, doctor, locks, tenure }
    }

    pub(super) fn operation(&self, number: u8) -> Unwritten {
        operation(number, &self.tenure)
    }

    pub(super) async fn admit(&self, wanted: &Unwritten) -> Result<Admitted, Denied> {
        self.locks.keeper.admit(wanted.clone()).await
    }

    /// Why it is not admitted.
    pub(super) async fn denied(&self, wanted: &Unwritten) -> Denied {
        self.admit(wanted).await.map(drop).expect_err("not to be sent")
    }

    pub(super) async fn written(&self, wanted: &Unwritten) -> (State, i32) {
        written(&self.ensemble, wanted).await
    }

    pub(super) async fn leave(self) {
        self.tenure.known();
        drop(self.tenure);
        self.locks.stop().await;
    }
}

/// A gateway, and its tenure of a key.
pub(super) async fn gateway(ensemble: &Ensemble, doctor: &Doctor, key: &str) -> (Locks, Tenure) {
    let library = Library { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
    let locks = Locks::over(library).await;
    let tenure = locks.acquire(&[key], Hold::Strict).await.expect("free");
    (locks, tenure)
}
