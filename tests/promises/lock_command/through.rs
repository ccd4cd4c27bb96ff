//! `fencegate lock` and `fencegate elect` through the HTTP interface of gateways: the lock is a lease, which the
//! command may show in its requests.

use fencegate_lock::client::{ConnectOptions, LockClient};
use fencegate_process::clock::{Clock, MachineClock};
use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    charged::{CommandBehavior, LockedCommand, TestLockSource},
    client::TestRequest,
    gateway::Gateway,
    leases::{CLIENT, LeaseTokens, OPERATOR, json_body},
    site::TestSite,
};
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

async fn one() -> (TestSite, LeaseTokens, Gateway) {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    // The session timeout is long enough that a busy machine does not end the session.
    let policy = tokens.policy(&site, "gw-1").with("/zookeeper/session_timeout", "8s");
    let gateway = Gateway::start(&policy).await;
    (site, tokens, gateway)
}

fn lock_source(gateway: &Gateway, tokens: &LeaseTokens) -> TestLockSource {
    TestLockSource::via_gateways(&[gateway], &tokens.file("client"))
}

/// Asserts that the next holder of the key gets the lock only when the command is dead.
async fn assert_dead_before_next(site: &TestSite, charged: &LockedCommand, key: &str) {
    let session_timeout = Duration::from_secs(2);
    let tick = Duration::from_millis(200);
    let options = ConnectOptions {
        session_timeout,
        tick,
        ..ConnectOptions::new(&site.zookeeper.to_string(), &site.root, "next")
    };
    let next = LockClient::connect(options).await.expect("ZooKeeper serves");
    let held = next.lock(key).wait(Duration::from_secs(20)).await.expect("its turn comes");
    let granted = MachineClock.now();
    let life = charged.record().expect("it lived");
    assert!(life.last < granted && life.token < held.token().to_string(), "{life:?} {granted:?}");
    held.release();
    next.close().await;
}

/// The reference of the only lease at the gateway.
async fn reference(gateway: &Gateway) -> String {
    let list =
        TestRequest::get("/.fencegate/v1/leases").field("authorization", &format!("Bearer {OPERATOR}"));
    let list = json_body(&gateway.send(&list).await);
    list["leases"][0]["reference"].as_str().expect("one lease").to_owned()
}

/// A command shows its lease, which is renewed beyond its TTL, and is ended when an operator revokes it.
#[tokio::test]
async fn command_shows_lease_until_revoked() {
    let (site, tokens, gateway) = one().await;
    let verb = ["lock", "account/7", "--ttl", "5s", "-v"];
    let line = "trap 'echo asked; exit 3' TERM; echo lease=$FENCING_LEASE; while :; do sleep 0.05; done";
    let charged = LockedCommand::spawn_shell(lock_source(&gateway, &tokens), &verb, line);
    let lease = charged.wait_output("lease=v1.").await.replace("lease=", "");
    assert!(
        !charged.log().lines().any(|said| !said.starts_with("lease=") && said.contains(&lease)),
        "the log tells it"
    );
    let without = gateway.send(&TestRequest::post("/pay/7").field("prefer", "wait=0")).await;
    let under = gateway.send(&TestRequest::post("/pay/7").field("fencing-lease", &lease)).await;
    assert_eq!((without.status, under.status), (423, 200));
    // The lease is renewed beyond its TTL of 5 s.
    sleep(Duration::from_secs(6)).await;
    assert!(charged.is_running(), "{}", charged.log());
    let revoke = format!("/.fencegate/v1/leases/{}/revoke", reference(&gateway).await);
    let revoke = TestRequest::post(&revoke)
        .field("authorization", &format!("Bearer {OPERATOR}"))
        .body(json!({"why": "maintenance"}).to_string());
    assert!(gateway.send(&revoke).await.status < 300);
    charged.wait_output("asked").await;
    assert_eq!(charged.exit().await, 123, "{}", charged.log());
    assert!(charged.log().contains("wanted back"), "{}", charged.log());
    // The lease was released before its TTL was over, so the key is free.
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    drop(site);
}

/// A `lock` through gateways queues for its key and leaves the queue on SIGTERM or after `--wait`; without rights it
/// fails.
#[tokio::test]
async fn waiter_queues_and_leaves() {
    let (_site, tokens, gateway) = one().await;
    let holder = LockedCommand::spawn_shell(
        lock_source(&gateway, &tokens),
        &["lock", "job/1"],
        "echo up; exec sleep 60",
    );
    holder.wait_output("up").await;
    for (wait, code) in [("0s", 124), ("1500ms", 124)] {
        let refused = LockedCommand::spawn_shell(
            lock_source(&gateway, &tokens),
            &["lock", "job/1", "--wait", wait],
            "echo executed",
        );
        assert_eq!(refused.exit().await, code, "{}", refused.log());
        assert!(refused.log().contains("FG0621") && !refused.log().contains("executed"), "{}", refused.log());
    }
    let leaves =
        LockedCommand::spawn_shell(lock_source(&gateway, &tokens), &["lock", "job/1", "-v"], "echo executed");
    leaves.wait_output("waits for").await;
    let waits =
        LockedCommand::spawn_shell(lock_source(&gateway, &tokens), &["lock", "job/1", "-v"], "echo executed");
    waits.wait_output("waits for").await;
    leaves.signal(Signal::TERM);
    assert_eq!(leaves.exit().await, 125, "{}", leaves.log());
    holder.signal(Signal::TERM);
    assert_eq!(holder.exit().await, 143);
    assert_eq!(waits.exit().await, 0, "{}", waits.log());
    for (file, key) in [("other", "job/1"), ("nobody", "job/1"), ("client", "secret/1")] {
        let refused = LockedCommand::spawn_shell(
            TestLockSource::via_gateways(&[&gateway], &tokens.file(file)),
            &["lock", key],
            "echo executed",
        );
        assert_eq!(refused.exit().await, 125, "{file} {key}: {}", refused.log());
        assert!(!refused.log().contains("executed"), "{}", refused.log());
    }
}

