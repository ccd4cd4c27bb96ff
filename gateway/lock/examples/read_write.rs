//! Many readers hold together, one writer holds alone, and no reader overtakes a waiting writer.
//!
//!     cargo run -p fencegate-lock --example read_write -- zk-1:2181,zk-2:2181 /example

use std::{env, error::Error, future::IntoFuture, time::Duration};

use fencegate_lock::client::{self, ConnectOptions, LockClient};
use fencegate_zookeeper::session::negotiated_timeout;
use tracing_subscriber::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::registry().with(negotiated_timeout::negotiated_timeout_layer()).init();
    let [servers, root] = env::args().skip(1).collect::<Vec<_>>().try_into().expect("servers and a root");
    let client =
        LockClient::connect(ConnectOptions::new(&servers, &root, "read-write").with_installation_init())
            .await?;

    let one = client.read("report").await?;
    let two = client.read("report").await?;
    println!("read together: {}", one.is_held() && two.is_held());

    let refused = client.write("report").await.err();
    assert_eq!(refused, Some(client::LockClientError::Locked));
    println!("write beside them: refused");

    // The writer waits until both readers have gone.
    let writes = client.write("report").wait(Duration::from_secs(5)).into_future();
    let go = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        one.release();
        two.release();
    };
    let (written, ()) = tokio::join!(writes, go);
    let written = written?;
    println!("write after them: {}", written.is_held());

    let refused = client.read("report").await.err();
    assert_eq!(refused, Some(client::LockClientError::Locked));
    println!("read beside it: refused");
    written.release();
    client.close().await;
    Ok(())
}
