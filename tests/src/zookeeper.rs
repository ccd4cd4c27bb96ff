//! One real ZooKeeper for all tests of a process, and a look at its tree that does not go through a gateway.
//!
//! `OwnZooKeeper` is for tests that stop their server. `ZnodeTree` reads the nodes.

mod own;
mod tree;

use std::{
    io,
    net::SocketAddr,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use fencegate_testkit::{
    scratch,
    zookeeper::{PrivateZooKeeper, ZooKeeperServerConfig},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub use self::{
    own::{OwnZooKeeper, StoppedZooKeeper, ZooKeeperBackup},
    tree::{LockNodeWatch, ZnodeTree},
};

/// The server that all tests share. It ends with this process. A test that stops its server starts one of its own.
pub fn shared() -> SocketAddr {
    static SERVER: LazyLock<PrivateZooKeeper> = LazyLock::new(|| {
        let data = scratch::folder().join("zookeeper");
        PrivateZooKeeper::start(&data, ZooKeeperServerConfig::default()).expect("ZooKeeper starts")
    });
    SERVER.address()
}

/// A path that no other test uses.
pub fn fresh_root() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("/t/{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Sends one of ZooKeeper's four-letter commands, and reads the answer up to the end of the connection.
///
/// # Errors
/// Returns an error if the server does not answer.
pub async fn send_four_letter_word(server: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The number of the last transaction that a server has seen. Each write is a transaction.
///
/// # Panics
/// If the server does not answer.
pub async fn last_zxid(server: SocketAddr) -> u64 {
    let answer = send_four_letter_word(server, "srvr").await.expect("the server is up");
    let zxid = answer.lines().find_map(|line| line.strip_prefix("Zxid: 0x"));
    u64::from_str_radix(zxid.expect("a server that serves"), 16).expect("hexadecimal")
}

/// The number of packets that a server has received.
///
/// # Panics
/// If the server does not answer.
pub async fn packets_received(server: SocketAddr) -> u64 {
    let answer = send_four_letter_word(server, "srvr").await.expect("the server is up");
    let received = answer.lines().find_map(|line| line.strip_prefix("Received: "));
    received.expect("a server that serves").parse().expect("a number")
}
