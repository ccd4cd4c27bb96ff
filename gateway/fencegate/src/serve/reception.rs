//! Where operators come in: the admin listener. Its address is taken at the start, and it opens when there is something
//! to show.

use std::{future::Future, io, net::TcpListener, sync::Arc};

use axum::Router;
use fencegate_http::listen::certificates::Certificates;
use fencegate_policies::plan::{self, Protocols};

use super::{addresses::bind_admin, not_serving::NotServing};
use crate::{
    admin::{self, authorize::Door},
    metrics::Metrics,
};

/// The admin listener before it opens.
pub(super) struct Reception {
    listener: TcpListener,
    /// Decides who gets in.
    door: Door,
    certificates: Option<Arc<Certificates>>,
}

impl Reception {
    /// # Errors
    /// A file for TLS or that of the token cannot be used, or the address belongs to another process.
    pub(super) fn of(admin: &plan::Admin, beside: bool, metrics: &Metrics) -> Result<Self, NotServing> {
        let shown = |tls| Certificates::shown(tls, Protocols::Http1, metrics.clients());
        let certificates = admin.tls.clone().map(shown).transpose().map_err(NotServing::AdminTls)?;
        let door = Door::of(admin)?;
        Ok(Self { listener: bind_admin(admin.address, beside)?, door, certificates })
    }

    /// Serves `routes` on a thread of its own, and runs `meanwhile` beside them there.
    ///
    /// # Errors
    /// The machine has no thread for it.
    pub(super) fn open(
        self,
        routes: Router,
        meanwhile: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        admin::listen::start(self.listener, routes, (self.door, self.certificates), meanwhile)
    }
}
