//! A proxy between gateway and guard that repeats requests, or gives responses of its own.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::AsyncWriteExt,
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::{
    origin::Latch,
    wire::{HttpWireMessage, MessageReader, MissingLengthMeaning},
};

const ANNOUNCEMENT: &str = "/.fencegate/v1/guard";

/// Passes messages between gateways and one guard, on the runtime of the test that starts it.
pub struct HttpProxy {
    address: SocketAddr,
    shared: Arc<ProxyState>,
}

struct ProxyState {
    guard: SocketAddr,
    shows: ViaMode,
    trick: Mutex<Option<ProxyFault>>,
    keeps: Mutex<Option<HeldAnnouncement>>,
}

/// An announcement that the guard has sent, and that the gateway does not get before the test releases it.
#[derive(Debug, Clone, Default)]
pub struct HeldAnnouncement {
    said: Latch,
    heard: Latch,
}

impl HeldAnnouncement {
    pub async fn wait_received(&self) {
        self.said.wait_released().await;
    }

    pub fn release(&self) {
        self.heard.release();
    }
}

/// Whether the proxy adds a field that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViaMode {
    /// The proxy adds a `Via`, as a proxy must (RFC 9110, 7.6.3).
    Itself,
    Nothing,
}

/// The fault of the next POST.
#[derive(Debug, Clone)]
pub enum ProxyFault {
    /// Sends the request, abandons it when the latch is released, and sends it again on another connection. The
    /// second response is passed on.
    Repeat(Latch),
    /// Sends the request, abandons it when the latch is released, and responds with this status itself.
    GiveUp(Latch, u16),
}

impl HttpProxy {
    pub async fn start(guard: SocketAddr, shows: ViaMode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(ProxyState { guard, shows, trick: Mutex::default(), keeps: Mutex::default() });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = serving.clone();
                // An error is ignored: tests break connections on purpose.
                tokio::spawn(async move { drop(shared.converse(stream).await) });
            }
        });
        Self { address, shared }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the fault of the next POST.
    ///
    /// # Panics
    /// If an earlier fault still waits for its request.
    pub fn set_fault(&self, trick: ProxyFault) {
        let before = self.shared.trick.lock().expect("no thread panics here").replace(trick);
        assert!(before.is_none(), "a trick at a time");
    }

    /// Holds the next announcement until the test releases it.
    ///
    /// # Panics
    /// If an announcement is already to be held.
    pub fn hold_announcement(&self) -> HeldAnnouncement {
        let kept = HeldAnnouncement::default();
        let before = self.shared.keeps.lock().expect("no thread panics here").replace(kept.clone());
        assert!(before.is_none(), "one at a time");
        kept
    }
}

impl ProxyState {
    async fn converse(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (input, mut output) = stream.into_split();
        let mut requests = MessageReader::new(input, |_| {});
        while requests.wait_first_byte().await? {
            let mut request = requests.read_head().await?;
            requests.read_body(&mut request, MissingLengthMeaning::Empty).await?;
            if self.shows == ViaMode::Itself {
                request.fields.push(("Via".to_owned(), "1.1 hop".to_owned()));
            }
            let answer = self.answer(&request).await?;
            let is_asked = request.word(1) == ANNOUNCEMENT;
            let kept = self.keeps.lock().expect("no thread panics here").take_if(|_| is_asked);
            if let Some(kept) = kept {
                kept.said.release();
                kept.heard.wait_released().await;
            }
            output.write_all(&answer.to_bytes()).await?;
        }
        Ok(())
    }

    async fn answer(&self, request: &HttpWireMessage) -> io::Result<HttpWireMessage> {
        let post = request.word(0) == "POST";
        let trick = self.trick.lock().expect("no thread panics here").take_if(|_| post);
        match trick {
            None => self.pass(request).await,
            Some(ProxyFault::Repeat(latch)) => {
                let first = self.send(request).await?;
                latch.wait_released().await;
                drop(first);
                self.pass(request).await
            }
            Some(ProxyFault::GiveUp(latch, status)) => {
                let sent = self.send(request).await?;
                latch.wait_released().await;
                drop(sent);
                Ok(own_response(status))
            }
        }
    }

    async fn pass(&self, request: &HttpWireMessage) -> io::Result<HttpWireMessage> {
        // Keep both halves open: a closed half would tell the guard that no client waits.
        let Ok((_output, mut answers)) = self.send(request).await else { return Ok(own_response(502)) };
        let mut answer = answers.read_head().await?;
        answers.read_body(&mut answer, MissingLengthMeaning::UntilClose).await?;
        Ok(answer)
    }

    async fn send(
        &self,
        request: &HttpWireMessage,
    ) -> io::Result<(OwnedWriteHalf, MessageReader<OwnedReadHalf>)> {
        let stream = TcpStream::connect(self.guard).await?;
        stream.set_nodelay(true)?;
        let (input, mut output) = stream.into_split();
        output.write_all(&request.to_bytes()).await?;
        Ok((output, MessageReader::new(input, |_| {})))
    }
}

fn own_response(status: u16) -> HttpWireMessage {
    let start = format!("HTTP/1.1 {status} From-The-Hop");
    HttpWireMessage { start, body: b"no answer from behind".to_vec(), ..HttpWireMessage::default() }
}
