//! What operators are shown of a gateway, and what they may ask of it.

use std::{io, sync::Arc};

use fencegate_process::randomness::SystemRandomness;
use tokio::sync::mpsc;

use super::{base::Base, claims::Reception, staff::Gatekeeping};
use crate::{
    admin::{self, Csrf, effective::InForce, trends::Trends},
    serve::reload::{self, Asked},
};

/// Opens the admin listener, and returns what is asked of the process there.
///
/// # Errors
/// The machine has no thread for it.
pub(super) fn let_in(
    reception: Reception,
    name: Arc<str>,
    base: &Base,
    role: Gatekeeping,
    in_force: InForce,
) -> io::Result<mpsc::UnboundedReceiver<Asked>> {
    let (asking, asked) = reload::asking();
    let trends = Trends::default();
    let seen = admin::Seen {
        name,
        keeper: role.keeper,
        metrics: base.metrics.clone(),
        in_force,
        hot: role.hot,
        trends: trends.clone(),
        jwks: role.tickets.and_then(|tickets| tickets.jwks()),
        drain: base.drain.clone(),
        asking,
        csrf: Csrf::new(&SystemRandomness),
    };
    let Reception { door, listener } = reception;
    admin::listen::start(listener, admin::routes(seen), door, trends.follow(base.metrics.clone()))?;
    Ok(asked)
}
