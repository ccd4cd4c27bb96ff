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

/// How the gateway behind the faulty link keeps its locks.
pub(crate) const HOLDS: [fn() -> Value; 2] =
    [|| json!({"mode": "strict"}), || json!({"mode": "cached", "linger": "60ms"})];

/// A gateway behind a faulty link, and one beside it.
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

    /// Another gateway gets the key. An orphan would block it.
    pub(crate) async fn assert_key_free(&self) {
        assert_eq!(self.other.send(&TestRequest::post("/pay/7")).await.status, 200, "the key is blocked");
        self.wait_nothing_left().await;
    }

    pub(crate) async fn wait_nothing_left(&self) {
        self.tree.assert_no_locks().await;
    }

    /// The connection breaks, and the next one is good.
    pub(super) fn reconnect(&self) {
        self.link.cut();
        self.link.mend();
    }

    /// The server ends our gateway's session, and the gateway has noticed: it is ready only with another one.
    pub(crate) async fn end_session(&self) {
        self.link.end_sessions();
        self.wait_session_ended().await;
    }

    pub(crate) async fn wait_session_ended(&self) {
        self.ours.wait_line("the end of the session", |line| line.message() == "session.ended").await;
    }

    /// Asks our gateway and waits until the origin works for it.
    pub(crate) async fn hold_request(&self) -> (PendingRequest, RequestRecord, Latch) {
        let HeldRequest { request, record, latch } =
            self.site.origin.hold_request(&self.ours, TestRequest::post("/pay/7")).await;
        (request, record, latch)
    }

    /// A request of the other gateway holds the key, and a request of our gateway waits behind it.
    pub(crate) async fn queue_request(&self) -> (HeldRequest, PendingRequest) {
        let holder = self.site.origin.hold_request(&self.other, TestRequest::post("/pay/7")).await;
        let waiter = self.ours.begin(TestRequest::post("/pay/7"));
        self.tree.wait_waiters(1).await;
        (holder, waiter)
    }

    /// Serves a request whose lock node meets a fate when it is removed, and tells the token that it was sent with.
    pub(crate) async fn remove_with_fault(&self, fate: OperationFault) -> Option<FencingToken> {
        let removed = self.link.intercept(LockNodeOperation::Delete, fate);
        let answer = self.ours.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
        removed.wait().await;
        answer.token()
    }

    /// Our gateway serves by itself, with tokens that are larger than `before`.
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
