//! Finds out why the TLS handshake with a ZooKeeper server fails: the client library only reports that it could not
//! connect.

use std::{io, sync::Arc, time::Duration};

use fencegate_process::{display::error_chain, pem::not_after};
use futures_util::future::join_all;
use rustls::{CertificateError, ClientConfig, Error};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::credentials::{ZkTlsCredentials, server_name};

/// The result of one handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsHandshakeOutcome {
    /// The handshake succeeded. The number is the end of validity of the server's certificate, in seconds since 1970.
    Accepted(Option<u64>),
    /// The server answered, and the handshake failed. The text is the reason.
    Refused(String),
    /// The server did not answer. The text is the reason.
    Unreachable(String),
}

/// The time limit for one server, from the lookup of its name to the end of the handshake.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The time to wait for a late refusal: in TLS 1.3 a server refuses the client certificate only after the handshake
/// has ended on the client's side.
const ALERT_TIMEOUT: Duration = Duration::from_millis(500);

/// Tries a handshake with each server, and sends nothing after it.
pub(super) async fn probe_tls_servers<'s>(
    servers: &'s [String],
    shown: &ZkTlsCredentials,
) -> Vec<(&'s str, TlsHandshakeOutcome)> {
    let config = shown.client_config();
    join_all(servers.iter().map(|server| {
        let config = config.clone();
        async move {
            let met = timeout(PROBE_TIMEOUT, probe_tls_handshake(server, config, shown)).await;
            (
                server.as_str(),
                met.unwrap_or_else(|_| TlsHandshakeOutcome::Unreachable("no answer in time".into())),
            )
        }
    }))
    .await
}

/// The result of a plain connection to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerProbeOutcome {
    Accepted,
    /// The connection failed. The text is the error of the system.
    Failed(String),
    Silent,
}

pub(super) async fn probe_servers(servers: &[String]) -> Vec<(&str, ServerProbeOutcome)> {
    join_all(servers.iter().map(|server| async move {
        let met = match timeout(PROBE_TIMEOUT, TcpStream::connect(server)).await {
            Ok(Ok(_)) => ServerProbeOutcome::Accepted,
            Ok(Err(error)) => ServerProbeOutcome::Failed(error_chain(&error)),
            Err(_late) => ServerProbeOutcome::Silent,
        };
        (server.as_str(), met)
    }))
    .await
}

