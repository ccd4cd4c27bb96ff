//! A connection on which a test sends exactly the bytes that it wants.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    net::{
        TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::wire::{HttpWireMessage, MessageReader, MissingLengthMeaning};

/// One connection. Dropping it closes it in order.
pub struct RawClient {
    output: OwnedWriteHalf,
    answers: MessageReader<OwnedReadHalf>,
}

impl RawClient {
    /// Connects to a gateway.
    ///
    /// # Errors
    /// Returns an error if no process listens.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::over(TcpStream::connect(address).await?))
    }

    /// Connects with the smallest receive buffer, so that bytes which this client does not read stay with the
    /// sender.
    ///
    /// # Errors
    /// Returns an error if no process listens.
    pub async fn connect_narrow(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4096)?;
        Ok(Self::over(socket.connect(address).await?))
    }

    fn over(stream: TcpStream) -> Self {
        let (input, output) = stream.into_split();
        Self { output, answers: MessageReader::new(input, |_| {}) }
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// Returns an error if the gateway has closed the connection.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.output.write_all(bytes.as_ref()).await
    }

    /// The sending half, for a test that sends bytes piece by piece.
    pub fn output(&mut self) -> &mut (impl AsyncWriteExt + use<>) {
        &mut self.output
    }

    /// Reads the start line and the fields of the next response.
    ///
    /// # Errors
    /// Returns an error if the gateway closed the connection, or sent no HTTP.
    pub async fn read_head(&mut self) -> io::Result<HttpWireMessage> {
        self.answers.read_head().await
    }

    /// Reads the rest of a response whose head was read.
    ///
    /// # Errors
    /// Returns an error if the gateway closed the connection within the body.
    pub async fn read_body(&mut self, answer: &mut HttpWireMessage) -> io::Result<()> {
        self.answers.read_body(answer, MissingLengthMeaning::UntilClose).await
    }

    /// Reads the next response.
    ///
    /// # Errors
    /// Returns an error if the gateway closed the connection, or sent no HTTP.
    pub async fn read_response(&mut self) -> io::Result<HttpWireMessage> {
        let mut answer = self.read_head().await?;
        self.read_body(&mut answer).await?;
        Ok(answer)
    }

    /// From now on the client reads only a few bytes at a time, with this pause between two reads.
    pub fn set_read_pause(&mut self, pause: Duration) {
        self.answers.set_read_pause(pause);
    }

    /// Resets the connection.
    ///
    /// # Errors
    /// Returns an error if the socket does not exist any more.
    pub fn reset(self) -> io::Result<()> {
        self.output.as_ref().set_zero_linger()
    }
}
