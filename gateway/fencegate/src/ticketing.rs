//! The tickets of a gateway: one per tenure, signed when it is first asked for and again at half its life.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use fencegate_guard::ticket::{BadFile, Claims, Signer, Ticket, jwks, keys::Pair, now};
use fencegate_lock::state::Memory;
use fencegate_policies::{
    key::ResourceKey,
    plan::{self, Mode, Signing},
    token::Token,
};
use hyper::header::HeaderValue;

/// Signs for all workers.
pub struct Ticketing {
    signer: Arc<Signer>,
    jwks: Option<Arc<str>>,
    issuer: String,
    /// Of the installation, and of its era: a guard believes tokens of a later one that are far larger.
    memory: Arc<Memory>,
    tickets: Mutex<Generations>,
}

/// The tickets of the tenures that were used of late: when the young are many, the old are dropped.
#[derive(Default)]
struct Generations {
    young: HashMap<Token, Arc<Ticket>>,
    old: HashMap<Token, Arc<Ticket>>,
}

const MOST_YOUNG: usize = 4096;

impl Ticketing {
    /// # Errors
    /// The key file is not one, or others can read it.
    pub fn new(key: &Signing, gateway: &plan::Gateway, memory: &Arc<Memory>) -> Result<Arc<Self>, BadFile> {
        let (signer, jwks) = match key {
            Signing::Ed25519(path) => {
                let pair = Pair::read(path)?;
                let jwks = jwks::render(&[pair.public()]).ok().map(Arc::from);
                (Signer::with_key(&pair), jwks)
            }
            Signing::Secret(path) => (Signer::from_secret_file(path)?, None),
        };
        Ok(Arc::new(Self {
            signer: Arc::new(signer),
            jwks,
            issuer: gateway.serving.name.clone().unwrap_or_else(|| "fencegate".into()),
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
    pub fn ticket(&self, keys: &[ResourceKey], token: Token, mode: Mode) -> Option<HeaderValue> {
        let tenure = Token::new(token.number(), token.sequence(), 0).ok()?;
        let served = self.memory.installation()?;
        let make = || {
            let claims = Claims::new(keys, tenure, mode, served.era, &served.uuid, &self.issuer);
            Arc::new(Ticket::new(self.signer.clone(), claims))
        };
        let ticket = self.tickets.lock().unwrap_or_else(PoisonError::into_inner).get(tenure, make);
        // Signing takes its time: not under the lock that all workers share.
        let mut value = HeaderValue::from_str(&ticket.text(now())).expect("base64url and dots");
        // Whoever reads it in a log could present it.
        value.set_sensitive(true);
        Some(value)
    }
}

impl Generations {
    fn get(&mut self, tenure: Token, make: impl FnOnce() -> Arc<Ticket>) -> Arc<Ticket> {
        if let Some(ticket) = self.young.get(&tenure) {
            return ticket.clone();
        }
        let ticket = self.old.remove(&tenure).unwrap_or_else(make);
        if self.young.len() >= MOST_YOUNG {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(tenure, ticket.clone());
        ticket
    }
}
