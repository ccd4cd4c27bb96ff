//! Plays the client of one case against a proxy, and records the responses.

use std::{fs, io, net::SocketAddr, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    time::{sleep, timeout},
};

use super::{AwaitedEvent, ClientAction, WireCase, WireExchange, service::ScriptedService};
use crate::{
    origin::RequestRecord,
    wire::{HttpWireMessage, MessageReader, MissingLengthMeaning},
};

/// What the client and the service received in one case.
#[derive(Debug, Default)]
pub struct CaseResult {
    /// The responses of the exchanges that were reached; `None` if the connection ended instead.
    pub answers: Vec<Option<ReceivedResponse>>,
    pub requests: Vec<RequestRecord>,
    /// True if the connection has ended; false if the run reached its time limit.
    pub closed: bool,
    /// Bytes after the last response.
    pub extra: Vec<u8>,
    /// True if the proxy kept the connection open and sent nothing.
    pub stuck: bool,
}

/// A response, as far as it arrived.
#[derive(Debug, Default)]
pub struct ReceivedResponse {
    pub interim: Vec<u16>,
    pub message: HttpWireMessage,
    /// True if the body was cut off.
    pub broken: bool,
}

/// Longer than any time limit that a case waits for.
const LONGEST: Duration = Duration::from_secs(15);
/// The pause between two reads of the kernel's table, which sends no event when it changes.
const LOOK: Duration = Duration::from_millis(1);

/// Plays a case.
///
/// # Panics
/// If no process listens at the address of the proxy.
pub async fn play(case: &WireCase, proxy: SocketAddr, service: &ScriptedService) -> CaseResult {
    let before = service.request_count();
    service.set_responses(case.exchanges.iter().map(|exchange| exchange.service.clone()));
    let stream = TcpStream::connect(proxy).await.expect("the proxy listens");
    let mut talk = ClientConnection::over(stream, proxy, service, before);
    let mut played = CaseResult::default();
    if timeout(LONGEST, talk.run_exchanges(case, &mut played)).await.is_err() {
        played.stuck = true;
    }
    played.requests = service.requests_since(before);
    played
}

struct ClientConnection<'a> {
    output: OwnedWriteHalf,
    input: MessageReader<OwnedReadHalf>,
    /// The number of interim responses that have arrived.
    interim: watch::Sender<usize>,
    ours: SocketAddr,
    proxy: SocketAddr,
    service: &'a ScriptedService,
    /// The number of requests that the service had received before this exchange.
    seen: usize,
}

impl<'a> ClientConnection<'a> {
    fn over(stream: TcpStream, proxy: SocketAddr, service: &'a ScriptedService, seen: usize) -> Self {
        stream.set_nodelay(true).expect("a TCP socket");
        let ours = stream.local_addr().expect("connected");
        let (input, output) = stream.into_split();
        let input = MessageReader::new(input, |_| {});
        Self { output, input, interim: watch::Sender::default(), ours, proxy, service, seen }
    }

    async fn run_exchanges(&mut self, case: &WireCase, played: &mut CaseResult) {
        let mut rest = &case.exchanges[..];
        while let Some(first) = rest.first() {
            let together = 1 + rest[1..].iter().take_while(|exchange| exchange.at_once).count();
            let (now, later) = rest.split_at(together);
            self.seen = self.service.request_count();
            if !self.run_group(now, played).await {
                played.closed = true;
                return;
            }
            // An exchange without bytes waits only for the end of the connection, so it cannot be followed by
            // another one.
            debug_assert!(!first.says.is_empty());
            rest = later;
        }
        if !case.closes {
            // End a connection that the proxy keeps. The proxy first answers requests that were smuggled past it, so
            // they are seen.
            drop(self.output.shutdown().await);
        }
        self.input.read_rest(&mut played.extra).await;
        played.closed = true;
    }

    /// Sends the exchanges of a group at once, and receives their responses. False if the connection has ended.
    async fn run_group(&mut self, group: &[WireExchange], played: &mut CaseResult) -> bool {
        let Self { output, input, interim, ours, proxy, service, seen } = self;
        let events = CaseEventSource {
            ours: *ours,
            proxy: *proxy,
            service,
            seen: *seen,
            interim: interim.subscribe(),
        };
        let reading = async {
            for exchange in group {
                let received = receive(input, interim, exchange).await.ok();
                let ended = received.as_ref().is_none_or(|received| received.broken);
                played.answers.push(received);
                if ended {
                    return false;
                }
            }
            true
        };
        let writing = async {
            for say in group.iter().flat_map(|exchange| &exchange.says) {
                if events.perform(output, say).await.is_err() {
                    break;
                }
            }
            std::future::pending::<bool>().await
        };
        // If the response arrives before the client has sent everything, the client does not send the rest.
        tokio::select! {
            open = reading => open,
            open = writing => open,
        }
    }
}

struct CaseEventSource<'a> {
    ours: SocketAddr,
    proxy: SocketAddr,
    service: &'a ScriptedService,
    seen: usize,
    interim: watch::Receiver<usize>,
}

impl CaseEventSource<'_> {
    async fn perform(&self, output: &mut OwnedWriteHalf, say: &ClientAction) -> io::Result<()> {
        match say {
            ClientAction::Bytes(bytes) => return output.write_all(bytes).await,
            ClientAction::HangUp => return output.shutdown().await,
            ClientAction::Until(AwaitedEvent::Upstream) => self.service.wait_requests(self.seen + 1).await,
            ClientAction::Until(AwaitedEvent::Interim) => {
                let come = self.interim.clone().wait_for(|count| *count > 0).await.is_ok();
                debug_assert!(come, "the sender is kept beside");
            }
            ClientAction::Until(AwaitedEvent::Read) => {
                while self.has_unread_bytes() {
                    sleep(LOOK).await;
                }
            }
        }
        Ok(())
    }

    /// True while bytes of the client wait in the kernel for the proxy.
    fn has_unread_bytes(&self) -> bool {
        let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        let proxy = kernel_spelling(self.proxy);
        let ours = kernel_spelling(self.ours);
        table.lines().any(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let ends = (columns.next(), columns.next());
            let queues = columns.nth(1).unwrap_or_default();
            ends == (Some(&proxy), Some(&ours)) && !queues.ends_with(":00000000")
        })
    }
}

/// An address as `/proc/net/tcp` writes it.
fn kernel_spelling(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => {
            format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
        }
        SocketAddr::V6(_) => String::new(),
    }
}

async fn receive(
    input: &mut MessageReader<OwnedReadHalf>,
    interim: &watch::Sender<usize>,
    exchange: &WireExchange,
) -> io::Result<ReceivedResponse> {
    let mut received = ReceivedResponse::default();
    loop {
        received.message = input.read_head().await?;
        match received.message.word(1).parse() {
            Ok(status @ 100..=199) => {
                received.interim.push(status);
                interim.send_modify(|count| *count += 1);
            }
            Ok(204 | 304) => return Ok(received),
            _ => break,
        }
    }
    if !exchange.is_head_request() {
        received.broken =
            input.read_body(&mut received.message, MissingLengthMeaning::UntilClose).await.is_err();
    }
    Ok(received)
}
