//! The tickets of a gateway: one per tenure, signed when it is first needed, and again after half its life. Also
//! verifies tickets, of this and of other gateways, that services show when they call back.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use fencegate_policies::{
    key::ResourceKey,
    plan::{self, LockMode, TicketSigningKey},
    token::FencingToken,
};
use fencegate_process::randomness::{Guid, SystemRandomness};
use fencegate_ticket::{
    InvalidTenureTicketError, KeyFileError, TenureHolder, TenureTicket, TicketClaims, TicketSigner,
    TicketVerificationError, TicketVerifier, VerifiedTicket, jwks, keys::SigningKeyPair, unix_seconds,
};
use fencegate_zookeeper::{session::paths::ZkPaths, state::HighestEpochTracker};
use hyper::header::HeaderValue;

use crate::dispatch_window::DispatchWindow;

/// Signs and verifies tickets for all workers.
pub struct TicketIssuer {
    signer: Arc<TicketSigner>,
    jwks: Option<Arc<str>>,
    issuer: String,
    /// The name under which the gateway's sessions are registered.
    gateway: Arc<str>,
    /// An id of this process alone.
    process: String,
    /// Verifiers with our own key, and with the keys of other gateways.
    verifiers: Vec<TicketVerifier>,
    /// The installation and its era. A guard accepts tokens of a later era although they are far larger.
    memory: Arc<HighestEpochTracker>,
    tickets: Mutex<IssuedTicketCache>,
}

/// The tickets of recently used tenures. When there are many young tickets, the old ones are dropped. A transaction
/// can take several free keys, and then their tenures have one number. So a ticket is found by its number and its
/// keys.
#[derive(Default)]
struct IssuedTicketCache {
    young: HashMap<FencingToken, Vec<Arc<TenureTicket>>>,
    old: HashMap<FencingToken, Vec<Arc<TenureTicket>>>,
}

const MAX_YOUNG: usize = 4096;

impl TicketIssuer {
    /// An issuer that signs with this key.
    ///
    /// # Errors
    /// Returns an error if the key file is malformed, or if others can read it.
    pub fn new(
        key: &TicketSigningKey,
        gateway: &plan::GatewayPlan,
        name: &Arc<str>,
        memory: &Arc<HighestEpochTracker>,
    ) -> Result<Arc<Self>, KeyFileError> {
        let others = gateway.siblings.as_deref().map(TicketVerifier::from_jwks_file).transpose()?;
        let (signer, jwks, own) = match key {
            TicketSigningKey::Ed25519(path) => {
                let pair = SigningKeyPair::read_private_jwk(path)?;
                let jwks = jwks::render_key_set(&[pair.public()]).ok().map(Arc::<str>::from);
                let own = TicketVerifier::without_keys();
                let given = jwks.as_ref().map(|keys| own.set_keys(keys.as_bytes(), &path.display()));
                debug_assert!(matches!(given, Some(Ok(()))), "one key, in the form that is read");
                (TicketSigner::with_key(&pair), jwks, own)
            }
            TicketSigningKey::Secret(path) => {
                (TicketSigner::from_secret_file(path)?, None, TicketVerifier::from_secret_file(path)?)
            }
        };
        Ok(Arc::new(Self {
            signer: Arc::new(signer),
            jwks,
            issuer: gateway.serving.name.clone().unwrap_or_else(|| "fencegate".into()),
            gateway: name.clone(),
            process: Guid::new(&SystemRandomness).to_string(),
            verifiers: [own].into_iter().chain(others).collect(),
            memory: memory.clone(),
            tickets: Mutex::default(),
        }))
    }

    /// The public key as a JWK set, for guards that fetch it. `None` if a shared secret signs the tickets.
    pub fn jwks(&self) -> Option<Arc<str>> {
        self.jwks.clone()
    }

    /// The ticket of the tenure to which `token` belongs. `None` before any session has found the installation,
    /// when there are no tenures either.
    pub fn ticket(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
        mode: LockMode,
        session: i64,
    ) -> Option<HeaderValue> {
        self.ticket_until(keys, token, mode, session, None).map(|(ticket, _)| ticket)
    }

