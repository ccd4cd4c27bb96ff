//! Locks several keys at once, all or none: transfers between two accounts lock both, in either order, at the
//! same time.
//!
//!     cargo run -p fencegate-lock --example set -- zk-1:2181,zk-2:2181 /example

use std::{env, error::Error, time::Duration};

use fencegate_lock::client::{self, ConnectOptions, LockClient};
use fencegate_zookeeper::session::negotiated_timeout;
use tracing_subscriber::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::registry().with(negotiated_timeout::negotiated_timeout_layer()).init();
    let [servers, root] = env::args().skip(1).collect::<Vec<_>>().try_into().expect("servers and a root");
    let client =
        LockClient::connect(ConnectOptions::new(&servers, &root, "set").with_installation_init()).await?;

    let both = client.lock_all(["account/1", "account/2"]).await?;
    let one = client.lock("account/2").await.err();
    assert_eq!(one, Some(client::LockClientError::Locked));
    println!("one of them: refused");
    both.release();

    // The order of the keys does not matter: two transfers never wait for each other.
    let transfer = async |from: &str, to: &str| {
        for _ in 0..10 {
            let held = client.lock_all([from, to]).wait(Duration::from_secs(10)).await?;
            assert!(held.is_held());
            held.release();
        }
        Ok::<_, client::LockClientError>(10)
    };
    let (there, back) = tokio::join!(transfer("account/1", "account/2"), transfer("account/2", "account/1"));
    println!("transfers: {}", there? + back?);
    client.close().await;
    Ok(())
}
