//! Strict: each holder has a lock node of its own, which costs two writes to ZooKeeper. Cached: this process keeps the
//! node for its next holder of the key, until another process wants the key. That holder costs no write, and its token
//! is larger all the same.
//!
//!     cargo run -p fencegate-lock --example strict_and_cached -- zk-1:2181,zk-2:2181 /example

use std::{env, error::Error, time::Duration};

use fencegate_lock::client::{self, ConnectOptions, LockClient};
use fencegate_zookeeper::session::negotiated_timeout;
use tracing_subscriber::prelude::*;

const WAIT: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::registry().with(negotiated_timeout::negotiated_timeout_layer()).init();
    let [servers, root] = env::args().skip(1).collect::<Vec<_>>().try_into().expect("servers and a root");
    let client =
        LockClient::connect(ConnectOptions::new(&servers, &root, "here").with_installation_init()).await?;
    let other = LockClient::connect(ConnectOptions::new(&servers, &root, "there")).await?;

    let strict = [lock_once(&client, false).await?, lock_once(&client, false).await?];
    println!("strict: larger {}, same node {}", strict[0] < strict[1], strict[0].same_grant(strict[1]));

    let cached = [lock_once(&client, true).await?, lock_once(&client, true).await?];
    println!("cached: larger {}, same node {}", cached[0] < cached[1], cached[0].same_grant(cached[1]));

    // The guard is dropped without `release`, as by a panic. Work that was begun may go on, so the next holder gets a
    // new node.
    drop(client.lock("sensor/7").wait(WAIT).cached().await?);
    let after = lock_once(&client, true).await?;
    println!("after a drop: larger {}, same node {}", cached[1] < after, cached[1].same_grant(after));

    // The cached node is released when another process wants the key.
    let elsewhere = lock_once(&other, true).await?;
    println!("elsewhere: larger {}", after < elsewhere);
    client.close().await;
    other.close().await;
    Ok(())
}

async fn lock_once(
    client: &LockClient,
    cached: bool,
) -> Result<client::FencingToken, client::LockClientError> {
    let asked = client.lock("sensor/7").wait(WAIT);
    let held = if cached { asked.cached() } else { asked }.await?;
    let token = held.token();
    held.release();
    Ok(token)
}
