//! One request to a gateway, on a connection of its own.

use std::{error::Error, net::SocketAddr};

use bytes::Bytes;
use fencegate_http::network::{ConnectTarget, Network as _};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    client::conn::http1,
    http::{request::Builder, response::Parts},
};
use hyper_util::rt::TokioIo;
use tokio::task::{AbortHandle, spawn_local};

use super::{
    addresses::{GATEWAYS, PORT},
    network::SimHost,
};

/// Sends one request, and returns the response. Dropping the future closes the connection, as a client that goes
/// away does.
pub(super) async fn send(
    from: &SimHost,
    gateway: usize,
    request: Builder,
    body: String,
) -> Result<(Parts, Bytes), Box<dyn Error>> {
    let stream = from.dial(&ConnectTarget::Tcp(SocketAddr::new(GATEWAYS[gateway], PORT))).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // An error of the connection is ignored: accidents break connections on purpose.
    let connection = spawn_local(async move { drop(connection.await) });
    let _ends = AbortOnDrop(connection.abort_handle());
    let request = request.header("host", "ledger").body(Full::new(Bytes::from(body)))?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    Ok((head, body.collect().await?.to_bytes()))
}

/// Aborts the task of a connection when its request is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
