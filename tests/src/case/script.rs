//! What a case says: the words of a client, of a service and of a proxy, exchange after exchange.

/// One connection of a client, exchange after exchange.
#[derive(Debug, Clone, Default)]
pub struct Case {
    pub file: String,
    pub line: usize,
    pub name: String,
    /// On a route that holds a lock, so answers tell the outcome and requests are stamped.
    pub fenced: bool,
    pub exchanges: Vec<Exchange>,
    /// The proxy ends the connection by itself.
    pub closes: bool,
}

/// A request, or what stands in its place, with its answer.
#[derive(Debug, Clone, Default)]
pub struct Exchange {
    /// Said together with the exchange before, whose answer is not waited for.
    pub at_once: bool,
    pub says: Vec<Say>,
    pub service: Answer,
    pub upstream: Upstream,
    pub client: Client,
}

impl Exchange {
    /// Its answer has no body, whatever its fields say.
    pub(super) fn asks_for_head(&self) -> bool {
        self.says.iter().any(|say| matches!(say, Say::Bytes(bytes) if bytes.starts_with(b"HEAD ")))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Say {
    Bytes(Vec<u8>),
    /// Goes on when this has happened.
    Until(Event),
    /// Nothing more will be said; the client still reads.
    HangUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The proxy has taken from the kernel what was said.
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
    /// Behind the head of the request, without reading its body.
    pub early: bool,
}

#[derive(Debug, Clone, Default)]
pub enum Upstream {
    /// Not a byte.
    #[default]
    Nothing,
    Sees(Seen),
}

/// A request that arrived.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub line: String,
    pub checks: Vec<Check>,
    /// Its body did not arrive in full.
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
    /// Of the upstream.
    Status(u16),
    /// Of the proxy itself, with its reason.
    Refusal(u16, String),
}

/// About the fields and the body of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// There once, with this value.
    Is(String, String),
    /// There, whatever its value.
    Has(String),
    /// Not there in any spelling, neither as a field nor as a trailer.
    Lacks(String),
    Body(Vec<u8>),
    /// Among the trailers once, with this value.
    Trailer(String, String),
}
