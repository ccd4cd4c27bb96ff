//! Who answers the requests of connections, as listeners know them.

use std::{convert::Infallible, pin::Pin, rc::Rc, time::Duration};

use hyper::Request;

use crate::course::{Answering, Exchange};
use crate::{
    body::{Body, Reply},
    peer::Peer,
};

/// Answers whatever comes over the connections of one worker.
pub trait Answers {
    fn answer(&self, asked: Asked) -> Answered;

    /// What has come is refused before it was a request: counts it, and says what is written instead. `took`: since its
    /// first byte.
    fn refuse(&self, refused: Refused, took: Duration) -> Reply;
}

/// A request, and what it came over.
pub struct Asked {
    pub http: Box<Request<Body>>,
    pub peer: Rc<Peer>,
    pub exchange: Rc<Exchange>,
    /// To be told of the answer.
    pub answering: Answering,
}

/// The one box per request. Not `Send`, on purpose.
pub type Answered = Pin<Box<dyn Future<Output = Result<Reply, Infallible>>>>;

/// Why what has come never was a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Malformed(&'static str),
    TargetTooLarge,
    HeaderTooLarge,
    /// Its head was not here in time.
    Slow,
    /// Somebody else needed its place.
    Displaced,
}

impl Refused {
    /// For the log.
    pub fn detail(self) -> &'static str {
        match self {
            Self::Malformed(why) => why,
            Self::TargetTooLarge => "the target of a request",
            Self::HeaderTooLarge => "the head of a request",
            Self::Slow => "no complete head in time",
            Self::Displaced => "its place was needed before its head was complete",
        }
    }
}
