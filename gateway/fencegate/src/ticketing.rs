//! The tickets of a gateway: one per tenure, signed when it is first asked for and again at half its life. And what
//! services show of them, and of those of other gateways, when they call back.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use fencegate_guard::ticket::{
    Bad, BadFile, Claims, Flaw, Origin, Signer, Ticket, Verified, Verifier, jwks, keys::Pair, now,
};
use fencegate_lock::{session::paths::Paths, state::Memory};
use fencegate_policies::{
    key::ResourceKey,
    plan::{self, Mode, Signing},
    token::Token,
};
use fencegate_process::randomness::{Guid, SystemRandomness};
use hyper::header::HeaderValue;

/// Signs for all workers.
pub struct Ticketing {
    signer: Arc<Signer>,
    jwks: Option<Arc<str>>,
    issuer: String,
    /// What its sessions are registered under.
    gateway: Arc<str>,
    /// Names this process, and no other one.
    process: String,
    /// With our own key, and with those of other gateways.
    verifiers: Vec<Verifier>,
    /// Of the installation, and of its era: a guard believes tokens of a later one that are far larger.
    memory: Arc<Memory>,
    tickets: Mutex<Generations>,
}

/// The tickets of the tenures that were used of late: when the young are many, the old are dropped. Several keys that were free
/// may have been taken in one transaction, and then their tenures have one number; so a ticket is known by its keys as well.
#[derive(Default)]
struct Generations {
    young: HashMap<Token, Vec<Arc<Ticket>>>,
    old: HashMap<Token, Vec<Arc<Ticket>>>,
}

const MOST_YOUNG: usize = 4096;

impl Ticketing {
    /// # Errors
    /// A key file is not one, or others can read it.
    pub fn new(
        key: &Signing,
        gateway: &plan::Gateway,
        name: &Arc<str>,
        memory: &Arc<Memory>,
    ) -> Result<Arc<Self>, BadFile> {
        let others = gateway.siblings.as_deref().map(Verifier::from_jwks_file).transpose()?;
        let (signer, jwks, own) = match key {
            Signing::Ed25519(path) => {
                let pair = Pair::read(path)?;
                let jwks = jwks::render(&[pair.public()]).ok().map(Arc::<str>::from);
                let own = Verifier::to_be_given();
                let given = jwks.as_ref().map(|keys| own.give(keys.as_bytes(), &path.display()));
                debug_assert!(matches!(given, Some(Ok(()))), "one key, in the form that is read");
                (Signer::with_key(&pair), jwks, own)
            }
            Signing::Secret(path) => {
                (Signer::from_secret_file(path)?, None, Verifier::from_secret_file(path)?)
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

    /// The public half, for guards that fetch it. `None` for a secret.
    pub fn jwks(&self) -> Option<Arc<str>> {
        self.jwks.clone()
    }

    /// The ticket of the tenure that `token` is of. `None` before any session has seen the installation, when there are
    /// no tenures either.
    pub fn ticket(
        &self,
        keys: &[ResourceKey],
        token: Token,
        mode: Mode,
        session: i64,
    ) -> Option<HeaderValue> {
        let tenure = Token::new(token.number(), token.sequence(), 0).ok()?;
        let served = self.memory.installation()?;
        let make = || {
            let claims = Claims::new(keys, tenure, mode, served.era, &served.uuid, &self.issuer);
            let member = Paths::member_name(&self.gateway, session);
            let claims = claims.held_at(Origin { process: self.process.clone(), member });
            Arc::new(Ticket::new(self.signer.clone(), claims))
        };
        let ticket = self.tickets.lock().unwrap_or_else(PoisonError::into_inner).get(tenure, keys, make);
        // Signing takes its time: not under the lock that all workers share.
        let mut value = HeaderValue::from_str(&ticket.text(now())).expect("base64url and dots");
        // Whoever reads it in a log could present it.
        value.set_sensitive(true);
        Some(value)
    }

    /// Verifies what somebody shows: signed by a gateway of this installation, and of now.
    ///
    /// # Errors
    /// [`Bad`].
    pub fn verify(&self, ticket: &[u8]) -> Result<Arc<Verified>, Bad> {
        let unknown = Bad::Invalid(Flaw::UnknownKey);
        let Some(served) = self.memory.installation() else { return Err(unknown) };
        let mut bad = unknown;
        for verifier in &self.verifiers {
            match verifier.verify(ticket, &served.uuid, now()) {
                Err(other) if other == unknown => bad = other,
                done => return done,
            }
        }
        Err(bad)
    }

    /// The tenure is, or was, one of this process.
    pub fn is_of_this_process(&self, origin: &Origin) -> bool {
        origin.process == self.process
    }
}

impl Generations {
    /// `keys`: sorted.
    fn get(
        &mut self,
        tenure: Token,
        keys: &[ResourceKey],
        make: impl FnOnce() -> Arc<Ticket>,
    ) -> Arc<Ticket> {
        let is_of = |ticket: &&Arc<Ticket>| {
            let known = ticket.claims().keys.iter().map(String::as_str);
            known.eq(keys.iter().map(ResourceKey::as_str))
        };
        if let Some(ticket) = self.young.get(&tenure).and_then(|tickets| tickets.iter().find(is_of)) {
            return ticket.clone();
        }
        let mut tickets = self.old.remove(&tenure).unwrap_or_default();
        if self.young.len() >= MOST_YOUNG {
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

    /// Their nodes were made by one transaction, each the first below its parent.
    #[test]
    fn tenures_of_two_keys_with_one_number_have_a_ticket_each() {
        let signer = Arc::new(Signer::with_key(&Pair::generate(&SystemRandomness)));
        let tenure = Token::new(7, 0, 0).expect("a token");
        let mut known = Generations::default();
        let keys = ["a", "b"].map(|key| [ResourceKey::parse(key).expect("a key")]);
        for round in 0..2 {
            for key in &keys {
                let claims = || Claims::new(key, tenure, Mode::Exclusive, 1, "uuid", "gw-1");
                let ticket = known.get(tenure, key, || Arc::new(Ticket::new(signer.clone(), claims())));
                assert_eq!(ticket.claims().keys, [key[0].as_str()], "round {round}");
            }
        }
        assert_eq!(known.young.values().map(Vec::len).sum::<usize>(), 2, "each is made once");
    }
}
