//! A mutex over processes: who holds the key is alone, and each holder has a larger token than the one before.
//!
//!     cargo run -p fencegate-lock --example mutex -- zk-1:2181,zk-2:2181 /example

use std::{env, error::Error, time::Duration};

use fencegate_lock::{
    client::{self, Client, Options},
    session::granted,
};
use tracing_subscriber::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::registry().with(granted::layer()).init();
    let [servers, root] = env::args().skip(1).collect::<Vec<_>>().try_into().expect("servers and a root");
    let client = Client::connect(Options::of(&servers, &root, "mutex").init()).await?;

    let first = client.lock("invoice/42").await?;
    println!("held under {}", first.token());

    // No wait was asked for, so it is refused as soon as it is known that somebody holds it.
    let second = client.lock("invoice/42").await;
    assert_eq!(second.err(), Some(client::Error::Locked));
    println!("second: refused");

    let token = first.token();
    first.release();
    let next = client.lock("invoice/42").wait(Duration::from_secs(5)).await?;
    println!("next: larger token {}", next.token() > token);

    // Whoever does something slow looks whether it still may, and stops when it may not.
    let lost = next.lost();
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(200)) => println!("done: still held {}", next.holds()),
        () = lost => println!("lost"),
    }
    next.release();
    client.close().await;
    println!("closed");
    Ok(())
}