    /// The ticket that [`TicketIssuer::ticket`] returns. If `span` is given, the ticket also has the moment
    /// after which no dispatch under it may be started, in milliseconds since 1970: that of the span, or a
    /// moment little before it. This moment is the second value.
    pub fn ticket_until(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
        mode: LockMode,
        session: i64,
        span: Option<DispatchWindow>,
    ) -> Option<(HeaderValue, Option<u64>)> {
        let tenure = FencingToken::new(token.number(), token.sequence(), 0).ok()?;
        let served = self.memory.installation()?;
        let make = || {
            let claims = TicketClaims::new(keys, tenure, mode, served.era, &served.uuid, &self.issuer);
            let member = ZkPaths::member_name(&self.gateway, session);
            let claims = claims.with_origin(TenureHolder { process: self.process.clone(), member });
            Arc::new(TenureTicket::new(self.signer.clone(), claims))
        };
        let ticket = self.tickets.lock().unwrap_or_else(PoisonError::into_inner).get(tenure, keys, make);
        // Signing takes time, so it happens outside of the lock that all workers share.
        let (text, bound) = match span {
            None => (ticket.text(unix_seconds()), None),
            Some(DispatchWindow { not_after, remaining: left, .. }) => {
                let (text, bound) = ticket.signed_text_until(unix_seconds(), not_after.unix_ms(), left);
                (text, Some(bound))
            }
        };
        let mut value = HeaderValue::from_str(&text).expect("base64url and dots");
        // A ticket must not be shown in logs, because a reader of the log could present it.
        value.set_sensitive(true);
        Some((value, bound))
    }

    /// Verifies a ticket: a gateway of this installation has signed it, and it has not expired.
    ///
    /// # Errors
    /// Returns a [`TicketVerificationError`] if the ticket is not valid.
    pub fn verify(&self, ticket: &[u8]) -> Result<Arc<VerifiedTicket>, TicketVerificationError> {
        let unknown = TicketVerificationError::Invalid(InvalidTenureTicketError::UnknownKey);
        let Some(served) = self.memory.installation() else { return Err(unknown) };
        let mut bad = unknown;
        for verifier in &self.verifiers {
            match verifier.verify(ticket, &served.uuid, unix_seconds()) {
                Err(other) if other == unknown => bad = other,
                done => return done,
            }
        }
        Err(bad)
    }

    /// True if the tenure belongs, or belonged, to this process.
    pub fn is_own(&self, origin: &TenureHolder) -> bool {
        origin.process == self.process
    }
}

impl IssuedTicketCache {
    /// The ticket of a tenure on these keys, made if it is not cached. `keys` are sorted.
    fn get(
        &mut self,
        tenure: FencingToken,
        keys: &[ResourceKey],
        make: impl FnOnce() -> Arc<TenureTicket>,
    ) -> Arc<TenureTicket> {
        let is_of = |ticket: &&Arc<TenureTicket>| {
            let known = ticket.claims().keys.iter().map(String::as_str);
            known.eq(keys.iter().map(ResourceKey::as_str))
        };
        if let Some(ticket) = self.young.get(&tenure).and_then(|tickets| tickets.iter().find(is_of)) {
            return ticket.clone();
        }
        let mut tickets = self.old.remove(&tenure).unwrap_or_default();
        if self.young.len() >= MAX_YOUNG {
            self.old = std::mem::take(&mut self.young);
        }
        let ticket = tickets.iter().find(is_of).cloned();
        let ticket = ticket.unwrap_or_else(|| {
            tickets.push(make());
            tickets[tickets.len() - 1].clone()
        });
        self.young.entry(tenure).or_default().append(&mut tickets);
        ticket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two grants can have one token: one transaction made both nodes, each as the first below its parent.
    #[test]
    fn grants_with_equal_token_have_own_ticket() {
        let signer = Arc::new(TicketSigner::with_key(&SigningKeyPair::generate(&SystemRandomness)));
        let tenure = FencingToken::new(7, 0, 0).expect("a token");
        let mut known = IssuedTicketCache::default();
        let keys = ["a", "b"].map(|key| [ResourceKey::parse(key).expect("a key")]);
        for round in 0..2 {
            for key in &keys {
                let claims = || TicketClaims::new(key, tenure, LockMode::Exclusive, 1, "uuid", "gw-1");
                let ticket = known.get(tenure, key, || Arc::new(TenureTicket::new(signer.clone(), claims())));
                assert_eq!(ticket.claims().keys, [key[0].as_str()], "round {round}");
            }
        }
        assert_eq!(known.young.values().map(Vec::len).sum::<usize>(), 2, "each is made once");
    }
}
