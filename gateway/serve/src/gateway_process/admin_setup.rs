//! Opens the admin listener of a gateway.

use std::{io, sync::Arc};

use fencegate_admin as admin;
use fencegate_admin::{
    CsrfToken,
    command::{self, AdminCommand},
    history::LatencyHistory,
};
use fencegate_process::randomness::SystemRandomness;
use fencegate_proxy::steps::fence::GatewayContext;
use futures_util::future::join;
use tokio::sync::mpsc;

use crate::admin_listener::BoundAdminListener;

/// Opens the admin listener, and returns the channel of its commands.
///
/// # Errors
/// The machine has no thread for it.
pub(super) fn start_admin(
    reception: BoundAdminListener,
    name: Arc<str>,
    gateway: &GatewayContext,
) -> io::Result<mpsc::UnboundedReceiver<AdminCommand>> {
    let (commands, given) = command::channel();
    let GatewayContext { process, locks, config, tickets, leases, hot_keys, requests, .. } = gateway;
    let trends = LatencyHistory::default();
    let seen = admin::GatewayAdminState {
        name,
        process: process.clone(),
        keeper: locks.clone(),
        config: config.clone(),
        hot: hot_keys.clone(),
        requests: requests.clone(),
        history: trends.clone(),
        jwks: tickets.as_ref().and_then(|tickets| tickets.jwks()),
        commands,
        leases: leases.clone(),
        csrf: CsrfToken::new(&SystemRandomness),
    };
    let followed = trends.sample_forever(process.metrics.clone());
    let watched = process.threads.clone().watch();
    reception.open(admin::gateway_routes(seen), async { _ = join(followed, watched).await })?;
    Ok(given)
}
