//! The reason for which the story could not be played to its end.

use std::{io, net::SocketAddr};

use fencegate_http_client::json_client::JsonClientError;
use fencegate_testkit::zookeeper;

/// The reason for which the story could not be played to its end.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error(transparent)]
    ZooKeeper(#[from] zookeeper::StartZooKeeperError),
    #[error("`{0}` is not there: build it beside: `cargo build -p fencegate-ledger`")]
    NoLedger(String),
    #[error("{who} does not come up: {said}")]
    NotStarted { who: String, said: String },
    #[error("{0} did not happen in time")]
    Late(&'static str),
    #[error("ask {address} for {path}")]
    Unanswered { address: SocketAddr, path: String, source: JsonClientError },
    #[error("{address} answers {path} with {said}")]
    Unexpected { address: SocketAddr, path: String, said: String },
    #[error("prepare or control the processes")]
    Io(#[from] io::Error),
}
