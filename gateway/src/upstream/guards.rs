//! What this gateway knows of the guards: which store each of them has, and how far that had come.
//!
//! Every connection to a guard begins with its announcement, so a guard that was restarted is looked at again before
//! anything is sent to it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_policies::plan::Upstream;
use tracing::{error, warn};

use super::address::Address;
use crate::{guard::announce::Announcement, state::Memory};

/// Shared by all workers.
#[derive(Debug)]
pub struct Guards {
    state: Mutex<State>,
    /// Of the installation that our tokens are of.
    memory: Arc<Memory>,
}

#[derive(Debug, Default)]
struct State {
    /// By upstream, then by address of an endpoint.
    met: HashMap<Arc<str>, Vec<Place>>,
    /// The largest epoch that a store has let in, as far as we know.
    highest: HashMap<Arc<str>, u64>,
    /// Upstreams to which something stands between, against what the policy says.
    relayed: Vec<Arc<str>>,
}

/// Where somebody has asked for a guard.
#[derive(Debug)]
struct Place {
    address: Arc<Address>,
    /// `None` where no guard was found the last time.
    guard: Option<Met>,
}

impl State {
    fn note(&mut self, upstream: &Upstream, address: &Arc<Address>, guard: Option<Met>) {
        let places = self.met.entry(upstream.name.clone()).or_default();
        // What a name no longer leads to must not be held against what it leads to now.
        places.retain(|place| !place.address.is_gone() && !place.is_at(address));
        places.push(Place { address: address.clone(), guard });
    }
}

impl Place {
    fn is_at(&self, address: &Address) -> bool {
        (&self.address.name, self.address.socket) == (&address.name, address.socket)
    }
}

/// A guard, as it last announced itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Met {
    store: Arc<str>,
    instance: String,
}

/// Why nothing is sent to a guard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    #[error(
        "the guards of the upstream announce different stores: what one of them lets in the other does not know"
    )]
    Split,
    #[error("no guard answers at this endpoint: {0}")]
    NoGuard(String),
    #[error("the guard compares tokens of another installation, {theirs}; ours is {ours}")]
    OtherInstallation { theirs: String, ours: String },
    #[error(
        "the guard has come back with an older store: it knows epochs up to {announced}, and has let in {known}"
    )]
    RolledBack { announced: u64, known: u64 },
    #[error(
        "FG0504: `response_timeout` of {ours:?} is not above the {theirs:?} that the guard may take to settle and execute"
    )]
    Impatient { ours: Duration, theirs: Duration },
}

impl Guards {
    pub fn new(memory: Arc<Memory>) -> Self {
        Self { state: Mutex::default(), memory }
    }

    /// A guard has announced itself at the beginning of a connection. The name of its store, for [`Guards::let_in`].
    pub fn meet(
        &self,
        upstream: &Upstream,
        address: &Arc<Address>,
        announced: &Announcement,
    ) -> Result<Arc<str>, Distrust> {
        let met = Met { store: announced.store.as_str().into(), instance: announced.instance.clone() };
        let store = met.store.clone();
        let mut state = self.lock();
        state.note(upstream, address, Some(met));
        let known = state.highest.get(&store).copied().unwrap_or_default();
        drop(state);
        let trusted = self.judge(upstream, announced, known);
        if let Err(why) = &trusted {
            let (endpoint, address) = (&address.name, address.socket);
            error!(upstream = %upstream.name, %endpoint, %address, %why, "guard.distrusted");
        }
        trusted.map(|()| store)
    }

    fn judge(&self, upstream: &Upstream, announced: &Announcement, known: u64) -> Result<(), Distrust> {
        if let Some(served) = self.memory.installation()
            && served.uuid != announced.ensemble
        {
            let (theirs, ours) = (announced.ensemble.clone(), served.uuid.clone());
            return Err(Distrust::OtherInstallation { theirs, ours });
        }
        if announced.highest < known {
            return Err(Distrust::RolledBack { announced: announced.highest, known });
        }
        if upstream.response_timeout <= announced.longest() {
            let (ours, theirs) = (upstream.response_timeout, announced.longest());
            return Err(Distrust::Impatient { ours, theirs });
        }
        self.agree(upstream)
    }

    /// All guards of the upstream that were met have one store, and where two processes have it, it is one process.
    pub fn agree(&self, upstream: &Upstream) -> Result<(), Distrust> {
        let state = self.lock();
        let Some(met) = state.met.get(&upstream.name) else { return Ok(()) };
        let present = met.iter().filter(|place| !place.address.is_gone());
        let mut guards = present.filter_map(|place| place.guard.as_ref());
        let Some(first) = guards.next() else { return Ok(()) };
        if guards.all(|guard| guard == first) { Ok(()) } else { Err(Distrust::Split) }
    }

    /// What is known of endpoints that are not among these is forgotten: a guard that was taken out of the policy must
    /// not be held against those that are in it.
    pub fn keep(&self, upstreams: &[Upstream]) {
        let mut state = self.lock();
        for (name, met) in &mut state.met {
            let upstream = upstreams.iter().find(|upstream| upstream.name == *name);
            met.retain(|place| {
                upstream.is_some_and(|upstream| upstream.endpoints.contains(&place.address.name))
            });
        }
    }

    /// No guard answers there, or no longer.
    pub fn lost(&self, upstream: &Upstream, address: &Arc<Address>) {
        self.lock().note(upstream, address, None);
    }

    /// Where nobody has asked yet, among several addresses: nothing may be sent to one guard before it is known whether
    /// another one has a store of its own.
    pub fn is_unasked(&self, upstream: &Upstream, address: &Address) -> bool {
        let state = self.lock();
        let mut met = state.met.get(&upstream.name).into_iter().flatten();
        !met.any(|place| !place.address.is_gone() && place.is_at(address))
    }

    /// The guard with this store has let a token of this epoch in.
    pub fn let_in(&self, store: &Arc<str>, epoch: u64) {
        let mut state = self.lock();
        match state.highest.get_mut(store) {
            Some(highest) => *highest = epoch.max(*highest),
            None => drop(state.highest.insert(store.clone(), epoch)),
        }
    }

    /// A hop has shown itself that the policy says is not there: from now on a refusal does not mean that the guard has
    /// not seen the request before.
    pub fn relayed(&self, upstream: &Upstream) {
        let mut state = self.lock();
        if upstream.direct && !state.relayed.contains(&upstream.name) {
            warn!(upstream = %upstream.name, "guard.not_direct: something stands between here and the guard");
            state.relayed.push(upstream.name.clone());
        }
    }

    /// A request that the guard refuses has not been let in before by way of somebody's repeating it.
    pub fn is_direct(&self, upstream: &Upstream) -> bool {
        upstream.direct && !self.lock().relayed.contains(&upstream.name)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is one call on a map.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
