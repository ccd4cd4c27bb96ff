//! A mutex over processes: one process at a time holds the key, and each holder has a larger token than the one before.
//!
//!     cargo run -p fencegate-lock --example mutex -- zk-1:2181,zk-2:2181 /example

use std::{env, error::Error, time::Duration};

use fencegate_lock::client::{self, ConnectOptions, LockClient};
use fencegate_zookeeper::session::negotiated_timeout;
use tracing_subscriber::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::registry().with(negotiated_timeout::negotiated_timeout_layer()).init();
    let [servers, root] = env::args().skip(1).collect::<Vec<_>>().try_into().expect("servers and a root");
    let client =
        LockClient::connect(ConnectOptions::new(&servers, &root, "mutex").with_installation_init()).await?;

    let first = client.lock("invoice/42").await?;
    println!("held under {}", first.token());

    // This call does not wait, so it is refused as soon as it finds another holder.
    let second = client.lock("invoice/42").await;
    assert_eq!(second.err(), Some(client::LockClientError::Locked));
    println!("second: refused");

    let token = first.token();
    first.release();
    let next = client.lock("invoice/42").wait(Duration::from_secs(5)).await?;
    println!("next: larger token {}", next.token() > token);

    // Slow work has to stop when the lock is lost.
    let lost = next.wait_lost();
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(200)) => println!("done: still held {}", next.is_held()),
        () = lost => println!("lost"),
    }
    next.release();
    client.close().await;
    println!("closed");
    Ok(())
}
