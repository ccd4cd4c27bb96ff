//! Opens the admin listener of a gateway.

use std::{io, sync::Arc};

use fencegate_admin as admin;
use fencegate_admin::{
    CsrfToken,
    command::{self, AdminCommand},
    history::LatencyHistory,
};
use fencegate_config::current_config::CurrentConfig;
use fencegate_process::randomness::SystemRandomness;
use futures_util::future::join;
use tokio::sync::mpsc;

use super::role::GatewayRole;
use crate::{admin_listener::BoundAdminListener, context::ProcessContext};

/// Opens the admin listener, and returns the channel of its commands.
///
/// # Errors
/// The machine has no thread for it.
pub(super) fn start_admin(
    reception: BoundAdminListener,
    name: Arc<str>,
    base: &ProcessContext,
    role: GatewayRole,
    in_force: CurrentConfig,
) -> io::Result<mpsc::UnboundedReceiver<AdminCommand>> {
    let (commands, given) = command::channel();
    let trends = LatencyHistory::default();
    let seen = admin::GatewayAdminState {
        name,
        keeper: role.keeper,
        metrics: base.metrics.clone(),
        threads: base.threads.clone(),
        config: in_force,
        hot: role.hot,
        requests: role.stays,
        history: trends.clone(),
        jwks: role.tickets.and_then(|tickets| tickets.jwks()),
        drain: base.drain.clone(),
        commands,
        leases: role.leases,
        csrf: CsrfToken::new(&SystemRandomness),
    };
    let followed = trends.sample_forever(base.metrics.clone());
    let watched = base.threads.clone().watch();
    reception.open(admin::gateway_routes(seen), async { _ = join(followed, watched).await })?;
    Ok(given)
}
