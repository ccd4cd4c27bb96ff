//! Checks whether peers could reach this gateway, and whether this machine reaches them. If they cannot, requests are
//! not forwarded, and only their waiting times would show that.

use std::{
    collections::BTreeMap,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use fencegate_http::{
    listen::certificates::read_certificate_expiries,
    network::{ConnectTarget, Network, sockets::OsNetwork},
};
use fencegate_http_client::upstream::tls::UpstreamTlsConnector;
use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode},
    host::CanonicalHost,
    plan::{
        self, ClientCertificateFiles, ClientCertificateMode, GatewayPlan, ListenerTls, PeerListenerSettings,
        PeerTls, TlsVersion,
    },
};
use fencegate_process::{display::error_chain, host_name::host_name, pem};
use fencegate_zookeeper::session::member::MemberRecord;
use futures_util::future::join_all;
use rustls::{
    CertificateError,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{ServerName, UnixTime},
    server::WebPkiClientVerifier,
};
use tokio::{io::AsyncReadExt, time::timeout};

use super::{files, findings::FindingCollector};

/// The time limit for one gateway, from the lookup of its name to the end of the handshake.
const LONGEST: Duration = Duration::from_secs(8);

/// In TLS 1.3 a server refuses our certificate only after the handshake has ended on our side. So the check waits for
/// one more round trip.
const SECOND_THOUGHTS: Duration = Duration::from_millis(500);

/// The most gateways that are tried. More would hardly show anything new.
const MOST: usize = 64;

/// Checks the local part: the certificate, and the address for peers.
pub(super) async fn check_local_peer(findings: &FindingCollector, peer: &PeerListenerSettings) {
    if let Some(tls) = &peer.tls {
        check_peer_tls_files(findings, peer, tls);
    }
    let why = match timeout(LONGEST, OsNetwork.resolve(&peer.advertise)).await {
        Ok(Ok(addresses)) if !addresses.is_empty() => return,
        Ok(Ok(_)) => "its name has no address".to_owned(),
        Ok(Err(error)) => error_chain(&error),
        Err(_) => "no answer in time".to_owned(),
    };
    let message =
        format!("other gateways would be told `{}`, which is not found from here: {why}", peer.advertise);
    let remedy = "write `advertise` as the name server knows this machine, or with its address";
    findings.report_problem(&["peer", "advertise"], DiagnosticCode::NotReached, message, remedy);
}

fn check_peer_tls_files(findings: &FindingCollector, peer: &PeerListenerSettings, tls: &PeerTls) {
    let way = ["peer", "tls"];
    let shown = ListenerTls {
        certificates: vec![tls.pair.clone()],
        client_auth: ClientCertificateMode::Required(tls.ca_file.clone()),
        client_name: None,
        min_version: TlsVersion::Tls12,
    };
    let examined = match read_certificate_expiries(&shown) {
        Ok(examined) => examined,
        Err(bad) => {
            let remedy = "put a certificate with its chain, its own key and the certificate of who signed it there, in PEM; the process does not start without";
            return findings.report_problem(&way, DiagnosticCode::ListenerTls, error_chain(&bad), remedy);
        }
    };
    for (path, until) in &examined {
        let way = [&way[..], &["certificate_file"]].concat();
        files::check_certificate_expiry(findings, &way, &path.display().to_string(), *until);
    }
    if let Err(why) = verify_own_certificate(peer, tls) {
        let certificate = tls.pair.certificate.display();
        let message = format!("other gateways would not believe the certificate in {certificate}: {why}");
        let remedy = "give all gateways certificates that `ca_file` has signed, for servers and for clients, each for the host in its `advertise`";
        findings.report_problem(
            &[&way[..], &["certificate_file"]].concat(),
            DiagnosticCode::ListenerTls,
            message,
            remedy,
        );
    }
}

