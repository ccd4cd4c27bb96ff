//! A gateway behind a faulty link to ZooKeeper, and a peer without one.

use fencegate_policies::token::FencingToken;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, PendingRequest},
    held_request::HeldRequest,
    origin::{Latch, RequestRecord},
    policy::TestPolicy,
    site::TestSite,
    zookeeper::ZnodeTree,
    zookeeper_proxy::{LockNodeOperation, OperationFault, ZooKeeperProxy},
};
use serde_json::{Value, json};

/// The two ways in which the gateway behind the faulty link holds its locks.
pub(crate) const HOLDS: [fn() -> Value; 2] =
    [|| json!({"mode": "strict"}), || json!({"mode": "cached", "linger": "60ms"})];

/// A gateway behind a faulty link, and another gateway without one.
pub(crate) struct FaultyLinkGateways {
    pub(crate) site: TestSite,
    pub(crate) link: ZooKeeperProxy,
    pub(crate) tree: ZnodeTree,
    pub(crate) ours: Gateway,
    pub(crate) other: Gateway,
}

impl FaultyLinkGateways {
    pub(crate) async fn new(hold: Value) -> Self {
        Self::with_policy(|policy| policy.with("/defaults/hold", hold)).await
    }

    pub(super) async fn with_policy(change: impl FnOnce(TestPolicy) -> TestPolicy) -> Self {
        let site = TestSite::fresh().await;
        let link = ZooKeeperProxy::start(site.zookeeper).await;
        let policy = site
            .policy_without_janitor("ours")
            .with_zookeeper(link.address())
            .with("/zookeeper/sessions", 1)
            .with("/routes/0/fence/wait", "15s");
        let policy = change(policy);
        let (ours, other) = tokio::join!(Gateway::start(&policy), site.gateway("other"));
        let tree = site.tree().await;
        let pair = Self { site, link, tree, ours, other };
        pair.assert_key_free().await;
        pair
    }

    /// Asserts that the other gateway gets the key, which an orphaned node would block.
    pub(crate) async fn assert_key_free(&self) {
        assert_eq!(self.other.send(&TestRequest::post("/pay/7")).await.status, 200, "the key is blocked");
        self.wait_nothing_left().await;
    }

    pub(crate) async fn wait_nothing_left(&self) {
        self.tree.assert_no_locks().await;
    }

    /// Breaks the connection, and lets the next one work.
    pub(super) fn reconnect(&self) {
        self.link.cut();
        self.link.mend();
    }

    /// Ends the session of `ours` at the server, and waits until the gateway has noticed. It becomes ready only with a
    /// new session.
    pub(crate) async fn end_session(&self) {
        self.link.end_sessions();
        self.wait_session_ended().await;
    }

    pub(crate) async fn wait_session_ended(&self) {
        self.ours.wait_line("the end of the session", |line| line.message() == "session.ended").await;
    }

    /// Sends a request to `ours`, and waits until the origin executes it.
    pub(crate) async fn hold_request(&self) -> (PendingRequest, RequestRecord, Latch) {
        let HeldRequest { request, record, latch } =
            self.site.origin.hold_request(&self.ours, TestRequest::post("/pay/7")).await;
        (request, record, latch)
    }

    /// Lets a request of the other gateway hold the key, and a request of `ours` wait behind it.
    pub(crate) async fn queue_request(&self) -> (HeldRequest, PendingRequest) {
        let holder = self.site.origin.hold_request(&self.other, TestRequest::post("/pay/7")).await;
        let waiter = self.ours.begin(TestRequest::post("/pay/7"));
        self.tree.wait_waiters(1).await;
        (holder, waiter)
    }

    /// Serves a request, applies `fate` to the removal of its lock node, and returns the token of the request.
    pub(crate) async fn remove_with_fault(&self, fate: OperationFault) -> Option<FencingToken> {
        let removed = self.link.intercept(LockNodeOperation::Delete, fate);
        let answer = self.ours.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
        removed.wait().await;
        answer.token()
    }

    /// Asserts that `ours` serves a request, with a token that is larger than `before`.
    pub(crate) async fn assert_ours_serves(&self, before: Option<FencingToken>) {
        self.ours.wait_ready().await;
        let answer = self.ours.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
        assert!(answer.token() > before, "{:?} after {before:?}", answer.token());
        self.wait_nothing_left().await;
        self.assert_key_free().await;
    }
}

pub(crate) async fn assert_served(asked: PendingRequest) {
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
}
