//! A session whose client falls silent: the times at which its node is deleted and its client gives up.

use std::time::Duration;

use fencegate_zookeeper::session::client::{NodeCreateMode, ZkClient, ZkConnectionState, ZkConnector};
use tokio::time::Instant;

use super::runner::{TestBackend, wait_state};

/// The times from the cut of the connection until the node is gone and until the client gives up.
#[derive(Debug)]
pub(super) struct SilenceTimes {
    pub(super) node_gone: Duration,
    pub(super) client_over: Duration,
}

/// The timeout of the session that falls silent.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);

pub(super) async fn fall_silent<S: TestBackend>(site: &S) -> SilenceTimes {
    let silent = site.client(0, TIMEOUT).connect().await;
    let other = site.client(1, TIMEOUT).connect().await;
    let silent = silent.expect("a session");
    let other = other.expect("a session");
    silent.create("/silent", b"", NodeCreateMode::Ephemeral).await.expect("made");
    let gone = other.watch("/silent").await.expect("it is there");
    let cut = Instant::now();
    site.cut(0);
    let node_gone = async {
        gone.await;
        cut.elapsed()
    };
    let client_over = async {
        wait_state(&silent, ZkConnectionState::Ended).await;
        cut.elapsed()
    };
    let (node_gone, client_over) = tokio::join!(node_gone, client_over);
    assert_eq!(other.stat("/silent").await, Ok(None), "the watch fired because the node went");
    site.plug(0);
    SilenceTimes { node_gone, client_over }
}
