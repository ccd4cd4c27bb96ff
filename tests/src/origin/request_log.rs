//! What the recording upstream saw: every request, and every byte with its time.

use std::time::Instant;

use fencegate_policies::token::FencingToken;

use crate::wire::HttpWireMessage;

/// The request field that ties an execution to the attempt that caused it.
pub const ATTEMPT: &str = "x-attempt";

#[derive(Debug, Default)]
pub struct OriginLog {
    /// In order of their heads' arrival.
    pub records: Vec<RequestRecord>,
    /// Every piece that was read from any connection.
    pub pieces: Vec<ReceivedBytes>,
    /// Connections that are over.
    pub ended: Vec<usize>,
}

/// One request, from its first byte to the end of its execution.
#[derive(Debug, Clone)]
pub struct RequestRecord {
    /// The listener it came through; each gateway has a listener of its own.
    pub gateway: String,
    pub connection: usize,
    pub request: HttpWireMessage,
    /// The first byte was there. An execution is counted from here: the strictest reading.
    pub arrived: Instant,
    /// The last byte was there; None if the connection ended before.
    pub whole: Option<Instant>,
    /// Taken just before the last byte of the answer was written, so no client can notice the end earlier.
    pub ended: Option<Instant>,
    /// The gateway closed the connection while the request was worked on.
    pub abandoned: Option<Instant>,
    /// Of a request that changes accounts: when its execution began there, and when it had written.
    pub effect: Option<AccountEffect>,
    /// A comparing origin found the token not newer than the key's watermark: nothing was executed.
    pub stale: bool,
}

/// What an execution did to its account.
#[derive(Debug, Clone, Copy)]
pub struct AccountEffect {
    pub began: Instant,
    /// None: not over.
    pub ended: Option<Instant>,
}

/// What a request demands of its key.
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

    /// The last requests, few enough to read.
    pub fn latest(&self) -> Vec<RequestRecord> {
        self.records[self.records.len().saturating_sub(10)..].to_vec()
    }

    /// Requests that came through one listener after a moment.
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

    /// # Panics
    /// If there is a token that does not parse, or more than one.
    pub fn token(&self) -> Option<FencingToken> {
        let text = self.request.field("fencing-token")?;
        Some(FencingToken::parse(text).unwrap_or_else(|error| panic!("token `{text}`: {error}")))
    }

    /// # Panics
    /// If there is no token, or one that does not parse.
    pub fn expect_token(&self) -> FencingToken {
        self.token().unwrap_or_else(|| panic!("no token on {:?}", self.request))
    }
}
