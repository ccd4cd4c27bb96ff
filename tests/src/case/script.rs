//! The content of a case: the bytes of a client, of a service and of a proxy, exchange after exchange.

use crate::origin::ScriptedResponse;

/// One connection of a client, exchange after exchange.
#[derive(Debug, Clone, Default)]
pub struct WireCase {
    pub file: String,
    pub line: usize,
    pub name: String,
    /// The route holds a lock, so answers have an outcome and requests are stamped.
    pub fenced: bool,
    pub exchanges: Vec<WireExchange>,
    /// The proxy ends the connection by itself.
    pub closes: bool,
}

/// A request with its answer, or other bytes instead of a request.
#[derive(Debug, Clone, Default)]
pub struct WireExchange {
    /// The client sends this exchange together with the one before, without waiting for its answer.
    pub at_once: bool,
    pub says: Vec<ClientAction>,
    pub service: ScriptedResponse,
    pub upstream: ExpectedUpstream,
    pub client: ExpectedClient,
}

impl WireExchange {
    /// The request is a HEAD, so its answer has no body, whatever the fields of the answer are.
    pub(super) fn is_head_request(&self) -> bool {
        self.says.iter().any(|say| matches!(say, ClientAction::Bytes(bytes) if bytes.starts_with(b"HEAD ")))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAction {
    Bytes(Vec<u8>),
    /// The client goes on after this event.
    Until(AwaitedEvent),
    /// The client closes its sending side and still reads.
    HangUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedEvent {
    /// The proxy has read from the kernel everything that the client sent.
    Read,
    /// An interim answer has come.
    Interim,
    /// The upstream has seen the head of the request.
    Upstream,
}

#[derive(Debug, Clone, Default)]
pub enum ExpectedUpstream {
    /// No request arrives at the upstream.
    #[default]
    Nothing,
    Sees(ExpectedRequest),
}

/// A request that arrived.
#[derive(Debug, Clone, Default)]
pub struct ExpectedRequest {
    pub line: String,
    pub checks: Vec<MessageCheck>,
    /// The body did not arrive in full.
    pub unfinished: bool,
}

#[derive(Debug, Clone, Default)]
pub struct ExpectedClient {
    pub interim: Vec<u16>,
    pub gets: ExpectedStatus,
    pub checks: Vec<MessageCheck>,
    /// The answer broke off.
    pub broken: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ExpectedStatus {
    /// The connection ends without an answer.
    #[default]
    Nothing,
    /// An answer of the upstream with this status.
    Status(u16),
    /// An answer of the proxy itself, with this status and this reason.
    Refusal(u16, String),
}

/// About the fields and the body of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageCheck {
    /// The field is there once, with this value.
    Is(String, String),
    /// The field is there, with any value.
    Has(String),
    /// The name is absent in every spelling, both as a field and as a trailer.
    Lacks(String),
    Body(Vec<u8>),
    /// The trailer is there once, with this value.
    Trailer(String, String),
}