/// Verifies our certificate as a peer with the same `ca_file` would, as a client and as a server.
fn verify_own_certificate(peer: &PeerListenerSettings, tls: &PeerTls) -> Result<(), String> {
    let chain = pem::certificates(&tls.pair.certificate).map_err(|bad| error_chain(&bad))?;
    let roots = Arc::new(pem::roots(&tls.ca_file).map_err(|bad| error_chain(&bad))?);
    let (first, rest) = chain.split_first().ok_or("there is none")?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let host = CanonicalHost::parse(&peer.advertise).map_err(|bad| error_chain(&bad))?;
    let bare = host.ip().map_or_else(|| host.name().to_owned(), |ip| ip.to_string());
    let name = ServerName::try_from(bare).map_err(|bad| error_chain(&bad))?;
    let server = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
    let server = server.map_err(|bad| error_chain(&bad))?;
    let client = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
    let client = client.map_err(|bad| error_chain(&bad))?;
    let now = UnixTime::now();
    let judged = server
        .verify_server_cert(first, rest, &name, &[], now)
        .map(drop)
        .and_then(|()| client.verify_client_cert(first, rest, now).map(drop));
    match judged {
        // An expired certificate was reported already.
        Err(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => Ok(()),
        judged => judged.map_err(|bad| error_chain(&bad)),
    }
}

/// Connects to every peer that advertises an address. `members`: by the name of the gateway.
pub(super) async fn check_remote_peers(
    findings: &FindingCollector,
    gateway: &GatewayPlan,
    members: &BTreeMap<String, MemberRecord>,
) {
    let Some(peer) = &gateway.peer else { return };
    let secured = match &peer.tls {
        None => None,
        Some(tls) => match UpstreamTlsConnector::open(&client_tls_of_peer(tls)) {
            Ok(secured) => Some(secured),
            // The certificate was reported already.
            Err(_) => return,
        },
    };
    let ours = gateway.serving.name.clone().unwrap_or_else(host_name);
    let reached = members.iter().filter_map(|(name, member)| Some((name, &*member.peer.as_ref()?.address)));
    let reached: Vec<_> = reached.filter(|(name, _)| **name != ours).take(MOST).collect();
    let visits = reached.iter().map(|(name, address)| {
        let secured = secured.as_ref();
        async move { (*name, *address, check_peer(address, secured).await) }
    });
    for (name, address, visited) in join_all(visits).await {
        if address == peer.advertise {
            let message = format!("`{name}` tells the others the same address as this file: `{address}`");
            let remedy = "write for each gateway the name or address of its own machine";
            findings.report_problem(&["peer", "advertise"], DiagnosticCode::NotReached, message, remedy);
        }
        match visited {
            Ok(at) => findings.record("peers", format!("{name} answers at {address} ({at})")),
            Err(error) => {
                let message = format!("the gateway `{name}` cannot be reached at `{address}`: {error}");
                let remedy = "see its `peer.advertise`, whether a firewall lets the port through, and that all gateways have `tls` with one `ca_file`, or none";
                findings.report(
                    &["peer"],
                    Diagnostic::new(DiagnosticCode::PeerSilent, message).with_remedy(remedy),
                );
            }
        }
    }
}

/// The TLS settings of a client of peers. Peers require the same certificates that this gateway requires.
fn client_tls_of_peer(tls: &PeerTls) -> plan::ClientTls {
    plan::ClientTls {
        ca_file: Some(tls.ca_file.clone()),
        server_name: None,
        client: Some(ClientCertificateFiles {
            chain: tls.pair.certificate.clone(),
            key: tls.pair.key.clone(),
        }),
    }
}

async fn check_peer(
    advertised: &str,
    secured: Option<&UpstreamTlsConnector>,
) -> Result<ConnectTarget, String> {
    let until = Instant::now() + LONGEST;
    let left = || until.saturating_duration_since(Instant::now());
    let late = |_| "no answer in time".to_owned();
    let addresses = timeout(left(), OsNetwork.resolve(advertised)).await.map_err(late)?;
    let addresses = addresses.map_err(|error| error_chain(&error))?;
    let mut last = "its name has no address".to_owned();
    for address in addresses {
        match timeout(left(), handshake(advertised, &address, secured)).await.map_err(late)? {
            Ok(()) => return Ok(address),
            Err(error) => last = error_chain(&error),
        }
    }
    Err(last)
}

async fn handshake(
    advertised: &str,
    address: &ConnectTarget,
    secured: Option<&UpstreamTlsConnector>,
) -> io::Result<()> {
    let stream = OsNetwork.dial(address).await?;
    let Some(secured) = secured else { return Ok(()) };
    let (mut stream, _) = secured.connect(advertised, stream, &["http/1.1"]).await?;
    match timeout(SECOND_THOUGHTS, stream.read_u8()).await {
        Ok(Err(error)) => Err(error),
        // The gateway accepted the certificate and waits for a request.
        Err(_) | Ok(Ok(_)) => Ok(()),
    }
}
