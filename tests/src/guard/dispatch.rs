//! A request with the fields that a gateway stamps on it, and with any token.

use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_ticket::{TicketClaims, TicketSigner, unix_seconds};

use crate::client::{ClientResponse, TestRequest};

/// The installation of the guards under test.
pub const ENSEMBLE: &str = "0b5c7ac2-3bf7-4b5f-9b61-0a2b6f6a7f10";

/// The stamped fields of one dispatch.
#[derive(Debug, Clone)]
pub struct StampedRequest {
    keys: Vec<String>,
    epoch: u64,
    sequence: u32,
    dispatch: u32,
    mode: LockMode,
    operation: Option<(u64, u64, Option<u64>)>,
    ticket: Option<String>,
}

impl StampedRequest {
    /// The first dispatch of a tenure.
    pub fn new(key: &str, epoch: u64) -> Self {
        let keys = key.split(", ").map(str::to_owned).collect();
        Self {
            keys,
            epoch,
            sequence: 1,
            dispatch: 1,
            mode: LockMode::Exclusive,
            operation: None,
            ticket: None,
        }
    }

    /// The next dispatch of the tenure with this token.
    pub fn after(key: &str, token: FencingToken) -> Self {
        Self { sequence: token.sequence(), ..Self::new(key, token.number()) }
            .with_dispatch(token.dispatch() + 1)
    }

    /// Sets the number of the dispatch within its tenure.
    #[must_use]
    pub fn with_dispatch(mut self, dispatch: u32) -> Self {
        self.dispatch = dispatch;
        self
    }

    #[must_use]
    pub fn shared(mut self) -> Self {
        self.mode = LockMode::Shared;
        self
    }

    /// Makes the request an operation that is executed at most once. Its id and its fingerprint are made from this
    /// number.
    #[must_use]
    pub fn once(mut self, number: u64) -> Self {
        self.operation = Some((number, number, None));
        self
    }

    /// Sets another fingerprint, as for another request under the same operation id.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: u64) -> Self {
        self.operation.as_mut().expect("an operation").1 = fingerprint;
        self
    }

    /// Sets the number of seconds for which the guard must remember the operation.
    #[must_use]
    pub fn keep(mut self, seconds: u64) -> Self {
        self.operation.as_mut().expect("an operation").2 = Some(seconds);
        self
    }

    /// Adds a ticket whose claims agree with the fields.
    #[must_use]
    pub fn sign(self, signer: &TicketSigner) -> Self {
        let claims = self.claims();
        self.ticket(signer, &claims, unix_seconds())
    }

    #[must_use]
    pub fn ticket(mut self, signer: &TicketSigner, claims: &TicketClaims, at: u64) -> Self {
        self.ticket = Some(signer.sign(claims, at));
        self
    }

    /// The claims that an honest gateway signs for this dispatch.
    ///
    /// # Panics
    /// If a key is malformed.
    pub fn claims(&self) -> TicketClaims {
        let keys: Vec<ResourceKey> =
            self.keys.iter().map(|key| ResourceKey::parse(key).expect("a key")).collect();
        TicketClaims::new(&keys, self.token(), self.mode, 0, ENSEMBLE, "gw-1")
    }

    /// The token of the dispatch.
    ///
    /// # Panics
    /// If the epoch is too large.
    pub fn token(&self) -> FencingToken {
        FencingToken::new(self.epoch, self.sequence, self.dispatch).expect("an epoch below 2^63")
    }

    pub fn post(&self, path: &str) -> TestRequest {
        self.apply_to(TestRequest::post(path))
    }

    /// Adds the fields to a request.
    pub fn apply_to(&self, ask: TestRequest) -> TestRequest {
        let mut ask = ask
            .field("Fencing-Token", &self.token().to_string())
            .field("Fencing-Number", &self.epoch.to_string())
            .field("Fencing-Key", &self.keys.join(", "))
            .field("Fencing-Mode", self.mode.as_str());
        if let Some((name, fingerprint, keep)) = self.operation {
            let keep = keep.map_or_else(String::new, |seconds| format!(";keep={seconds}"));
            ask = ask
                .field(
                    "Fencing-Operation",
                    &format!("{};fp={fingerprint:064x}{keep};ask=idempotency-key", id(name)),
                )
                .field("Idempotency-Key", &format!("\"op-{name}\""));
        }
        match &self.ticket {
            Some(ticket) => ask.field("Fencing-Ticket", ticket),
            None => ask,
        }
    }
}

/// The reference by which operators name the operation of this number.
pub fn operation_reference(number: u64) -> String {
    id(number)[..16].to_owned()
}

fn id(number: u64) -> String {
    format!("{number:016x}{number:048x}")
}

/// Asserts that the guard refused a request for this reason.
///
/// # Panics
/// If one of the fields or the body states something else.
#[track_caller]
pub fn assert_refused(answer: &ClientResponse, reason: &str) {
    assert_eq!(answer.field("fencing-refusal"), Some(reason), "{answer:?}");
    assert_eq!(answer.reason(), reason, "{answer:?}");
    let outcome = answer.field("fencing-outcome").unwrap_or_default();
    assert!(outcome.contains(&format!("; reason={reason}")), "{answer:?}");
}
