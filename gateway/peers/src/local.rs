//! This process as other gateways see it: its address, and the certificates of both sides.

use std::{
    net::SocketAddr,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use fencegate_policies::plan::{
    self, BindAddress, ClientCertificateFiles, ClientCertificateMode, ListenerLimits, ListenerProtocols,
    ListenerSettings, ListenerTls, PeerTls, ProxyProtocolMode, TlsVersion,
};
use fencegate_process::{client_tls::TlsClientConfigError, randomness::Randomness};
use tracing::{info, warn};

use fencegate_http::listen::{
    certificates::{ListenerCertificates, ListenerTlsError},
    metrics::ClientConnectionMetrics,
};
use fencegate_http_client::upstream::tls::{TlsReloadResult, UpstreamTlsConnector};
use fencegate_zookeeper::{peer_endpoint::PeerEndpoint, peer_secret::PeerSecret};

/// The address and credentials of this process for other gateways. All workers share it, and it never
/// changes.
#[derive(Clone)]
pub struct LocalPeerIdentity {
    /// The gateway's name.
    pub name: Arc<str>,
    /// The address on which the process listens.
    pub address: SocketAddr,
    /// The address that is advertised, and the peer secret.
    pub reach: PeerEndpoint,
    /// The certificates for accepted connections. `None` for plain text.
    pub certificates: Option<Arc<ListenerCertificates>>,
    /// The TLS settings for connections that this process opens. `None` for plain text.
    pub secured: Option<Arc<UpstreamTlsConnector>>,
}

/// The reason for which TLS between gateways is not possible.
#[derive(Debug, thiserror::Error)]
pub enum PeerTlsError {
    #[error(transparent)]
    ServerCertificate(#[from] ListenerTlsError),
    #[error(transparent)]
    ClientTls(#[from] TlsClientConfigError),
    #[error("cannot start the thread that watches the TLS files of peers")]
    Thread(#[from] std::io::Error),
}

impl LocalPeerIdentity {
    /// `bound` is the address of the listener.
    ///
    /// # Errors
    /// Returns an error if the files for TLS cannot be used.
    pub fn new(
        peer: &plan::PeerListenerSettings,
        name: Arc<str>,
        bound: SocketAddr,
        metrics: &ClientConnectionMetrics,
        randomness: &dyn Randomness,
    ) -> Result<Self, PeerTlsError> {
        let shown = |tls: &PeerTls| {
            ListenerCertificates::load(peer_server_tls(tls), ListenerProtocols::Http1, metrics)
        };
        let certificates = peer.tls.as_ref().map(shown).transpose()?;
        let secured = peer.tls.as_ref().map(|tls| load_and_follow(&peer_client_tls(tls))).transpose()?;
        let reach =
            PeerEndpoint { address: advertised_address(peer, bound), pass: PeerSecret::new(randomness) };
        Ok(Self { name, address: bound, reach, certificates, secured })
    }

    /// The settings of the listener for gateways. It has the limits of the public listener.
    pub fn peer_listener_settings(&self, public: &ListenerSettings) -> ListenerSettings {
        ListenerSettings {
            name: NAME.into(),
            address: BindAddress::Tcp(self.address),
            protocols: ListenerProtocols::Http1,
            tls: None,
            proxy_protocol: ProxyProtocolMode::Off,
            // Another gateway forwards requests of many clients, so the limit of a single client does not
            // apply to it.
            limits: ListenerLimits { connections_per_client: None, ..public.limits.clone() },
            ..public.clone()
        }
    }
}

/// The name of the listener.
pub const NAME: &str = "peer";

/// The address that is advertised. If the listener has port 0, it contains the port that the system has
/// chosen.
fn advertised_address(peer: &plan::PeerListenerSettings, bound: SocketAddr) -> String {
    match peer.advertise.rsplit_once(':') {
        Some((host, _)) if peer.address.port() == 0 => format!("{host}:{}", bound.port()),
        _ => peer.advertise.clone(),
    }
}

fn peer_server_tls(tls: &PeerTls) -> ListenerTls {
    ListenerTls {
        certificates: vec![tls.pair.clone()],
        client_auth: ClientCertificateMode::Required(tls.ca_file.clone()),
        client_name: None,
        min_version: TlsVersion::Tls12,
    }
}

fn peer_client_tls(tls: &PeerTls) -> plan::ClientTls {
    let client = ClientCertificateFiles { chain: tls.pair.certificate.clone(), key: tls.pair.key.clone() };
    plan::ClientTls { ca_file: Some(tls.ca_file.clone()), server_name: None, client: Some(client) }
}

/// Opens the certificate files, and follows their changes as long as the result is used.
fn load_and_follow(tls: &plan::ClientTls) -> Result<Arc<UpstreamTlsConnector>, PeerTlsError> {
    let secured = Arc::new(UpstreamTlsConnector::open(tls)?);
    let watched = Arc::downgrade(&secured);
    thread::Builder::new().name("peer-files".into()).spawn(move || run_reload_loop(&watched))?;
    Ok(secured)
}

fn run_reload_loop(secured: &Weak<UpstreamTlsConnector>) {
    while let Some(secured) = secured.upgrade() {
        match secured.reload_if_changed() {
            TlsReloadResult::Unchanged => {}
            TlsReloadResult::TakenOver => info!("peer.tls_files_taken_over"),
            TlsReloadResult::Bad(bad) => {
                let bad: &dyn std::error::Error = &bad;
                warn!(code = "FG0510", bad, "peer.tls_files_bad: the old ones stay in use");
            }
        }
        drop(secured);
        thread::sleep(POLL_INTERVAL);
    }
}

/// The interval in which the files are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    /// If the policy leaves the port to the system, the port that was bound is advertised.
    #[test]
    fn bound_port_replaces_port_zero() {
        let bound = "127.0.0.1:4711".parse().expect("an address");
        for (address, expected) in [("127.0.0.1:0", "gw-1:4711"), ("127.0.0.1:9910", "gw-1:99")] {
            let address = address.parse().expect("an address");
            let peer = plan::PeerListenerSettings { address, advertise: "gw-1:99".into(), tls: None };
            assert_eq!(advertised_address(&peer, bound), expected);
        }
    }
}
