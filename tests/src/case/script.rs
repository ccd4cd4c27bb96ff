//! What a case says: the words of a client, of a service and of a proxy, exchange after exchange.

/// One connection of a client, exchange after exchange.
#[derive(Debug, Clone, Default)]
pub struct Case {
    pub file: String,
    pub line: usize,
    pub name: String,
    /// The route holds a lock, so answers tell the outcome and requests are stamped.
    pub fenced: bool,
    pub exchanges: Vec<Exchange>,
    /// The proxy ends the connection by itself.
    pub closes: bool,
}

/// A request with its answer, or other bytes in the place of a request.
#[derive(Debug, Clone, Default)]
pub struct Exchange {
    /// The client says this exchange together with the one before, without waiting for its answer.
    pub at_once: bool,
    pub says: Vec<Say>,
    pub service: Answer,
    pub upstream: Upstream,
    pub client: Client,
}

impl Exchange {
    /// The request is a HEAD, so its answer has no body, whatever the fields of the answer say.
    pub(super) fn asks_for_head(&self) -> bool {
        self.says.iter().any(|say| matches!(say, Say::Bytes(bytes) if bytes.starts_with(b"HEAD ")))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Say {
    Bytes(Vec<u8>),
    /// The client goes on after this event.
    Until(Event),
    /// The client closes its sending side and still reads.
    HangUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The proxy has read from the kernel everything that the client said.
    Read,
    /// An interim answer has come.
    Interim,
    /// The upstream has seen the head of the request.
    Upstream,
}

/// What the service behind the proxy answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// `None`: 200 with the body `ok`.
    pub bytes: Option<Vec<u8>>,
    pub closes: bool,
    /// The answer is sent after the head of the request, before the body is read.
    pub early: bool,
}

#[derive(Debug, Clone, Default)]
pub enum Upstream {
    /// No request arrives at the upstream.
    #[default]
    Nothing,
    Sees(Seen),
}

/// A request that arrived.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub line: String,
    pub checks: Vec<Check>,
    /// The body did not arrive in full.
    pub unfinished: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Client {
    pub interim: Vec<u16>,
    pub gets: Gets,
    pub checks: Vec<Check>,
    /// The answer broke off.
    pub broken: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Gets {
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
pub enum Check {
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
