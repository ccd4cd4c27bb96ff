//! A foreign program that shares one node with gateways. The creator of the node holds the lock.

use std::{rc::Rc, time::Duration};

use fencegate_tests::memory::SimSession;
use fencegate_zookeeper::session::client::{NodeCreateMode, ZkClient, ZkConnector, ZkError};
use tokio::time::{Instant, sleep, timeout};

use super::{
    gateway::{DispatchPermission, FencingToken, HoldMode, LockMode, NODE, SimRequest, T, key},
    judge::StormKind,
    world::SimWorld,
};

/// Longer than every accident: the program would not notice that its session has ended and its lock is lost.
const SESSION: Duration = Duration::from_secs(50);

/// Takes and releases the node until `end`, over a connection of its own.
pub(super) async fn run_program(world: Rc<SimWorld>, number: usize, end: Instant) {
    let wire = world.ensemble.wire();
    let session = loop {
        match world.ensemble.client(&wire, SESSION).connect().await {
            Ok(session) => break session,
            Err(_) => sleep(T / 10).await,
        }
    };
    let who = format!("program {number}");
    while Instant::now() < end {
        if let Some(czxid) = make_node(&world, &session).await {
            work(&world, &who, czxid).await;
            release(&world, &session, &who, czxid).await;
        }
        sleep(world.dice.within(&(Duration::ZERO..T / 10))).await;
    }
    session.close().await;
}

/// Tries to create the node. Returns its czxid if it belongs to this program, and `None` otherwise. Another client
/// may then already have released it.
async fn make_node(world: &SimWorld, session: &SimSession) -> Option<i64> {
    match session.create(NODE, b"host-7", NodeCreateMode::Ephemeral).await {
        Ok(_) | Err(ZkError::Ambiguous(_)) => {}
        Err(ZkError::NoNode) => drop(session.create("/app", b"", NodeCreateMode::Persistent).await),
        Err(_) => {
            if let Ok(gone) = session.watch(NODE).await {
                // With a time limit, because no event arrives while the session is disconnected.
                timeout(T, gone).await.ok();
            }
        }
    }
    world.ensemble.stat(NODE).filter(|seen| seen.owner == session.id()).map(|seen| seen.czxid)
}

async fn work(world: &SimWorld, who: &str, czxid: i64) {
    let mode = LockMode::Exclusive;
    let keeping = HoldMode::OneNode;
    let want = SimRequest { keys: vec![key("d")], mode, keeping, wait: Duration::ZERO };
    let number = world.judge.enter(who, &want, None, &DispatchPermission::for_program());
    // The program fences its writes: they carry the number of its node as their token.
    let token = FencingToken::new(czxid.unsigned_abs(), 0, 1).expect("a small number");
    world.judge.record_dispatch(who, &want, None, token);
    sleep(world.dice.within(&(Duration::ZERO..T / 10))).await;
    world.judge.leave(number);
}

/// Releases the node as a careful program does: it checks the owner first, because the name does not show the owner.
async fn release(world: &SimWorld, session: &SimSession, who: &str, czxid: i64) {
    let ours = || world.ensemble.stat(NODE).is_some_and(|seen| seen.czxid == czxid);
    if !ours() && world.storm == StormKind::Honest {
        world.judge.report(format!("the node of {who} was removed by somebody else"));
    }
    while ours() {
        if session.delete(NODE).await.is_err() {
            sleep(T / 100).await;
        }
    }
}
