//! The admin listener. Its address is bound at the start, and it opens when the process has something to show.

use std::{
    future::Future,
    io,
    net::{IpAddr, TcpListener},
    sync::Arc,
};

use axum::Router;
use fencegate_http::listen::certificates::Certificates;
use fencegate_lock::reach::PageAddress;
use fencegate_policies::{
    host::Served,
    plan::{self, Protocols},
};

use super::{
    addresses::{bind_admin, host_name},
    not_serving::NotServing,
};
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

    /// Where a browser finds it: by a name of `admin.hosts`, else by its address.
    ///
    /// # Errors
    /// The kernel does not say where it listens.
    pub(super) fn page(&self, admin: &plan::Admin) -> io::Result<PageAddress> {
        let address = self.listener.local_addr()?;
        let named = admin.hosts.iter().find_map(|host| match host {
            Served::Host(name) => Some(name.clone()),
            Served::Below(_) => None,
        });
        let ours = admin.address.ip();
        let only_on = (named.is_none() && ours.is_loopback()).then(host_name);
        let host = named.unwrap_or_else(|| match ours {
            ours if ours.is_unspecified() => host_name(),
            IpAddr::V4(ours) => ours.to_string(),
            IpAddr::V6(ours) => format!("[{ours}]"),
        });
        let scheme = if admin.tls.is_some() { "https" } else { "http" };
        Ok(PageAddress { url: format!("{scheme}://{host}:{}/", address.port()), only_on })
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
