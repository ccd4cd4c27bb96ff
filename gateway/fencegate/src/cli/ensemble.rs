//! Queries ZooKeeper directly, with a session for one query, so that no gateway is needed.

use std::io;

use fencegate_policies::plan;
use tokio::task::LocalSet;

use fencegate_zookeeper::session::{
    client::{ZkClient, ZkConnector, ZkError},
    credentials::ZkTlsCredentialsError,
    paths::ZkPaths,
    servers::ZkServers,
    zookeeper::ZkSession,
};

/// The reason for which ZooKeeper could not be queried.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectZooKeeperError {
    #[error("cannot start the async runtime")]
    Runtime(#[from] io::Error),
    #[error("cannot use the files that `zookeeper` names")]
    Tls(#[from] ZkTlsCredentialsError),
    #[error("{}: no session with ZooKeeper: {why}; {}", diagnostic_code(.why), explain_hint(.why))]
    Connect { why: ZkError },
}

fn diagnostic_code(why: &ZkError) -> &'static str {
    match why {
        ZkError::Tls(_) => "FG0521",
        ZkError::Denied(_) => "FG0524",
        _ => "FG0505",
    }
}

/// The hint at the command that explains the error.
fn explain_hint(why: &ZkError) -> &'static str {
    match why {
        ZkError::Tls(_) => "`fencegate explain FG0521` says what to look at",
        ZkError::Denied(_) => "`fencegate explain FG0524` says what to look at",
        _ => "`fencegate explain FG0505` says what to look at",
    }
}

/// Connects to ZooKeeper, runs `question`, and closes the session.
pub(super) fn with_session<R, E: From<ConnectZooKeeperError>>(
    policy: &plan::ZooKeeperSettings,
    question: impl AsyncFnOnce(&ZkSession, &ZkPaths) -> Result<R, E>,
) -> Result<R, E> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ConnectZooKeeperError::Runtime)?;
    LocalSet::new().block_on(&runtime, async {
        let connected = ZkServers::from_policy(policy).map_err(ConnectZooKeeperError::Tls)?.connect().await;
        let link = connected.map_err(|why| ConnectZooKeeperError::Connect { why })?;
        let answer = question(&link, &ZkPaths::new(&policy.root)).await;
        link.close().await;
        answer
    })
}
