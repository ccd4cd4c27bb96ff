//! Opens a TCP connection without Nagle's delays.

use std::net::SocketAddr;

use tokio::net::TcpStream;

/// Opens the connection below [`Http1Client`](super::Http1Client), [`Http2Client`](super::Http2Client) and
/// [`TestTlsClient`](super::TestTlsClient).
pub(super) async fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| format!("connect: {error}"))?;
    stream.set_nodelay(true).map_err(|error| format!("nodelay: {error}"))?;
    Ok(stream)
}
