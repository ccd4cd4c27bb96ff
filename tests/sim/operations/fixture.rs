//! A gateway that holds a lock, its operations, and their records in ZooKeeper.

use std::time::Duration;

use fencegate_idempotency::{
    OperationPermit, OperationToRecord,
    error::AdmitOperationError,
    quota::OperationQuotaOwner,
    record::{OperationRecord, OperationState},
};
use fencegate_lock::manager::grant_guard::GrantGuard;
use fencegate_policies::{
    operation::{FencingOperationHeader, OperationId, RequestFingerprint},
    plan::{LockReusePolicy, OperationQuota},
};
use fencegate_tests::memory::{EnsembleSettings, SimEnsemble, SimSession};
use fencegate_zookeeper::session::client::{ZkClient, ZkConnector, ZkError};

use crate::{
    faulty_client::{FaultInjector, FaultyClient, GatewayLockStack, key},
    plan::ROOT,
};

/// The session timeout.
pub(super) const T: Duration = Duration::from_secs(2);

pub(super) fn id(number: u8) -> OperationId {
    let mut id = [7; 32];
    id[31] = number;
    OperationId::from_bytes(id)
}

/// The operation of this number, requested under the lock of `under`.
pub(super) fn operation(number: u8, under: &GrantGuard) -> OperationToRecord {
    OperationToRecord {
        operation: FencingOperationHeader {
            id: id(number),
            former: None,
            fingerprint: RequestFingerprint::from_bytes([1; 32]),
            keep: 60,
            finals: Vec::new(),
            askable: true,
        },
        keys: vec![key("account/1")],
        nodes: under.node_paths(),
        token: under.predispatch_token().expect("nothing was sent yet"),
        method: "POST".into(),
        target: "/pay/1".into(),
        name: None,
        owner: OperationQuotaOwner { route: "pay".into(), client: None },
        memory: OperationQuota { route: 100, client: None },
    }
}

/// The path of the operation's record.
pub(super) fn record_path(wanted: &OperationToRecord) -> String {
    path(&wanted.operation.id)
}

pub(super) fn path(id: &OperationId) -> String {
    let id = id.to_string();
    format!("{ROOT}/ops/{}/{id}", &id[..2])
}

/// A session that belongs to no gateway.
pub(super) async fn connect_observer(ensemble: &SimEnsemble) -> SimSession {
    ensemble.client(&ensemble.wire(), T).connect().await.expect("a session")
}

/// The recorded state of an operation, as another session reads it, and the version of its node.
pub(super) async fn stored_state(
    ensemble: &SimEnsemble,
    wanted: &OperationToRecord,
) -> (OperationState, i32) {
    remembered_state(ensemble, wanted).await.expect("it was written down")
}

/// As [`stored_state`]; `None` if there is no record.
pub(super) async fn remembered_state(
    ensemble: &SimEnsemble,
    wanted: &OperationToRecord,
) -> Option<(OperationState, i32)> {
    match connect_observer(ensemble).await.data(&record_path(wanted)).await {
        Ok((data, seen)) => Some((OperationRecord::parse(&data).expect("a record").state, seen.version)),
        Err(ZkError::NoNode) => None,
        Err(fault) => panic!("{fault:?}"),
    }
}

/// A gateway that holds the lock of `account/1`.
pub(super) struct OperationFixture {
    pub(super) ensemble: SimEnsemble,
    pub(super) doctor: FaultInjector,
    pub(super) locks: GatewayLockStack,
    pub(super) tenure: GrantGuard,
}

impl OperationFixture {
    pub(super) async fn new() -> Self {
        let ensemble = SimEnsemble::start(EnsembleSettings::default());
        let doctor = FaultInjector::new();
        let (locks, tenure) = gateway(&ensemble, &doctor, "account/1").await;
        Self { ensemble, doctor, locks, tenure }
    }

    pub(super) fn operation(&self, number: u8) -> OperationToRecord {
        operation(number, &self.tenure)
    }

    pub(super) async fn admit(
        &self,
        wanted: &OperationToRecord,
    ) -> Result<OperationPermit, AdmitOperationError> {
        self.locks.keeper.admit_operation(wanted.clone()).await
    }

    /// Asserts that an operation is not admitted, and returns the reason.
    pub(super) async fn expect_denied(&self, wanted: &OperationToRecord) -> AdmitOperationError {
        self.admit(wanted).await.map(drop).expect_err("not to be sent")
    }

    pub(super) async fn stored_state(&self, wanted: &OperationToRecord) -> (OperationState, i32) {
        stored_state(&self.ensemble, wanted).await
    }

    pub(super) async fn leave(self) {
        self.tenure.mark_upstream_settled();
        drop(self.tenure);
        self.locks.stop().await;
    }
}

/// Starts a gateway that holds the lock of a key.
pub(super) async fn gateway(
    ensemble: &SimEnsemble,
    doctor: &FaultInjector,
    key: &str,
) -> (GatewayLockStack, GrantGuard) {
    let library = FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
    let locks = GatewayLockStack::new(library).await;
    let tenure = locks.acquire(&[key], LockReusePolicy::Strict).await.expect("free");
    (locks, tenure)
}
