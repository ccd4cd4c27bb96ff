//! Tests that each accident of the ZooKeeper in memory does what its name states.

use std::{rc::Rc, time::Duration};

use fencegate_tests::memory::{
    EnsembleSettings, SimEnsemble, SimSession, UndeliveredRequestFate, Wire, WireDirection,
};
use fencegate_zookeeper::session::{
    client::{MultiOp, NodeCreateMode, ZkClient, ZkConnectionState, ZkConnector, ZkError},
    session_check::check_same_session,
};
use tokio::time::{Instant, sleep, timeout};

use crate::simulated_time;

const T: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(200);
const MOMENT: Duration = Duration::from_millis(10);

/// An ensemble with two clients. The accident happens to `hurt`; the other client watches.
struct FaultFixture {
    ensemble: SimEnsemble,
    wire: Rc<Wire>,
    hurt: SimSession,
    other: SimSession,
}

fn run_with_fixture<F: Future>(play: impl FnOnce(FaultFixture) -> F) -> F::Output {
    simulated_time::run(async {
        let ensemble = SimEnsemble::start(EnsembleSettings::default());
        let wire = ensemble.wire();
        let safe = ensemble.wire();
        let hurt = ensemble.client(&wire, T).connect().await.expect("a session");
        let other = ensemble.client(&safe, T).connect().await.expect("a session");
        play(FaultFixture { ensemble, wire, hurt, other }).await
    })
}

#[test]
fn lost_reply_keeps_effect_and_session() {
    run_with_fixture(async |FaultFixture { ensemble, wire, hurt, .. }| {
        wire.lose_next_reply();
        let created = hurt.create("/a", b"", NodeCreateMode::Ephemeral).await;
        assert!(matches!(created, Err(ZkError::Ambiguous(_))), "{created:?}");
        assert_eq!(ensemble.stat("/a").map(|seen| seen.owner), Some(hurt.id()));
        assert_eq!(hurt.delete("/a").await, Ok(()));
        assert_eq!((hurt.state(), hurt.reconnect_count()), (ZkConnectionState::Connected, 2));
    });
}

/// A lost request has no effect, and the requests that were sent behind it are lost with it.
#[test]
fn lost_request_drops_those_behind_it() {
    run_with_fixture(async |FaultFixture { ensemble, wire, hurt, .. }| {
        wire.lose_next_request();
        let both = tokio::join!(hurt.create("/a", b"", NodeCreateMode::Ephemeral), hurt.children("/"));
        assert!(matches!(both, (Err(ZkError::Ambiguous(_)), Err(ZkError::Ambiguous(_)))), "{both:?}");
        assert_eq!(ensemble.stat("/a"), None);
        assert_eq!(hurt.children("/").await, Ok(vec![]));
    });
}

/// Requests made while disconnected run in their order after the reconnect.
#[test]
fn disconnected_requests_run_in_order_later() {
    run_with_fixture(async |FaultFixture { wire, hurt, .. }| {
        wire.disconnect(UndeliveredRequestFate::Lost);
        assert_eq!(hurt.state(), ZkConnectionState::Disconnected);
        let create = hurt.create("/a", b"", NodeCreateMode::Persistent);
        let delete = hurt.delete("/a");
        let asked = Instant::now();
        let back = async {
            sleep(T / 4).await;
            wire.reconnect();
        };
        let (created, deleted, ()) = tokio::join!(create, delete, back);
        assert_eq!((created.map(drop), deleted), (Ok(()), Ok(())));
        assert_eq!(asked.elapsed(), T / 4);
    });
}

/// A request that is in flight when its connection breaks may still arrive after its client has given it up, but not
/// after the client has reconnected.
#[test]
fn in_flight_request_survives_disconnect() {
    run_with_fixture(async |FaultFixture { ensemble, wire, hurt, .. }| {
        for (path, underway, arrives) in [
            ("/a", UndeliveredRequestFate::Arrives, true),
            ("/b", UndeliveredRequestFate::Lost, false),
            ("/c", UndeliveredRequestFate::Arrives, false),
        ] {
            wire.delay(MOMENT..MOMENT);
            let created = hurt.create(path, b"", NodeCreateMode::Persistent);
            wire.disconnect(underway);
            assert!(matches!(created.await, Err(ZkError::Ambiguous(_))));
            assert_eq!(ensemble.stat(path), None);
            // `/c` is still in flight at the reconnect, after which the server refuses requests of the earlier
            // connection.
            sleep(if path == "/c" { MOMENT / 2 } else { MOMENT * 2 }).await;
            wire.reconnect();
            sleep(MOMENT * 2).await;
            assert_eq!(ensemble.stat(path).is_some(), arrives, "{path}");
        }
    });
}

