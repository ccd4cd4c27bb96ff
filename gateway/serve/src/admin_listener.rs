//! The admin listener. Its address is bound at the start, and it opens when the process can answer requests.

use std::{
    future::Future,
    io,
    net::{IpAddr, TcpListener},
    sync::Arc,
};

use axum::Router;
use fencegate_admin as admin;
use fencegate_admin::auth::AdminAuth;
use fencegate_http::listen::certificates::ListenerCertificates;
use fencegate_metrics::AllMetricFamilies;
use fencegate_policies::{
    host::{CanonicalHost, HostPattern},
    plan::{self, ListenerProtocols},
};
use fencegate_process::host_name::host_name;
use fencegate_zookeeper::peer_endpoint::AdminPageAddress;

use super::{addresses::bind_admin, error::ProcessError};

/// The admin listener before it opens.
pub(super) struct BoundAdminListener {
    listener: TcpListener,
    /// Authenticates the requests of operators.
    auth: AdminAuth,
    certificates: Option<Arc<ListenerCertificates>>,
    /// The URL for a browser; `None` if no known name would pass the host check.
    pub(super) page: Option<AdminPageAddress>,
}

impl BoundAdminListener {
    /// Binds the address, and reads the files of the listener.
    ///
    /// # Errors
    /// Returns an error if a file for TLS or for the token cannot be used, or if the address belongs to another
    /// process.
    pub(super) fn bind(
        admin: &plan::AdminListenerSettings,
        beside: bool,
        metrics: &AllMetricFamilies,
    ) -> Result<Self, ProcessError> {
        let load = |tls| ListenerCertificates::load(tls, ListenerProtocols::Http1, metrics.clients());
        let certificates = admin.tls.clone().map(load).transpose().map_err(ProcessError::AdminTls)?;
        let auth = AdminAuth::new(admin)?;
        let listener = bind_admin(admin.address, beside)?;
        let page = page(admin, listener.local_addr()?.port(), host_name());
        Ok(Self { listener, auth, certificates, page })
    }

    /// Serves `routes` on a thread of its own, and runs `meanwhile` on the same thread.
    ///
    /// # Errors
    /// Returns an error if the machine cannot start a thread.
    pub(super) fn open(
        self,
        routes: Router,
        meanwhile: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        admin::listen::start_admin_thread(self.listener, routes, self.auth, self.certificates, meanwhile)
    }
}

/// The URL of the admin page. Its host is a name of `admin.hosts`, otherwise the address, otherwise the name of the
/// machine. For a listener on the loopback it is the address: a name would lead to a proxy in front of the listener,
/// which has a port of its own.
fn page(admin: &plan::AdminListenerSettings, port: u16, machine: String) -> Option<AdminPageAddress> {
    let ours = admin.address.ip();
    let named = admin.hosts.iter().filter(|_| !ours.is_loopback()).find_map(|host| match host {
        HostPattern::Host(name) => Some(name.clone()),
        HostPattern::Below(_) => None,
    });
    let host = named.unwrap_or_else(|| match ours {
        ours if ours.is_unspecified() => machine.clone(),
        IpAddr::V4(ours) => ours.to_string(),
        IpAddr::V6(ours) => format!("[{ours}]"),
    });
    // Do not advertise a host that admin authentication rejects.
    let host = CanonicalHost::parse(&host).ok().filter(|host| admin.accepts_host(host))?;
    let scheme = if admin.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}:{port}/", host.name());
    Some(AdminPageAddress { url, only_on: ours.is_loopback().then_some(machine) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The URL of the admin page that peers receive has a host that the admin listener accepts.
    #[test]
    fn advertised_page_passes_host_check() {
        let advertised = |address: &str, hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| HostPattern::parse(host).expect("a host")).collect();
            let address = address.parse().expect("an address");
            let admin = plan::AdminListenerSettings { address, hosts, bearer: None, tls: None };
            page(&admin, 9901, "gw-1".into()).map(|page| (page.url, page.only_on))
        };
        let at = |url: &str| Some((url.to_owned(), None));
        let here = |url: &str| Some((url.to_owned(), Some("gw-1".to_owned())));
        for (address, hosts, page) in [
            ("127.0.0.1:0", &[][..], here("http://127.0.0.1:9901/")),
            ("[::1]:0", &[], here("http://[::1]:9901/")),
            ("127.0.0.1:0", &["admin.internal"], here("http://127.0.0.1:9901/")),
            ("10.1.2.3:0", &[], at("http://10.1.2.3:9901/")),
            ("10.1.2.3:0", &["admin.internal"], at("http://admin.internal:9901/")),
            ("[2001:db8::1]:0", &[], at("http://[2001:db8::1]:9901/")),
            ("0.0.0.0:0", &[], None),
            ("0.0.0.0:0", &["*.internal"], None),
            ("0.0.0.0:0", &["*.internal", "admin.internal"], at("http://admin.internal:9901/")),
            ("[::]:0", &["gw-1"], at("http://gw-1:9901/")),
        ] {
            assert_eq!(advertised(address, hosts), page, "{address} {hosts:?}");
        }
        let below = plan::AdminListenerSettings {
            address: ([0, 0, 0, 0], 0).into(),
            hosts: vec![HostPattern::parse("*.internal").expect("a host")],
            bearer: None,
            tls: None,
        };
        let named = page(&below, 9901, "gw-1.internal".into()).expect("a host that is accepted");
        assert_eq!(named.url, "http://gw-1.internal:9901/");
    }
}
