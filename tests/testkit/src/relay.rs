//! A TCP relay that simulates a slow network: it can hold back the bytes of one chosen request.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Passes bytes unchanged between its clients and one upstream, until it is told to hold some back.
///
/// It runs on a thread of its own, so that a frozen or busy caller does not slow it. Dropping it closes every
/// connection.
#[derive(Debug)]
pub struct ByteHoldingRelay {
    address: SocketAddr,
    next: PendingByteHold,
    _stop: DropGuard,
}

/// Bytes that are, or will be, held back. Dropping it does not deliver them; see [`HeldBytes::release`].
#[derive(Debug)]
pub struct HeldBytes(Arc<ByteHoldState>);

impl ByteHoldingRelay {
    /// # Errors
    /// No loopback port or no thread is available.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let next = PendingByteHold::default();
        let stop = CancellationToken::new();

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = accept(listener, upstream, next.clone());
        let stopped = stop.clone();
        let run = move || runtime.block_on(async { stopped.run_until_cancelled(serve).await });
        thread::Builder::new().name("relay".into()).spawn(run)?;
        Ok(Self { address, next, _stop: stop.drop_guard() })
    }

    /// The address to use in place of the upstream's.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds back the next bytes towards the upstream that contain `needle`, and everything after them on their
    /// connection. It captures once; other connections pass. An earlier hold that has captured nothing is dropped.
    pub fn hold_containing(&self, needle: impl Into<Vec<u8>>) -> HeldBytes {
        let held = Arc::new(ByteHoldState {
            needle: needle.into(),
            captured: watch::Sender::new(false),
            released: watch::Sender::new(false),
        });
        *self.next.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&held));
        HeldBytes(held)
    }
}

impl HeldBytes {
    /// Waits until the bytes have arrived here and are held.
    pub async fn wait_captured(&self) {
        wait_true(&self.0.captured).await;
    }

    /// Delivers the bytes, also if their sender has closed its connection meanwhile.
    pub fn release(&self) {
        self.0.released.send_replace(true);
    }
}

#[derive(Debug)]
struct ByteHoldState {
    needle: Vec<u8>,
    captured: watch::Sender<bool>,
    released: watch::Sender<bool>,
}

/// The hold that waits for its bytes; the first connection that receives them takes it.
#[derive(Debug, Clone, Default)]
struct PendingByteHold(Arc<Mutex<Option<Arc<ByteHoldState>>>>);

impl PendingByteHold {
    /// `tail` is the end of the bytes that have passed: the needle may lie across two reads.
    fn take_if_found(&self, tail: &[u8], bytes: &[u8]) -> Option<Arc<ByteHoldState>> {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = [tail, bytes].concat();
        next.take_if(|held| held.is_contained_in(&seen))
    }
}

impl ByteHoldState {
    fn is_contained_in(&self, seen: &[u8]) -> bool {
        !self.needle.is_empty() && seen.windows(self.needle.len()).any(|window| window == self.needle)
    }
}

async fn accept(listener: StdListener, upstream: SocketAddr, next: PendingByteHold) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        tokio::spawn(relay_connection(client, upstream, next.clone()));
    }
}

async fn relay_connection(client: TcpStream, upstream: SocketAddr, next: PendingByteHold) -> io::Result<()> {
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let back = tokio::spawn(forward_responses(from_server, to_client));
    forward_requests(from_client, to_server, next, back).await
}

/// Passes responses back. After the client has disconnected they are still read, as a network would deliver them.
async fn forward_responses(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut buffer = vec![0; 16 * 1024];
    let mut reachable = true;
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        reachable = reachable && to.write_all(&buffer[..count]).await.is_ok();
    }
}

async fn forward_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    next: PendingByteHold,
    back: tokio::task::JoinHandle<()>,
) -> io::Result<()> {
    const LONGEST_NEEDLE: usize = 256;
    let mut buffer = vec![0; 16 * 1024];
    let mut tail = Vec::new();
    while let count @ 1.. = from.read(&mut buffer).await? {
        let bytes = &buffer[..count];
        if let Some(held) = next.take_if_found(&tail, bytes) {
            let sender = hold_bytes(&held, bytes, &mut from, &mut to).await?;
            if sender == SenderState::Disconnected {
                // Closing now could cancel the request that was just delivered, so wait until the other side has
                // ended.
                back.await.map_err(io::Error::other)?;
                return Ok(());
            }
            tail.clear();
            continue;
        }
        to.write_all(bytes).await?;
        tail.extend_from_slice(bytes);
        tail.drain(..tail.len().saturating_sub(LONGEST_NEEDLE));
    }
    to.shutdown().await
}

#[derive(Debug, PartialEq, Eq)]
enum SenderState {
    Connected,
    Disconnected,
}

