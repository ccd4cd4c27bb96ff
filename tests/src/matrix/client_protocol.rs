//! The protocol between clients and gateways.

use std::net::SocketAddr;

use crate::client::{ClientResponse, Http1Client, Http2Client, TestRequest, TestTlsClient};

#[derive(Clone)]
pub enum ProtocolConfig {
    Http1,
    /// HTTP/2 by prior knowledge.
    Http2,
    /// HTTP/1.1 over TLS.
    Tls(TestTlsClient),
}

/// An open connection.
pub enum ProtocolConnection {
    One(Http1Client),
    Many(Http2Client),
}

impl ProtocolConfig {
    /// Opens a connection.
    ///
    /// # Errors
    /// Returns an error if no process listens at the address, or it does not speak this protocol.
    pub async fn connect(&self, address: SocketAddr) -> Result<ProtocolConnection, String> {
        Ok(match self {
            Self::Http1 => ProtocolConnection::One(Http1Client::connect(address).await?),
            Self::Http2 => ProtocolConnection::Many(Http2Client::connect(address).await?),
            Self::Tls(secure) => {
                let stream = secure.connect(address, "localhost").await?;
                ProtocolConnection::One(Http1Client::on_stream(stream, address).await?)
            }
        })
    }
}

impl ProtocolConnection {
    /// Sends a request, and returns its response.
    ///
    /// # Errors
    /// Returns an error if the connection broke before the response was complete.
    pub async fn send(&mut self, ask: &TestRequest) -> Result<ClientResponse, String> {
        match self {
            Self::One(client) => client.send(ask).await,
            Self::Many(streams) => streams.send(ask).await,
        }
    }
}