/// A command runs although its lease was granted late in the wait.
///
/// The promised time of a lease counts from the query for it, and this query waits for longer than that time.
#[tokio::test]
async fn late_grant_still_runs_command() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1")).await;
    let holder = LockedCommand::spawn_shell(
        lock_source(&gateway, &tokens),
        &["lock", "job/1"],
        "echo up; exec sleep 60",
    );
    holder.wait_output("up").await;
    let verb = ["lock", "job/1", "--ttl", "12s", "--wait", "20s", "-v"];
    let waits = LockedCommand::spawn_shell(lock_source(&gateway, &tokens), &verb, "echo executed; sleep 3");
    waits.wait_output("waits for").await;
    // A query waits for up to 4 s, and the session timeout of the gateway is 2 s.
    sleep(Duration::from_secs(3)).await;
    holder.signal(Signal::TERM);
    assert_eq!(holder.exit().await, 143, "{}", holder.log());
    assert_eq!(waits.exit().await, 0, "{}", waits.log());
    assert!(waits.log().contains("executed"), "{}", waits.log());
}

/// A command is dead before the next grant when its lease is broken or its process or gateway is stopped or killed.
#[tokio::test]
async fn command_dies_before_next_grant() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policies = ["gw-1", "gw-2"].map(|name| tokens.policy(&site, name));
    let (one, other) = Gateway::start_both(&policies[0], &policies[1]).await;
    let doors = || TestLockSource::via_gateways(&[&one, &other], &tokens.file("client"));
    let begin = |key: &str| {
        LockedCommand::spawn(
            doors(),
            &["lock", key, "--ttl", "3s", "--grace", "250ms"],
            CommandBehavior::Stubborn,
        )
    };

    let broken = begin("job/broken");
    broken.wait_record().await;
    let path = format!("/.fencegate/v1/leases/{}/break", reference(&one).await);
    let breaks = TestRequest::post(&path).field("authorization", &format!("Bearer {OPERATOR}")).body("{}");
    assert!(one.send(&breaks).await.status < 300);
    let breaking = async {
        // The client of the broken lease was promised a time, for which the next holder has to wait.
        assert_eq!(broken.exit().await, 123, "{}", broken.log());
    };
    let stopping = async {
        let stopped = begin("job/stopped");
        stopped.wait_record().await;
        stopped.signal(Signal::STOP);
        assert_dead_before_next(&site, &stopped, "job/stopped").await;
        stopped.signal(Signal::CONT);
        assert_eq!(stopped.exit().await, 123, "{}", stopped.log());
    };
    let leaving = async {
        let left = begin("job/left");
        left.wait_record().await;
        left.signal(Signal::KILL);
        assert_dead_before_next(&site, &left, "job/left").await;
    };
    tokio::join!(breaking, stopping, leaving);

    let killed = begin("job/killed");
    killed.wait_record().await;
    one.signal(Signal::KILL);
    assert_dead_before_next(&site, &killed, "job/killed").await;
    assert_eq!(killed.exit().await, 123, "{}", killed.log());
}

/// An election reports its leader with `--address` and token, and no leader after its end.
#[tokio::test]
async fn election_reports_leader_address() {
    let (_site, tokens, gateway) = one().await;
    let verb = ["elect", "billing", "--address", "10.0.0.7:8080"];
    let leader = LockedCommand::spawn_shell(
        lock_source(&gateway, &tokens),
        &verb,
        "echo leads $FENCING_TOKEN; exec sleep 60",
    );
    let token = leader.wait_output("leads v1-").await.replace("leads ", "");
    let asked = TestRequest::get("/.fencegate/v1/elections/billing")
        .field("authorization", &format!("Bearer {CLIENT}"));
    let told = json_body(&gateway.send(&asked).await);
    assert_eq!((&told["leader"]["note"], &told["leader"]["token"]), (&json!("10.0.0.7:8080"), &json!(token)));
    leader.signal(Signal::TERM);
    assert_eq!(leader.exit().await, 143, "{}", leader.log());
    let nobody = async {
        while !json_body(&gateway.send(&asked).await)["leader"].is_null() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    wait_until("nobody to lead", nobody, || leader.log()).await;
}
