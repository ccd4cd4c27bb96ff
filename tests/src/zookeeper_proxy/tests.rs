//! Tests of the proxy's faults, against a real ZooKeeper.

use std::time::Instant;

use fencegate_policies::plan::LockMode;
use fencegate_recipe::layout::LockQueueLayout;
use fencegate_testkit::wait::{QUIET, wait_until};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::*;
use crate::{origin::Latch, zookeeper};

struct TestConnection {
    link: ZooKeeperProxy,
    client: Client,
    /// A client that reaches the server without the proxy.
    witness: Client,
    root: String,
}

impl TestConnection {
    async fn new() -> Self {
        let link = ZooKeeperProxy::start(zookeeper::shared()).await;
        let connect = async |address: SocketAddr| {
            let connector = Client::connector().with_session_timeout(Duration::from_secs(4));
            connector.connect(&address.to_string()).await.expect("ZooKeeper serves")
        };
        let client = connect(link.address()).await;
        let witness = connect(zookeeper::shared()).await;
        let root = zookeeper::fresh_root();
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        witness.mkdir(&root, &persistent).await.expect("made");
        Self { link, client, witness, root }
    }

    async fn create(&self) -> Result<(), Error> {
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let name = LockQueueLayout::Native.mode_marker(LockMode::Exclusive);
        self.client.create(&format!("{}/n{name}", self.root), b"", &mode).await.map(drop)
    }

    async fn nodes(&self) -> usize {
        self.witness.list_children(&self.root).await.expect("listed").len()
    }
}

/// If an answer is lost, the operation was still carried out, and the connection ends.
#[tokio::test]
async fn lost_answer_keeps_effect_and_disconnects() {
    let all = TestConnection::new().await;
    let sprung = all.link.intercept(LockNodeOperation::Create, OperationFault::AnswerLost);
    all.client.list_children(&all.root).await.expect("another operation is let through");
    all.create().await.expect_err("no answer");
    sprung.wait().await;
    assert_eq!(all.nodes().await, 1);
    all.create().await.expect("once, and over a new connection");
    assert_eq!(all.nodes().await, 2);
}

#[tokio::test]
async fn vanished_request_has_no_effect() {
    let all = TestConnection::new().await;
    let sprung = all.link.intercept(LockNodeOperation::Create, OperationFault::Vanishes);
    let (created, ()) = tokio::join!(all.create(), async {
        sprung.wait().await;
        all.link.cut();
        all.link.mend();
    });
    created.expect_err("no answer");
    assert_eq!(all.nodes().await, 0);
    all.create().await.expect("over a new connection");
}

#[tokio::test]
async fn held_answer_arrives_after_release() {
    let all = TestConnection::new().await;
    let latch = Latch::default();
    let sprung = all.link.intercept(LockNodeOperation::Create, OperationFault::AnswerHeld(latch.clone()));
    let created = async {
        all.create().await.expect("answered");
        Instant::now()
    };
    let (answered, let_go) = tokio::join!(created, async {
        sprung.wait().await;
        assert_eq!(all.nodes().await, 1);
        tokio::time::sleep(QUIET).await;
        let now = Instant::now();
        latch.release();
        now
    });
    assert!(answered > let_go);
}

#[tokio::test]
async fn ended_session_loses_its_nodes() {
    let all = TestConnection::new().await;
    all.create().await.expect("made");
    all.link.end_sessions();
    let mut state = all.client.state_watcher();
    let over = async { while !state.changed().await.is_terminated() {} };
    wait_until("the client to learn of it", over, || "nothing").await;
    assert_eq!(all.nodes().await, 0);
}

/// A silent proxy passes no message in either direction, and its reset is an error for the client.
#[tokio::test]
async fn silent_link_blocks_until_reset() {
    let all = TestConnection::new().await;
    for lose in [ZooKeeperProxy::lose_replies, ZooKeeperProxy::lose_requests, ZooKeeperProxy::lose_all] {
        // Wait until the client is connected. A client sends requests of a disconnected time later, so these would
        // not be lost.
        all.client.list_children(&all.root).await.expect("connected");
        lose(&all.link);
        let mut created = std::pin::pin!(all.create());
        assert!(tokio::time::timeout(QUIET, &mut created).await.is_err(), "answered");
        all.link.reset();
        all.link.mend();
        created.await.expect_err("no answer");
    }
    assert_eq!(all.nodes().await, 1, "only what was said while replies were lost was done");
}

#[tokio::test]
async fn slow_link_delays_every_answer() {
    const DELAY: Duration = Duration::from_millis(200);
    let all = TestConnection::new().await;
    all.link.delay(DELAY);
    let begun = Instant::now();
    let (one, two) = tokio::join!(all.create(), all.create());
    assert_eq!((one, two), (Ok(()), Ok(())));
    let took = begun.elapsed();
    assert!(took >= DELAY, "took {took:?}");
}
