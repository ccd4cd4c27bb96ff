//! HTTP/2 without a library: a client that sends any frames, including frames that no library would send.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use fencegate_testkit::wait::wait_until;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// A frame in the format of RFC 9113, 4.1.
///
/// # Panics
/// If the payload is longer than a frame can be.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The connection preface of HTTP/2, with an empty SETTINGS frame.
pub fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, b"")].concat()
}

/// The header block of `GET path` for the authority `a`. Fields of HPACK's static table are indexed.
pub fn get(path: &str) -> Vec<u8> {
    head(0x82, path)
}

/// The header block of `POST path`, as [`get`] for GET.
pub fn post(path: &str) -> Vec<u8> {
    head(0x83, path)
}

fn head(method: u8, path: &str) -> Vec<u8> {
    [&[method, 0x86, 0x04][..], &text(path), &[0x01], &text("a")].concat()
}

/// A literal header field without indexing.
pub fn literal(name: &str, value: &str) -> Vec<u8> {
    [vec![0], text(name), text(value)].concat()
}

/// A string without Huffman coding (RFC 7541, 5.1 and 5.2).
fn text(text: &str) -> Vec<u8> {
    const MOST: usize = 127;
    let mut bytes = vec![u8::try_from(text.len().min(MOST)).expect("seven bits")];
    if let Some(mut rest) = text.len().checked_sub(MOST) {
        while rest >= 128 {
            bytes.push(u8::try_from(rest % 128 + 128).expect("eight bits"));
            rest /= 128;
        }
        bytes.push(u8::try_from(rest).expect("seven bits"));
    }
    bytes.extend(text.as_bytes());
    bytes
}

/// An HTTP/2 connection.
pub struct RawH2Client(TcpStream);

/// A frame that was received.
#[derive(Debug)]
pub struct H2Frame {
    pub kind: u8,
    pub payload: Vec<u8>,
}

impl RawH2Client {
    /// Connects, and sends the preface.
    ///
    /// # Panics
    /// If no process listens.
    pub async fn connect(address: SocketAddr) -> Self {
        let mut bare = Self(TcpStream::connect(address).await.expect("listens"));
        bare.send(&[preface()]).await;
        bare
    }

    /// Connects from another address of this machine.
    ///
    /// # Panics
    /// If no process listens.
    pub async fn connect_from(local: IpAddr, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((local, 0).into()).expect("an address of loopback");
        let mut bare = Self(socket.connect(address).await.expect("listens"));
        bare.send(&[preface()]).await;
        bare
    }

    /// Connects with an initial window of 0, so that the other side can send no body.
    pub async fn without_window(address: SocketAddr) -> Self {
        let mut bare = Self::connect(address).await;
        bare.send(&[frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])]).await;
        bare
    }

    /// Sends a GET and waits until the other side ends the connection.
    pub async fn get_without_reading(mut self, path: &str) {
        self.send(&[frame(HEADERS, END_HEADERS | END_STREAM, 1, &get(path))]).await;
        self.read_until(|frame| frame.kind == HEADERS).await;
        wait_until("the end of the connection", async { while self.next().await.is_ok() {} }, || "open")
            .await;
    }

    /// Reads until the other side has ended the connection.
    pub async fn wait_closed(&mut self) {
        while self.next().await.is_ok() {}
    }

    /// Sends frames.
    ///
    /// # Panics
    /// If the other side has ended the connection.
    pub async fn send(&mut self, frames: &[Vec<u8>]) {
        self.try_send(frames).await.expect("connected");
    }

    /// Sends frames.
    ///
    /// # Errors
    /// Returns an error if the other side has ended the connection.
    pub async fn try_send(&mut self, frames: &[Vec<u8>]) -> io::Result<()> {
        self.0.write_all(&frames.concat()).await
    }

    async fn next(&mut self) -> io::Result<H2Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).expect("24 bits")];
        self.0.read_exact(&mut payload).await?;
        Ok(H2Frame { kind: head[3], payload })
    }

    /// Reads until the next frame that `wanted` accepts.
    ///
    /// # Panics
    /// If no such frame arrives in time, or the connection ends.
    pub async fn read_until(&mut self, wanted: impl Fn(&H2Frame) -> bool) -> H2Frame {
        let found = async {
            loop {
                let frame = self.next().await.expect("connected");
                if wanted(&frame) {
                    return frame;
                }
            }
        };
        wait_until("a frame", found, || "none").await
    }

    /// Sends frames as fast as the other side accepts them, without reading, so that the responses pile up. Returns
    /// when all are sent or the connection has ended.
    pub async fn send_without_reading(&mut self, frames: impl Iterator<Item = Vec<u8>>) {
        let mut frames = frames.peekable();
        while frames.peek().is_some() {
            let some: Vec<u8> = frames.by_ref().take(100).flatten().collect();
            if self.0.write_all(&some).await.is_err() {
                return;
            }
        }
    }

    /// Sends frames as fast as the other side accepts them, and reads meanwhile. True once the other side has ended
    /// the connection.
    pub async fn flood(&mut self, frames: &[Vec<u8>]) -> bool {
        let (mut input, mut output) = self.0.split();
        let write = async {
            for frames in frames.chunks(100) {
                if output.write_all(&frames.concat()).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let mut sink = vec![0; 64 << 10];
        let read = async { while input.read(&mut sink).await.is_ok_and(|count| count > 0) {} };
        tokio::select! {
            () = write => false,
            () = read => true,
        }
    }
}
