//! What clients speak with gateways.

use std::net::SocketAddr;

use crate::client::{Answer, Ask, Client, Secure, Streams};

#[derive(Clone)]
pub enum Spoken {
    Http1,
    /// By prior knowledge.
    Http2,
    /// HTTP/1.1 over TLS.
    Tls(Secure),
}

/// An open connection.
pub enum Line {
    One(Client),
    Many(Streams),
}

impl Spoken {
    /// # Errors
    /// When nobody listens there, or does not speak so.
    pub async fn connect(&self, address: SocketAddr) -> Result<Line, String> {
        Ok(match self {
            Self::Http1 => Line::One(Client::connect(address).await?),
            Self::Http2 => Line::Many(Streams::connect(address).await?),
            Self::Tls(secure) => {
                let stream = secure.connect(address, "localhost").await?;
                Line::One(Client::over(stream, address).await?)
            }
        })
    }
}

impl Line {
    /// # Errors
    /// When the connection broke before the answer was complete.
    pub async fn send(&mut self, ask: &Ask) -> Result<Answer, String> {
        match self {
            Self::One(client) => client.send(ask).await,
            Self::Many(streams) => streams.send(ask).await,
        }
    }
}
