//! Plays the client of one case against a proxy, and keeps what came back.

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

/// What both sides saw of one case.
#[derive(Debug, Default)]
pub struct CaseResult {
    /// One per exchange that was reached; `None` where the connection ended instead.
    pub answers: Vec<Option<ReceivedResponse>>,
    pub requests: Vec<RequestRecord>,
    /// The connection has ended. This is false only where the play ran into its time limit.
    pub closed: bool,
    /// What came behind the last answer.
    pub extra: Vec<u8>,
    /// The proxy kept the connection open and sent nothing.
    pub stuck: bool,
}

/// An answer, as far as it came.
#[derive(Debug, Default)]
pub struct ReceivedResponse {
    pub interim: Vec<u16>,
    pub message: HttpWireMessage,
    /// Its body broke off.
    pub broken: bool,
}

/// Longer than any time limit that a case waits for.
const LONGEST: Duration = Duration::from_secs(15);
/// The pause between two reads of the kernel's table, which sends no event when it changes.
const LOOK: Duration = Duration::from_millis(1);

/// # Panics
/// If no process listens.
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
    /// How many interim answers have come.
    interim: watch::Sender<usize>,
    ours: SocketAddr,
    proxy: SocketAddr,
    service: &'a ScriptedService,
    /// Requests that the service had seen before this exchange.
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
            // A client that sends nothing waits for the end of the connection, and for no answer.
            debug_assert!(!first.says.is_empty());
            rest = later;
        }
        if !case.closes {
            // A connection that is kept ends now, and what was smuggled past is answered before.
            drop(self.output.shutdown().await);
        }
        self.input.read_rest(&mut played.extra).await;
        played.closed = true;
    }

    /// Sends what belongs together and takes the answers; false when the connection has ended.
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
        // An answer may come before the client has sent everything. The client then does not send the rest.
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

    /// Bytes of the client still wait in the kernel for the proxy.
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

/// An address in the spelling of the kernel's table.
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
