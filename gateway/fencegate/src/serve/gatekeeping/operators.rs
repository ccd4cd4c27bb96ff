//! Opens the admin listener of a gateway.

use std::{io, sync::Arc};

use fencegate_process::randomness::SystemRandomness;
use futures_util::future::join;
use tokio::sync::mpsc;

use super::role::Gatekeeping;
use crate::{
    admin::{
        self, Csrf,
        command::{self, Command},
        trends::Trends,
    },
    in_force::InForce,
    serve::{base::Base, reception::Reception},
};

/// Opens the admin listener, and returns the channel of its commands.
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
        threads: base.threads.clone(),
        in_force,
        hot: role.hot,
        stays: role.stays,
        trends: trends.clone(),
        jwks: role.tickets.and_then(|tickets| tickets.jwks()),
        drain: base.drain.clone(),
        commands,
        leases: role.leases,
        csrf: Csrf::new(&SystemRandomness),
    };
    let (followed, watched) = (trends.follow(base.metrics.clone()), base.threads.clone().watched());
    reception.open(admin::of_gateway(seen), async { _ = join(followed, watched).await })?;
    Ok(given)
}
