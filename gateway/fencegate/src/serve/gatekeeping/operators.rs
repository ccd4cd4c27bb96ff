//! What operators are shown of a gateway, and what they may command.

use std::{io, sync::Arc, time::Duration};

use fencegate_process::randomness::SystemRandomness;
use tokio::sync::mpsc;

use super::role::Gatekeeping;
use crate::{
    admin::{
        self, Csrf, LeaseSeen,
        command::{self, Command},
        trends::Trends,
    },
    in_force::InForce,
    leases::{
        Leases,
        lease_json::{LeaseDocument, Reader},
    },
    serve::{base::Base, reception::Reception},
};

/// Tells of the leases of a key.
fn leased(leases: Option<Arc<Leases>>) -> admin::Leased {
    Arc::new(move |key| {
        let Some(leases) = &leases else { return Vec::new() };
        let of_key = leases.living().into_iter().filter(|lease| lease.keys.contains(key));
        of_key.map(|lease| seen(LeaseDocument::of(&lease, leases, Reader::Others))).collect()
    })
}

fn seen(document: LeaseDocument) -> LeaseSeen {
    LeaseSeen {
        reference: document.reference,
        principal: document.principal,
        note: document.note,
        token: document.token,
        age: Duration::from_millis(document.age_ms),
        expires: Duration::from_millis(document.expires_in_ms),
        ahead: document.ahead,
        revocation: document.revocation,
    }
}

/// Opens the admin listener, and returns what operators command there.
///
/// # Errors
/// The machine has no thread for it.
pub(super) fn let_in(
    reception: Reception,
    name: Arc<str>,
    base: &Base,
    role: Gatekeeping,
    in_force: InForce,
) -> io::Result<mpsc::UnboundedReceiver<Command>> {
    let (commands, given) = command::channel();
    let trends = Trends::default();
    let seen = admin::GatewaySeen {
        name,
        keeper: role.keeper,
        metrics: base.metrics.clone(),
        in_force,
        hot: role.hot,
        stays: role.stays,
        leased: leased(role.leases.clone()),
        trends: trends.clone(),
        jwks: role.tickets.and_then(|tickets| tickets.jwks()),
        drain: base.drain.clone(),
        commands,
        leases: role.leases,
        csrf: Csrf::new(&SystemRandomness),
    };
    reception.open(admin::of_gateway(seen), trends.follow(base.metrics.clone()))?;
    Ok(given)
}
