//! The reason for which the story could not be played to its end.

use std::{io, net::SocketAddr};

use fencegate_http_client::json_client::JsonClientError;
use fencegate_testkit::zookeeper;

/// The reason for which the story could not be played to its end.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error(transparent)]
    ZooKeeper(#[from] zookeeper::StartZooKeeperError),
    #[error("`{0}` does not exist; build it in the same folder: `cargo build -p fencegate-ledger`")]
    NoLedger(String),
    #[error("{who} did not start: {said}")]
    NotStarted { who: String, said: String },
    #[error("{0} did not happen in time")]
    Late(&'static str),
    #[error("{address} did not answer the request for {path}")]
    Unanswered { address: SocketAddr, path: String, source: JsonClientError },
    #[error("{address} answered {path} with {said}")]
    Unexpected { address: SocketAddr, path: String, said: String },
    #[error("cannot prepare or control the processes")]
    Io(#[from] io::Error),
}
