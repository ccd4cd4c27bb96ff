//! The log of the recording upstream: every request, and every received byte with its time.

use std::time::Instant;

use fencegate_policies::token::FencingToken;

use crate::wire::HttpWireMessage;

/// The request field with the id of the attempt that caused the execution.
pub const ATTEMPT: &str = "x-attempt";

#[derive(Debug, Default)]
pub struct OriginLog {
    /// The requests, in the order in which their heads arrived.
    pub records: Vec<RequestRecord>,
    /// Every piece of bytes that was read from a connection.
    pub pieces: Vec<ReceivedBytes>,
    /// The numbers of connections that are over.
    pub ended: Vec<usize>,
}

/// One request, from its first byte to the end of its execution.
#[derive(Debug, Clone)]
pub struct RequestRecord {
    /// The gateway whose listener received the request. Each gateway has a listener of its own.
    pub gateway: String,
    pub connection: usize,
    pub request: HttpWireMessage,
    /// The arrival of the first byte. An execution counts from this time, which is the strictest reading.
    pub arrived: Instant,
    /// The arrival of the last byte. `None` if the connection ended before.
    pub whole: Option<Instant>,
    /// The time just before the last byte of the answer was written, so no client can notice the end earlier.
    pub ended: Option<Instant>,
    /// The time at which the gateway closed the connection during the execution.
    pub abandoned: Option<Instant>,
    /// The effect on the accounts, if the request changes accounts.
    pub effect: Option<AccountEffect>,
    /// True if a comparing origin refused the token, because it was not newer than the key's watermark. The request
    /// was not executed.
    pub stale: bool,
}

/// The begin and the end of an execution at its account.
#[derive(Debug, Clone, Copy)]
pub struct AccountEffect {
    pub began: Instant,
    /// The time at which the account was written. `None` until then.
    pub ended: Option<Instant>,
}

/// The kind of access to a key that a request demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessMode {
    Exclusive,
    Shared,
}

#[derive(Debug, Clone)]
pub struct ReceivedBytes {
    pub gateway: String,
    pub connection: usize,
    pub at: Instant,
    pub bytes: Vec<u8>,
}

impl OriginLog {
    /// Requests for one path, in order of arrival.
    pub fn requests_for<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a RequestRecord> + 'a {
        self.records.iter().filter(move |record| record.path() == path)
    }

    /// The last requests, few enough for a failure message.
    pub fn latest(&self) -> Vec<RequestRecord> {
        self.records[self.records.len().saturating_sub(10)..].to_vec()
    }

    /// The bytes that one gateway has sent since this time.
    pub fn bytes_since(&self, gateway: &str, moment: Instant) -> Vec<u8> {
        let late = self.pieces.iter().filter(|piece| piece.gateway == gateway && piece.at > moment);
        late.flat_map(|piece| piece.bytes.iter().copied()).collect()
    }
}

impl RequestRecord {
    pub fn method(&self) -> &str {
        self.request.word(0)
    }

    pub fn path(&self) -> &str {
        self.request.word(1)
    }

    pub fn key(&self) -> Option<&str> {
        self.request.field("fencing-key")
    }

    pub fn access(&self) -> AccessMode {
        match self.request.field("fencing-mode") {
            Some("shared") => AccessMode::Shared,
            _ => AccessMode::Exclusive,
        }
    }

    /// The request's token, if it has one.
    ///
    /// # Panics
    /// If the token does not parse, or the request has more than one.
    pub fn token(&self) -> Option<FencingToken> {
        let text = self.request.field("fencing-token")?;
        Some(FencingToken::parse(text).unwrap_or_else(|error| panic!("token `{text}`: {error}")))
    }

    /// The request's token.
    ///
    /// # Panics
    /// If the request has no token, or one that does not parse.
    pub fn expect_token(&self) -> FencingToken {
        self.token().unwrap_or_else(|| panic!("no token on {:?}", self.request))
    }
}
