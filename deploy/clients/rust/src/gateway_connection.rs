//! One connection to a gateway: requests about leases, and their responses.

use std::{error::Error, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER},
    uri::{Authority, Scheme},
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::TlsConnector;

use crate::lease_json::{FENCING_LEASE, ProblemDetails};

/// Why no client can be made for a gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientConfigError {
    #[error("`{0}` is no URL of the form http://host:port")]
    Url(String),
    #[error(
        "a URL with https needs `Client::over_tls`, which is told whom to trust; one with http is not for that"
    )]
    Scheme,
    #[error("a bearer token is printable ASCII")]
    Token,
}

/// There was no readable answer. The question may have taken effect.
pub(crate) type Unanswered = Box<dyn Error + Send + Sync>;

/// The address of a gateway, and the client's credentials.
pub(crate) struct GatewayEndpoint {
    authority: Authority,
    host: HeaderValue,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    bearer: Option<HeaderValue>,
}

/// One question.
pub(crate) struct GatewayRequest<'q> {
    pub(crate) method: Method,
    /// The path below the prefix of leases.
    pub(crate) path: String,
    pub(crate) lease: Option<&'q HeaderValue>,
    pub(crate) body: Bytes,
}

pub(crate) struct GatewayResponse {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

/// A connection for requests, one after another. If it is dropped, it is closed, and the gateway gives up a wait that
/// was requested on it.
pub(crate) struct GatewayConnection {
    gateway: Arc<GatewayEndpoint>,
    open: Option<OpenConnection>,
}

struct OpenConnection {
    questions: SendRequest<Full<Bytes>>,
    /// The task that reads and writes.
    _driver: JoinSet<()>,
}

trait IoStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> IoStream for S {}

const PREFIX: &str = "/.fencegate/v1/leases";
/// The longest answer. Documents about leases are far shorter.
const LONGEST: usize = 1 << 20;

impl GatewayEndpoint {
    pub(crate) fn at(
        url: &str,
        token: Option<&str>,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, ClientConfigError> {
        let bad = || ClientConfigError::Url(url.to_owned());
        let parsed: Uri = url.parse().map_err(|_| bad())?;
        let parts = parsed.into_parts();
        let authority = parts.authority.ok_or_else(bad)?;
        if parts.path_and_query.is_some_and(|path| path != "/") || authority.as_str().contains('@') {
            return Err(bad());
        }
        let tls = match (parts.scheme, tls) {
            (Some(scheme), None) if scheme == Scheme::HTTP => None,
            (Some(scheme), Some(config)) if scheme == Scheme::HTTPS => {
                let name = ServerName::try_from(bare(&authority).to_owned()).map_err(|_| bad())?;
                Some((TlsConnector::from(config), name))
            }
            (Some(_), _) => return Err(ClientConfigError::Scheme),
            (None, _) => return Err(bad()),
        };
        let bearer = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))).transpose();
        let mut bearer = bearer.map_err(|_| ClientConfigError::Token)?;
        bearer.iter_mut().for_each(|value| value.set_sensitive(true));
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad())?;
        Ok(Self { authority, host, tls, bearer })
    }

    async fn open(&self) -> Result<OpenConnection, Unanswered> {
        let port = self.authority.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let plain = TcpStream::connect((bare(&self.authority), port)).await?;
        // Questions are small, and their answers are awaited, so nothing may be delayed.
        plain.set_nodelay(true)?;
        let stream: Box<dyn IoStream> = match &self.tls {
            None => Box::new(plain),
            Some((connector, name)) => Box::new(connector.connect(name.clone(), plain).await?),
        };
        let (questions, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        // The next question finds out how the connection ended.
        driver.spawn(async move { drop(connection.await) });
        Ok(OpenConnection { questions, _driver: driver })
    }

    fn request(&self, question: &GatewayRequest<'_>) -> Result<Request<Full<Bytes>>, http::Error> {
        let path = format!("{PREFIX}{}", question.path);
        let mut request = Request::builder().method(&question.method).uri(path).header(HOST, &self.host);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        if let Some(lease) = question.lease {
            request = request.header(FENCING_LEASE, lease);
        }
        request.header(CONTENT_TYPE, "application/json").body(Full::new(question.body.clone()))
    }
}

/// The host, without the brackets of an IPv6 address.
fn bare(authority: &Authority) -> &str {
    authority.host().trim_start_matches('[').trim_end_matches(']')
}

impl GatewayConnection {
    pub(crate) fn to(gateway: Arc<GatewayEndpoint>) -> Self {
        Self { gateway, open: None }
    }

    /// Sends a request. If the connection has ended meanwhile, the request is sent again on a new one. So it has to be
    /// one that may take effect twice, or the first one.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection; the next request makes a new one. The request may take effect all
    /// the same.
    pub(crate) async fn ask(&mut self, question: &GatewayRequest<'_>) -> Result<GatewayResponse, Unanswered> {
        if let Some(open) = self.open.take()
            && let Ok(answer) = self.asked(open, question).await
        {
            return Ok(answer);
        }
        let open = self.gateway.open().await?;
        self.asked(open, question).await
    }

    async fn asked(
        &mut self,
        mut open: OpenConnection,
        question: &GatewayRequest<'_>,
    ) -> Result<GatewayResponse, Unanswered> {
        open.questions.ready().await?;
        let answer = open.questions.send_request(self.gateway.request(question)?).await?;
        let status = answer.status();
        let retry_after = retry_after(&answer);
        let body = Limited::new(answer.into_body(), LONGEST).collect().await?.to_bytes();
        // The connection is kept only after a complete answer. Otherwise the rest would be taken for the next answer.
        self.open = Some(open);
        Ok(GatewayResponse { status, retry_after, body })
    }
}

impl GatewayResponse {
    /// The refusal in the answer. It may be empty, if the answer came from a server in between.
    pub(crate) fn problem(&self) -> ProblemDetails {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, Unanswered> {
        serde_json::from_slice(&self.body)
            .map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad).into())
    }
}

fn retry_after<B>(answer: &Response<B>) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway URL is `http`, a host and a port. Anything else is refused, as is a token with a line break.
    #[test]
    fn url_is_scheme_host_and_port() {
        for good in ["http://localhost", "http://127.0.0.1:8080", "http://[::1]:8080/"] {
            assert!(GatewayEndpoint::at(good, Some("secret"), None).is_ok(), "{good}");
        }
        for bad in
            ["", "localhost:8080", "/x", "http://a/b", "http://a?b", "http://me@a", "https://a", "ftp://a"]
        {
            assert!(GatewayEndpoint::at(bad, Some("secret"), None).is_err(), "{bad}");
        }
        assert!(matches!(GatewayEndpoint::at("http://a", Some("a\nb"), None), Err(ClientConfigError::Token)));
    }
}