/// Collects until the release, then delivers. It reads on meanwhile: bytes left in our socket would be lost when
/// the sender resets the connection.
async fn hold_bytes(
    held: &ByteHoldState,
    first: &[u8],
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
) -> io::Result<SenderState> {
    let mut bytes = first.to_vec();
    held.captured.send_replace(true);
    let collect = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            bytes.extend_from_slice(&buffer[..count]);
        }
    };
    let sender = tokio::select! {
        () = collect => SenderState::Disconnected,
        () = wait_true(&held.released) => SenderState::Connected,
    };
    wait_true(&held.released).await;
    to.write_all(&bytes).await?;
    Ok(sender)
}

async fn wait_true(flag: &watch::Sender<bool>) {
    flag.subscribe().wait_for(|set| *set).await.expect("the sender is borrowed here");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// An upstream that sends each line back, and reports the lines that it received.
    async fn echo() -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
        use tokio::io::{AsyncBufReadExt, BufReader};

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, lines) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = seen.clone();
                tokio::spawn(async move {
                    let (from, mut to) = stream.into_split();
                    let mut from = BufReader::new(from).lines();
                    while let Ok(Some(line)) = from.next_line().await {
                        to.write_all(format!("{line}\n").as_bytes()).await.unwrap();
                        seen.send(line).unwrap();
                    }
                });
            }
        });
        (address, lines)
    }

    async fn answer(stream: &mut TcpStream) -> String {
        let mut buffer = [0; 100];
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer)).await;
        let count = read.expect("an answer in time").unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    /// Only the chosen request is held, once; after the release it arrives although its sender has reset the
    /// connection.
    #[tokio::test]
    async fn held_request_arrives_after_sender_reset() {
        let (upstream, mut lines) = echo().await;
        let relay = ByteHoldingRelay::start(upstream).unwrap();
        let mut one = TcpStream::connect(relay.address()).await.unwrap();
        let mut two = TcpStream::connect(relay.address()).await.unwrap();

        // Without this, " more" would wait in the sender's kernel for an acknowledgement, and be lost with the reset.
        one.set_nodelay(true).unwrap();
        one.write_all(b"before\n").await.unwrap();
        assert_eq!(answer(&mut one).await, "before\n");
        let hold = relay.hold_containing("op-7");
        one.write_all(b"pay op-7 and").await.unwrap();
        hold.wait_captured().await;
        one.write_all(b" more\n").await.unwrap();
        two.write_all(b"other\n").await.unwrap();
        assert_eq!(answer(&mut two).await, "other\n");
        two.write_all(b"again op-7\n").await.unwrap();
        assert_eq!(answer(&mut two).await, "again op-7\n", "a hold captures once");

        // A reset, as a gateway sends one after its lock validity has ended.
        #[expect(deprecated, reason = "zero does not block: it resets")]
        one.set_linger(Some(Duration::ZERO)).unwrap();
        drop(one);
        tokio::time::sleep(Duration::from_millis(50)).await;
        for expected in ["before", "other", "again op-7"] {
            assert_eq!(lines.recv().await.unwrap(), expected);
        }
        assert!(lines.try_recv().is_err(), "held bytes arrived before the release");
        hold.release();
        assert_eq!(lines.recv().await.unwrap(), "pay op-7 and more");
    }

    /// A needle that spans two reads is found, and the connection goes on after the release.
    #[tokio::test]
    async fn needle_across_two_reads_is_held() {
        let (upstream, _lines) = echo().await;
        let relay = ByteHoldingRelay::start(upstream).unwrap();
        let mut one = TcpStream::connect(relay.address()).await.unwrap();
        let hold = relay.hold_containing("needle");
        one.write_all(b"a\nnee").await.unwrap();
        assert_eq!(answer(&mut one).await, "a\n");
        one.write_all(b"dle\n").await.unwrap();
        hold.wait_captured().await;
        hold.release();
        assert_eq!(answer(&mut one).await, "needle\n");
        one.write_all(b"b\n").await.unwrap();
        assert_eq!(answer(&mut one).await, "b\n");
    }

    #[tokio::test]
    async fn dropped_relay_closes_connections() {
        let (upstream, _lines) = echo().await;
        let relay = ByteHoldingRelay::start(upstream).unwrap();
        let mut one = TcpStream::connect(relay.address()).await.unwrap();
        one.write_all(b"a\n").await.unwrap();
        assert_eq!(answer(&mut one).await, "a\n");
        drop(relay);
        let mut rest = Vec::new();
        // The end of the connection or a reset, but not silence.
        let _either =
            tokio::time::timeout(Duration::from_secs(10), one.read_to_end(&mut rest)).await.unwrap();
        assert!(rest.is_empty());
    }
}