#[test]
fn stalled_reply_arrives_after_resume() {
    run_with_fixture(async |FaultFixture { ensemble, wire, hurt, .. }| {
        wire.stall(WireDirection::ToClient);
        let mut created = std::pin::pin!(hurt.create("/a", b"", NodeCreateMode::Persistent));
        assert!(timeout(T / 4, &mut created).await.is_err());
        assert!(ensemble.stat("/a").is_some());
        wire.resume();
        assert_eq!(created.await.map(|created| created.sequence), Ok(-1));
        assert_eq!(hurt.reconnect_count(), 0);
    });
}

/// A client gives up a silent connection after two fifths of the session timeout, and its session when the timeout
/// is over.
#[test]
fn client_abandons_silent_connection_then_session() {
    run_with_fixture(async |FaultFixture { ensemble, wire, hurt, .. }| {
        let cut = Instant::now();
        wire.stall(WireDirection::Both);
        hurt.state_changed().await;
        assert_eq!((hurt.state(), cut.elapsed()), (ZkConnectionState::Disconnected, T * 2 / 5));
        let asked = hurt.children("/");
        hurt.state_changed().await;
        assert_eq!((hurt.state(), cut.elapsed()), (ZkConnectionState::Ended, T * 7 / 5));
        assert_eq!(asked.await, Err(ZkError::SessionEnded));
        assert!(!ensemble.sessions().contains(&hurt.id()));
    });
}

#[test]
fn watch_event_precedes_later_answers() {
    run_with_fixture(async |FaultFixture { wire, hurt, other, .. }| {
        other.create("/a", b"", NodeCreateMode::Persistent).await.expect("made");
        wire.delay(Duration::ZERO..MOMENT);
        for _ in 0..50 {
            let watch = hurt.watch("/a").await.expect("it is there");
            other.commit(&[MultiOp::Set { path: "/a", data: b"" }]).await.expect("written");
            tokio::select! {
                biased;
                () = watch => {}
                _ = hurt.stat("/a") => panic!("the answer overtook the event"),
            }
        }
    });
}

/// A client whose session was swapped can notice this only by the owner of the nodes that it creates.
#[test]
fn swapped_session_shows_in_owner_only() {
    run_with_fixture(async |FaultFixture { ensemble, wire, hurt, .. }| {
        hurt.create("/old", b"", NodeCreateMode::Ephemeral).await.expect("made");
        wire.swap_on_reconnect();
        let id = hurt.id();
        wire.break_and_reconnect(UndeliveredRequestFate::Lost);
        let created = hurt.create("/new", b"", NodeCreateMode::Ephemeral).await.expect("made");
        assert_eq!((hurt.id(), hurt.state()), (id, ZkConnectionState::Connected));
        assert_ne!(created.stat.owner, id);
        assert_eq!(wire.sessions(), [created.stat.owner]);
        assert_eq!(ensemble.stat("/old").map(|seen| seen.owner), Some(id));
        // No heartbeat keeps the old session alive, so wait until it expires.
        sleep(T + TICK).await;
        assert_eq!(ensemble.stat("/old"), None);
        assert!(ensemble.stat("/new").is_some());
    });
}

/// A probe node that is left from an earlier probe belongs to the session that created it, and does not prove that a
/// swapped session is the same.
#[test]
fn swapped_session_fails_leftover_probe() {
    run_with_fixture(async |FaultFixture { wire, hurt, .. }| {
        assert_eq!(check_same_session(&hurt, "/m").await, Some(true));
        hurt.create("/m-probe", b"", NodeCreateMode::Ephemeral).await.expect("made");
        wire.break_and_reconnect(UndeliveredRequestFate::Lost);
        assert_eq!(check_same_session(&hurt, "/m").await, Some(true), "one that we have left ourselves");
        // The probe node is left behind, and the client comes back with another session.
        hurt.create("/m-probe", b"", NodeCreateMode::Ephemeral).await.expect("made");
        wire.swap_on_reconnect();
        wire.break_and_reconnect(UndeliveredRequestFate::Lost);
        assert_eq!(check_same_session(&hurt, "/m").await, Some(false));
    });
}

/// An expired session loses its nodes at once, and its client gets the event and an error.
#[test]
fn expired_session_loses_nodes_at_once() {
    run_with_fixture(async |FaultFixture { ensemble, wire, hurt, other, .. }| {
        hurt.create("/a", b"", NodeCreateMode::Ephemeral).await.expect("made");
        let own = hurt.watch("/a").await.expect("there");
        let others = other.watch("/a").await.expect("there");
        wire.expire();
        assert_eq!(ensemble.stat("/a"), None);
        others.await;
        own.await;
        assert_eq!(
            hurt.create("/b", b"", NodeCreateMode::Ephemeral).await.map(drop),
            Err(ZkError::SessionEnded)
        );
        assert_eq!(hurt.state(), ZkConnectionState::Ended);
    });
}

