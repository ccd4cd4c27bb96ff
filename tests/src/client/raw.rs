//! A connection on which a test sends exactly the bytes it wants.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    net::{
        TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::wire::{HttpWireMessage, MessageReader, MissingLengthMeaning};

/// Dropping it hangs up, politely.
pub struct RawClient {
    output: OwnedWriteHalf,
    answers: MessageReader<OwnedReadHalf>,
}

impl RawClient {
    /// # Errors
    /// When no process listens.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::over(TcpStream::connect(address).await?))
    }

    /// Connects with the smallest receive buffer, so bytes that this client does not read stay with the sender.
    ///
    /// # Errors
    /// When no process listens.
    pub async fn connect_narrow(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4096)?;
        Ok(Self::over(socket.connect(address).await?))
    }

    fn over(stream: TcpStream) -> Self {
        let (input, output) = stream.into_split();
        Self { output, answers: MessageReader::new(input, |_| {}) }
    }

    /// # Errors
    /// When the gateway hung up.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.output.write_all(bytes.as_ref()).await
    }

    /// The sending half, for bytes that a test does not want to have in one piece.
    pub fn output(&mut self) -> &mut (impl AsyncWriteExt + use<>) {
        &mut self.output
    }

    /// Start line and fields of the next answer.
    ///
    /// # Errors
    /// When the gateway hung up, or sent no HTTP.
    pub async fn read_head(&mut self) -> io::Result<HttpWireMessage> {
        self.answers.read_head().await
    }

    /// The rest of an answer whose head was read.
    ///
    /// # Errors
    /// When the gateway hung up within it.
    pub async fn read_body(&mut self, answer: &mut HttpWireMessage) -> io::Result<()> {
        self.answers.read_body(answer, MissingLengthMeaning::UntilClose).await
    }

    /// The next answer.
    ///
    /// # Errors
    /// When the gateway hung up, or sent no HTTP.
    pub async fn read_response(&mut self) -> io::Result<HttpWireMessage> {
        let mut answer = self.read_head().await?;
        self.read_body(&mut answer).await?;
        Ok(answer)
    }

    /// From now on reads a little at a time.
    pub fn set_read_pause(&mut self, pause: Duration) {
        self.answers.set_read_pause(pause);
    }

    /// Hangs up with a reset.
    ///
    /// # Errors
    /// When the socket is gone already.
    pub fn reset(self) -> io::Result<()> {
        self.output.as_ref().set_zero_linger()
    }
}
