//! Finds out why TLS with a server of ZooKeeper is not agreed on: the client library only says that it got nowhere.

use std::{io, sync::Arc, time::Duration};

use fencegate_process::{pem::not_after, said::causes};
use futures_util::future::join_all;
use rustls::{CertificateError, ClientConfig, Error};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::credentials::{Credentials, name_of};

/// What became of one try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Met {
    /// TLS was agreed on. When the server's certificate is no longer valid, in seconds since 1970.
    Agreed(Option<u64>),
    /// Somebody answered, and TLS was not agreed on: why.
    Refused(String),
    /// Nobody answered: why.
    Silent(String),
}

/// For one server, from its name to the end of the handshake.
const LONGEST: Duration = Duration::from_secs(3);

/// A certificate that is not believed is refused after the handshake has ended on our side, in TLS 1.3: one way and
/// back is waited for that.
const SECOND_THOUGHTS: Duration = Duration::from_millis(500);

/// Tries each of the servers, as a session would, and says nothing to them.
pub(super) async fn meet<'s>(servers: &'s [String], shown: &Credentials) -> Vec<(&'s str, Met)> {
    let config = shown.config();
    join_all(servers.iter().map(|server| {
        let config = config.clone();
        async move {
            let met = timeout(LONGEST, one(server, config, shown)).await;
            (server.as_str(), met.unwrap_or_else(|_| Met::Silent("no answer in time".into())))
        }
    }))
    .await
}

/// What is wrong with TLS, of all servers with which it is not agreed on; empty where that is not what is wrong.
pub(super) fn refusals(met: &[(&str, Met)]) -> String {
    let refused = met.iter().filter_map(|(server, met)| match met {
        Met::Refused(why) => Some(format!("{server}: {why}")),
        Met::Agreed(_) | Met::Silent(_) => None,
    });
    refused.collect::<Vec<_>>().join("; ")
}

async fn one(server: &str, config: Arc<ClientConfig>, shown: &Credentials) -> Met {
    let Some(name) = name_of(server) else { return Met::Silent("it has no host".into()) };
    let stream = match TcpStream::connect(server).await {
        Ok(stream) => stream,
        Err(error) => return Met::Silent(causes(&error)),
    };
    let refused = |error: &io::Error| Met::Refused(why(error, shown));
    let mut stream = match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => stream,
        Err(error) => return refused(&error),
    };
    let until = stream.get_ref().1.peer_certificates().and_then(|chain| not_after(chain.first()?));
    match timeout(SECOND_THOUGHTS, stream.read_u8()).await {
        Ok(Err(error)) => refused(&error),
        // It waits for a session to be asked for.
        Err(_) | Ok(Ok(_)) => Met::Agreed(until),
    }
}

/// What a server answers to one of ZooKeeper's four-letter words; nothing where it does not, or not in time.
pub(super) async fn says(server: &str, word: &str, shown: Option<&Credentials>) -> Option<String> {
    let asked = async {
        let stream = TcpStream::connect(server).await?;
        let Some(shown) = shown else { return ask(stream, word).await };
        let name = name_of(server).ok_or(io::ErrorKind::InvalidInput)?;
        ask(TlsConnector::from(shown.config()).connect(name, stream).await?, word).await
    };
    timeout(LONGEST, asked).await.ok()?.ok()
}

/// Servers hang up behind their answer, some of them without a farewell.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, word: &str) -> io::Result<String> {
    stream.write_all(word.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = [0; 256];
    let read = stream.read(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer[..read]).into_owned())
}

/// In words that are the same at the next try: the log says once what it has said already.
fn why(error: &io::Error, shown: &Credentials) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(bad)) => unbelieved(bad),
        Some(Error::AlertReceived(alert)) => {
            let guess = match shown.expired() {
                Some(path) => format!("our certificate in {} has expired", path.display()),
                None if shown.show_nothing() => {
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
        None => causes(error),
    }
}

fn unbelieved(bad: &CertificateError) -> String {
    match bad {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet, by the clock of this machine".into()
        }
        // Of somebody with the name of the right signer, and another key, the latter is said.
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

    #[test]
    fn only_servers_that_refuse_are_complained_about() {
        let met = [
            ("a:1", Met::Silent("refused".into())),
            ("b:1", Met::Refused("its certificate has expired".into())),
            ("c:1", Met::Agreed(None)),
        ];
        assert_eq!(refusals(&met), "b:1: its certificate has expired");
        assert_eq!(refusals(&met[..1]), "");
    }
}