/// A session that expires while its client is disconnected has ended for the client when it reconnects.
#[test]
fn expiry_while_disconnected_shows_on_reconnect() {
    run_with_fixture(async |FaultFixture { wire, hurt, .. }| {
        wire.disconnect(UndeliveredRequestFate::Lost);
        sleep(T + TICK).await;
        assert_eq!(hurt.state(), ZkConnectionState::Disconnected);
        wire.reconnect();
        assert_eq!(hurt.children("/").await, Err(ZkError::SessionEnded));
    });
}

/// No session expires without a majority of servers, and a new leader starts a new epoch of transaction numbers.
#[test]
fn no_expiry_without_majority() {
    run_with_fixture(async |FaultFixture { ensemble, hurt, other, .. }| {
        let before = hurt.create("/a", b"", NodeCreateMode::Ephemeral).await.expect("made").stat.czxid;
        ensemble.lose_majority();
        sleep(T * 5 / 4).await;
        assert_eq!((hurt.state(), ensemble.sessions().len()), (ZkConnectionState::Disconnected, 2));
        ensemble.recover();
        let after = other.create("/b", b"", NodeCreateMode::Ephemeral).await.expect("made").stat.czxid;
        assert_eq!((after >> 32, ensemble.stat("/a").is_some()), ((before >> 32) + 1, true));
        assert_eq!(hurt.children("/").await, Ok(vec!["a".to_owned(), "b".to_owned()]));
    });
}

/// A wiped ensemble numbers transactions from the beginning, and does not resume earlier sessions.
#[test]
fn wiped_ensemble_rejects_old_sessions() {
    run_with_fixture(async |FaultFixture { ensemble, wire, hurt, other }| {
        for number in 0..10 {
            hurt.create(&format!("/{number}"), b"", NodeCreateMode::Ephemeral).await.expect("made");
        }
        ensemble.wipe();
        assert_eq!(ensemble.paths(), ["/"]);
        sleep(T).await;
        assert_eq!(hurt.state(), ZkConnectionState::Disconnected);
        sleep(T).await;
        assert_eq!((hurt.state(), other.state()), (ZkConnectionState::Ended, ZkConnectionState::Ended));
        let anew = ensemble.client(&wire, T).connect().await.expect("a session");
        let created = anew.create("/a", b"", NodeCreateMode::Ephemeral).await.expect("made");
        assert!(created.stat.czxid < 10 && anew.id() > other.id());
    });
}

/// A session whose client is dropped while disconnected is closed as soon as a server is reachable.
#[test]
fn dropped_session_closes_on_reconnect() {
    run_with_fixture(async |FaultFixture { ensemble, wire, hurt, other }| {
        hurt.create("/a", b"", NodeCreateMode::Ephemeral).await.expect("made");
        wire.disconnect(UndeliveredRequestFate::Lost);
        drop(hurt);
        sleep(T / 4).await;
        assert!(ensemble.stat("/a").is_some());
        wire.reconnect();
        sleep(MOMENT).await;
        assert_eq!((ensemble.stat("/a"), ensemble.sessions()), (None, vec![other.id()]));
        other.close().await;
        assert_eq!(ensemble.sessions(), [0; 0]);
    });
}

/// A container is removed after its last child. A container that never had a child stays.
#[test]
fn emptied_container_is_removed() {
    run_with_fixture(async |FaultFixture { ensemble, hurt, .. }| {
        for path in ["/never", "/once", "/now"] {
            hurt.create(path, b"", NodeCreateMode::Container).await.expect("made");
        }
        for path in ["/once/x", "/now/x"] {
            hurt.create(path, b"", NodeCreateMode::Ephemeral).await.expect("made");
        }
        hurt.delete("/once/x").await.expect("deleted");
        ensemble.remove_empty_containers();
        assert_eq!(hurt.children("/").await, Ok(vec!["never".to_owned(), "now".to_owned()]));
        hurt.delete("/now/x").await.expect("deleted");
        // The server itself removes empty containers in this interval.
        sleep(EnsembleSettings::default().containers).await;
        assert_eq!(hurt.children("/").await, Ok(vec!["never".to_owned()]));
    });
}

#[test]
fn connect_fails_after_timeout_without_server() {
    run_with_fixture(async |FaultFixture { ensemble, wire, .. }| {
        let client = ensemble.client(&wire, T);
        let began = Instant::now();
        ensemble.lose_majority();
        assert!(matches!(client.connect().await, Err(ZkError::Refused(_))));
        assert_eq!(began.elapsed(), T);
        let (session, ()) = tokio::join!(client.connect(), async { ensemble.recover() });
        assert_eq!(session.map(|session| session.negotiated_timeout()), Ok(T));
    });
}
