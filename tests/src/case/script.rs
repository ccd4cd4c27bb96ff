//! The content of a case: the bytes of a client, of a service and of a proxy, exchange by exchange.

use crate::origin::ScriptedResponse;

/// One connection of a client, as a list of exchanges.
#[derive(Debug, Clone, Default)]
pub struct WireCase {
    pub file: String,
    pub line: usize,
    pub name: String,
    /// True if the route has a lock, so that responses have an outcome and requests are stamped.
    pub fenced: bool,
    pub exchanges: Vec<WireExchange>,
    /// True if the proxy itself ends the connection.
    pub closes: bool,
}

/// A request with its response, or other bytes in the place of a request.
#[derive(Debug, Clone, Default)]
pub struct WireExchange {
    /// True if the client sends this exchange together with the one before, without waiting for a response.
    pub at_once: bool,
    pub says: Vec<ClientAction>,
    pub service: ScriptedResponse,
    pub upstream: ExpectedUpstream,
    pub client: ExpectedClient,
}

impl WireExchange {
    /// True if the request is a HEAD, whose response has no body, whatever its fields are.
    pub(super) fn is_head_request(&self) -> bool {
        self.says.iter().any(|say| matches!(say, ClientAction::Bytes(bytes) if bytes.starts_with(b"HEAD ")))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAction {
    Bytes(Vec<u8>),
    /// The client goes on after this event.
    Until(AwaitedEvent),
    /// The client closes its sending side and goes on reading.
    HangUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedEvent {
    /// The proxy has read everything that the client sent.
    Read,
    /// An interim response has arrived.
    Interim,
    /// The upstream has received the head of the request.
    Upstream,
}

#[derive(Debug, Clone, Default)]
pub enum ExpectedUpstream {
    /// No request arrives at the upstream.
    #[default]
    Nothing,
    Sees(ExpectedRequest),
}

/// A request that the upstream must receive.
#[derive(Debug, Clone, Default)]
pub struct ExpectedRequest {
    pub line: String,
    pub checks: Vec<MessageCheck>,
    /// True if the body must arrive incomplete.
    pub unfinished: bool,
}

#[derive(Debug, Clone, Default)]
pub struct ExpectedClient {
    pub interim: Vec<u16>,
    pub gets: ExpectedStatus,
    pub checks: Vec<MessageCheck>,
    /// True if the response must be cut off.
    pub broken: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ExpectedStatus {
    /// The connection ends without a response.
    #[default]
    Nothing,
    /// A response of the upstream with this status.
    Status(u16),
    /// A response of the proxy itself, with this status and this reason.
    Refusal(u16, String),
}

/// A check of the fields or the body of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageCheck {
    /// The field exists once, with this value.
    Is(String, String),
    /// The field exists, with any value.
    Has(String),
    /// The name is absent in every spelling, both among the fields and among the trailers.
    Lacks(String),
    Body(Vec<u8>),
    /// The trailer exists once, with this value.
    Trailer(String, String),
}
