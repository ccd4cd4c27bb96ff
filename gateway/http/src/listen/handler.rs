//! The trait that answers requests, as listeners see it, and the time limits for their clients.

use std::{convert::Infallible, pin::Pin, rc::Rc, time::Duration};

use fencegate_policies::plan::ListenerTimeouts;
use hyper::Request;

use crate::{
    body::{Body, Reply},
    buffered::HeadReservation,
    connection_info::ConnectionInfo,
    connection_state::{ResponseTracker, ServerExchange},
};

/// Answers the requests of one worker's connections.
pub trait HttpHandler {
    fn handle(&self, request: IncomingRequest) -> ResponseFuture;

    /// Counts a refusal of bytes that never became a request, and returns the response to write. `took` is the
    /// time since the first of these bytes.
    fn reject(&self, refused: RequestRejection, took: Duration) -> Reply;
}

/// A request, and the connection that it came over.
pub struct IncomingRequest {
    pub http: Box<Request<Body>>,
    pub peer: Rc<ConnectionInfo>,
    pub exchange: Rc<ServerExchange>,
    /// Observes how the client takes the response; the handler attaches it to the response.
    pub tracker: ResponseTracker,
    /// The memory of a large head, reserved until the request is over. `None` for a small one.
    pub head: Option<HeadReservation>,
}

/// The future of a response: the only box of each request. It is not `Send`, because each worker has one thread.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Result<Reply, Infallible>>>>;

/// The reason for which received bytes never became a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestRejection {
    Malformed(&'static str),
    TargetTooLarge,
    HeaderTooLarge,
    /// The head was not complete in time.
    TimedOut,
    /// The slot of the connection was given to another one.
    Displaced,
    /// The memory for heads is used up.
    HeadMemoryExhausted,
}

impl RequestRejection {
    /// The text for the log.
    pub fn log_detail(self) -> &'static str {
        match self {
            Self::Malformed(reason) => reason,
            Self::TargetTooLarge => "the target of a request",
            Self::HeaderTooLarge => "the head of a request",
            Self::TimedOut => "no complete head in time",
            Self::HeadMemoryExhausted => "there is no memory left for its head",
            Self::Displaced => "its place was needed before its head was complete",
        }
    }
}

/// The names of the time limits, as they stand in the policy and in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerTimeLimit {
    TlsHandshake,
    Detect,
    RequestHeaders,
    RequestBody,
    Idle,
    ResponseWrite,
}

impl ListenerTimeLimit {
    pub const ALL: [Self; 6] = [
        Self::TlsHandshake,
        Self::Detect,
        Self::RequestHeaders,
        Self::RequestBody,
        Self::Idle,
        Self::ResponseWrite,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::TlsHandshake => "tls_handshake",
            Self::Detect => "detect",
            Self::RequestHeaders => "request_headers",
            Self::RequestBody => "request_body",
            Self::Idle => "idle",
            Self::ResponseWrite => "response_write",
        }
    }

    pub fn duration(self, timeouts: &ListenerTimeouts) -> Duration {
        match self {
            Self::TlsHandshake => timeouts.tls_handshake,
            Self::Detect => timeouts.detect,
            Self::RequestHeaders => timeouts.request_headers,
            Self::RequestBody => timeouts.request_body,
            Self::Idle => timeouts.idle,
            Self::ResponseWrite => timeouts.response_write,
        }
    }
}