/// Describes for each server the result of its probe.
pub(super) fn describe_servers(met: &[(&str, ServerProbeOutcome)]) -> String {
    let each = met.iter().map(|(server, met)| match met {
        ServerProbeOutcome::Accepted => format!("{server} accepts connections, and gave no session in time"),
        ServerProbeOutcome::Failed(why) => format!("{server}: {why}"),
        ServerProbeOutcome::Silent => format!("{server}: no answer within {PROBE_TIMEOUT:?}"),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// The reasons of all servers that refused the handshake; empty if none did.
pub(super) fn describe_refusals(met: &[(&str, TlsHandshakeOutcome)]) -> String {
    let refused = met.iter().filter_map(|(server, met)| match met {
        TlsHandshakeOutcome::Refused(why) => Some(format!("{server}: {why}")),
        TlsHandshakeOutcome::Accepted(_) | TlsHandshakeOutcome::Unreachable(_) => None,
    });
    refused.collect::<Vec<_>>().join("; ")
}

async fn probe_tls_handshake(
    server: &str,
    config: Arc<ClientConfig>,
    shown: &ZkTlsCredentials,
) -> TlsHandshakeOutcome {
    let Some(name) = server_name(server) else {
        return TlsHandshakeOutcome::Unreachable("it has no host".into());
    };
    let stream = match TcpStream::connect(server).await {
        Ok(stream) => stream,
        Err(error) => return TlsHandshakeOutcome::Unreachable(error_chain(&error)),
    };
    let refused = |error: &io::Error| TlsHandshakeOutcome::Refused(describe_error(error, shown));
    let mut stream = match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => stream,
        Err(error) => return refused(&error),
    };
    let until = stream.get_ref().1.peer_certificates().and_then(|chain| not_after(chain.first()?));
    match timeout(ALERT_TIMEOUT, stream.read_u8()).await {
        Ok(Err(error)) => refused(&error),
        // The server waits for the first request, so the handshake was accepted.
        Err(_) | Ok(Ok(_)) => TlsHandshakeOutcome::Accepted(until),
    }
}

/// The answer of a server to one of ZooKeeper's four-letter words; `None` if the server does not answer in time.
pub(super) async fn four_letter_word(
    server: &str,
    word: &str,
    shown: Option<&ZkTlsCredentials>,
) -> Option<String> {
    let probe = async {
        let stream = TcpStream::connect(server).await?;
        let Some(shown) = shown else { return exchange_four_letter_word(stream, word).await };
        let name = server_name(server).ok_or(io::ErrorKind::InvalidInput)?;
        exchange_four_letter_word(
            TlsConnector::from(shown.client_config()).connect(name, stream).await?,
            word,
        )
        .await
    };
    timeout(PROBE_TIMEOUT, probe).await.ok()?.ok()
}

/// Sends the word and reads once, not to the end: servers hang up after their answer, some of them without a TLS
/// `close_notify`, and that would be an error.
async fn exchange_four_letter_word(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    word: &str,
) -> io::Result<String> {
    stream.write_all(word.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = [0; 256];
    let read = stream.read(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer[..read]).into_owned())
}

/// Describes the reason in words that are the same at each attempt, so that the log shows a lasting reason only once.
fn describe_error(error: &io::Error, shown: &ZkTlsCredentials) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(bad)) => describe_certificate_error(bad),
        Some(Error::AlertReceived(alert)) => {
            let guess = match shown.expired_certificate() {
                Some(path) => format!("our certificate in {} has expired", path.display()),
                None if shown.has_no_client_certificate() => {
                    "it may ask for a certificate, and `client_certificate_file` is not set".into()
                }
                None => "it does not believe who signed our certificate, or what it is for".into(),
            };
            format!("it refuses us ({alert:?}): {guess}")
        }
        Some(other) => other.to_string(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it hung up during the handshake: this may be a port without TLS".into()
        }
        None => error_chain(error),
    }
}

fn describe_certificate_error(bad: &CertificateError) -> String {
    match bad {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet, by the clock of this machine".into()
        }
        // The verification of a certificate ends with `BadSignature` if its issuer has the name of an authority in
        // `ca_file`, but another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "nobody in `ca_file` has signed its certificate".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another host than the one in `servers`".into()
        }
        CertificateError::Revoked => "its certificate was revoked".into(),
        other => format!("its certificate is not believed: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that cannot be reached is reported with its address and the error of the system.
    #[tokio::test]
    async fn unreachable_server_is_told_with_address_and_error() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let listening = held.local_addr().expect("bound").to_string();
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let refusing = free.local_addr().expect("bound").to_string();
        drop(free);
        let servers = [refusing.clone(), listening.clone()];
        let met = probe_servers(&servers).await;
        assert_eq!(
            describe_servers(&met),
            format!(
                "{refusing}: Connection refused (os error 111); {listening} accepts connections, and gave no session in time"
            )
        );
        let unknown = ["no-such-host.invalid:2181".to_owned()];
        assert_ne!(probe_servers(&unknown).await[0].1, ServerProbeOutcome::Accepted);
    }

    /// Only servers that refuse the handshake are reported, not unreachable or accepting ones.
    #[test]
    fn only_refusing_servers_are_reported() {
        let met = [
            ("a:1", TlsHandshakeOutcome::Unreachable("refused".into())),
            ("b:1", TlsHandshakeOutcome::Refused("its certificate has expired".into())),
            ("c:1", TlsHandshakeOutcome::Accepted(None)),
        ];
        assert_eq!(describe_refusals(&met), "b:1: its certificate has expired");
        assert_eq!(describe_refusals(&met[..1]), "");
    }
}
