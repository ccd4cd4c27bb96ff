//! Tells the other gateways which locks a plan takes and grants, and not before all is over that took others.

use std::sync::{Arc, Mutex, PoisonError};

use fencegate_lock::session::{nameplate::Nameplate, publication::Publication};
use fencegate_policies::{
    plan::{self, Gateway, Plan},
    published::Published,
};
use tokio::task::JoinHandle;

use crate::{edition::Term, leases::Leases};

/// Publishes each new plan for the other gateways.
pub struct Publisher {
    nameplate: Nameplate,
    told: Arc<Mutex<Told>>,
    /// Publishes the last plan when all is over that took other locks.
    waiting: Option<JoinHandle<()>>,
}

/// The leases of the process, and what the plan in force grants.
pub(super) type Granted = (Arc<Leases>, Option<plan::Leases>);

struct Told {
    /// The plan that other gateways see.
    now: Published,
    /// Of the plan in force.
    latest: Published,
}

impl Publisher {
    /// Of a process that has published this plan.
    pub fn of(nameplate: Nameplate, gateway: &Gateway) -> Self {
        let now = Published::of(&gateway.serving, gateway.leases.as_ref());
        let told = Told { latest: now.clone(), now };
        Self { nameplate, told: Arc::new(Mutex::new(told)), waiting: None }
    }

    /// `plan` is in force. `left`: terms in which requests began under locks that it does not know any more. Until they are
    /// over, and leases that nobody is granted any more, others have to give way to those locks; what takes the same locks as before
    /// is told at once.
    pub fn turn_to(&mut self, plan: &Plan, granted: Option<Granted>, left: Vec<Arc<Term>>) {
        let terms = granted.as_ref().and_then(|(_, terms)| terms.as_ref());
        let next = Published::of(plan, terms);
        tell(&self.told, &self.nameplate, |told| {
            told.latest = next.clone();
            told.now.until(&next)
        });
        let (before, nameplate, told) = (self.waiting.take(), self.nameplate.clone(), self.told.clone());
        self.waiting = Some(tokio::spawn(async move {
            if let Some(before) = before {
                // It only fails when the process ends.
                before.await.ok();
            }
            for term in left {
                term.over().await;
            }
            if let Some((leases, terms)) = granted {
                leases.left_by(terms.as_ref()).await;
            }
            // Another plan may have come since, and its own terms are not over yet.
            tell(&told, &nameplate, |told| next.until(&told.latest));
        }));
    }
}

fn tell(told: &Mutex<Told>, nameplate: &Nameplate, next: impl FnOnce(&mut Told) -> Published) {
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    told.now = next(&mut told);
    nameplate.publishes_now(Publication::of(told.now.to_bytes()));
}
