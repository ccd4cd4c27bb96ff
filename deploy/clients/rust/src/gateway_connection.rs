//! One connection to one of the gateways: requests about leases, and their responses.

use std::{
    error::Error,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

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

use crate::lease_json::{FENCING_LEASE, IN_PROGRESS, ProblemDetails};

/// The settings for a gateway are not usable, so no client can be made.
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
    #[error("no gateway is named")]
    NoGateway,
}

/// There was no readable answer. The request may have taken effect.
pub(crate) type Unanswered = Box<dyn Error + Send + Sync>;

/// The URL of a gateway: `http://host:port` or `https://host:port`, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayUrl {
    authority: Authority,
    is_tls: bool,
}

/// The gateways of one installation, and the client's credentials. Every gateway answers every request about a lease.
pub(crate) struct GatewaySet {
    gateways: Vec<GatewayEndpoint>,
    bearer: Option<HeaderValue>,
    /// The index of the gateway at which new connections begin. A request without a result moves it to the next
    /// gateway.
    preferred: AtomicUsize,
}

/// The address of a gateway.
struct GatewayEndpoint {
    authority: Authority,
    host: HeaderValue,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// There was no readable answer of this gateway.
#[derive(Debug, thiserror::Error)]
#[error("{host} does not answer")]
struct GatewayError {
    host: Authority,
    source: Unanswered,
}

/// One request about a lease.
pub(crate) struct LeaseApiRequest<'q> {
    pub(crate) method: Method,
    /// The path below `/.fencegate/v1/leases`.
    pub(crate) path: String,
    pub(crate) lease: Option<&'q HeaderValue>,
    /// The name of the request (`Idempotency-Key`), under which it takes effect once. If a connection ends without an
    /// answer, the request is sent once more to the same gateway, the only one that knows the name.
    pub(crate) name: Option<&'q HeaderValue>,
    /// Asks the gateway to make the lease at once. The lease then waits in the queue for as long as it is renewed.
    pub(crate) in_queue: bool,
    pub(crate) body: Bytes,
}

pub(crate) struct GatewayResponse {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

/// A connection that carries one request after another. If it is dropped, it is closed, and the gateway ends a wait
/// that was requested on it. After a request without a result the next request goes to the next gateway.
pub(crate) struct GatewayConnection {
    gateways: Arc<GatewaySet>,
    current: usize,
    open: Option<OpenConnection>,
}

struct OpenConnection {
    questions: SendRequest<Full<Bytes>>,
    /// The task that reads from and writes to the connection. It is aborted on drop.
    _driver: JoinSet<()>,
}

trait IoStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> IoStream for S {}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const PREFIX: &str = "/.fencegate/v1/leases";
/// The longest response body in bytes that is read. Documents about leases are far shorter.
const LONGEST: usize = 1 << 20;

impl GatewayUrl {
    /// Reads `http://host:port` or `https://host:port`.
    ///
    /// # Errors
    /// Returns an error if the text does not have this form.
    pub fn parse(url: &str) -> Result<Self, ClientConfigError> {
        let bad = || ClientConfigError::Url(url.to_owned());
        let parts = url.parse::<Uri>().map_err(|_| bad())?.into_parts();
        let authority = parts.authority.filter(|authority| !authority.host().is_empty()).ok_or_else(bad)?;
        if parts.path_and_query.is_some_and(|path| path != "/") || authority.as_str().contains('@') {
            return Err(bad());
        }
        let scheme = parts.scheme.ok_or_else(bad)?;
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(ClientConfigError::Scheme);
        }
        Ok(Self { authority, is_tls: scheme == Scheme::HTTPS })
    }

    /// Whether the URL begins with `https`.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }
}

impl GatewaySet {
    /// `tls`: used for the gateways whose URL begins with `https`.
    pub(crate) fn new(
        gateways: &[GatewayUrl],
        token: Option<&[u8]>,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, ClientConfigError> {
        if gateways.is_empty() {
            return Err(ClientConfigError::NoGateway);
        }
        let gateways = gateways.iter().map(|url| GatewayEndpoint::new(url, tls)).collect::<Result<_, _>>()?;
        let bearer = token.map(|token| HeaderValue::from_bytes(&[b"Bearer ", token].concat())).transpose();
        let mut bearer = bearer.map_err(|_| ClientConfigError::Token)?;
        bearer.iter_mut().for_each(|value| value.set_sensitive(true));
        Ok(Self { gateways, bearer, preferred: AtomicUsize::new(0) })
    }

    /// How many gateways there are.
    pub(crate) fn len(&self) -> usize {
        self.gateways.len()
    }
}

impl GatewayEndpoint {
    fn new(url: &GatewayUrl, tls: Option<&Arc<ClientConfig>>) -> Result<Self, ClientConfigError> {
        let authority = url.authority.clone();
        let bad = || ClientConfigError::Url(authority.to_string());
        let tls = match (url.is_tls, tls) {
            (false, _) => None,
            (true, None) => return Err(ClientConfigError::Scheme),
            (true, Some(config)) => {
                let name = ServerName::try_from(bare(&authority).to_owned()).map_err(|_| bad())?;
                Some((TlsConnector::from(config.clone()), name))
            }
        };
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad())?;
        Ok(Self { authority, host, tls })
    }

    async fn open(&self) -> Result<OpenConnection, Unanswered> {
        let port = self.authority.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let plain = TcpStream::connect((bare(&self.authority), port)).await?;
        // Requests are small and their responses are awaited, so Nagle's algorithm must not delay them.
        plain.set_nodelay(true)?;
        let stream: Box<dyn IoStream> = match &self.tls {
            None => Box::new(plain),
            Some((connector, name)) => Box::new(connector.connect(name.clone(), plain).await?),
        };
        let (questions, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        // The error is dropped: the next request on the connection fails too, and reports it.
        driver.spawn(async move { drop(connection.await) });
        Ok(OpenConnection { questions, _driver: driver })
    }
}

/// The host, without the brackets of an IPv6 address.
fn bare(authority: &Authority) -> &str {
    authority.host().trim_start_matches('[').trim_end_matches(']')
}

impl GatewayConnection {
    pub(crate) fn new(gateways: Arc<GatewaySet>) -> Self {
        let current = gateways.preferred.load(Relaxed);
        Self { gateways, current, open: None }
    }

    /// Sends a request, and waits for the response until `limit` completes. If an open connection turns out to have
    /// ended, the request is sent again on a new one. So a request must be one that may take effect twice, or have a
    /// name, or be the first one.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection; the next request makes a new one. The request may take effect all
    /// the same.
    pub(crate) async fn ask(
        &mut self,
        question: &LeaseApiRequest<'_>,
        limit: impl Future<Output = ()>,
    ) -> Result<GatewayResponse, Unanswered> {
        let answer = tokio::select! {
            biased;
            answer = self.ask_repeatedly(question) => answer,
            () = limit => Err("no answer in time".into()),
        };
        match answer {
            Ok(answer) => {
                // A retryable response means that this gateway has no result, for example because it cannot reach the
                // gateway that holds the lease.
                if answer.is_retryable() {
                    self.move_on();
                }
                Ok(answer)
            }
            Err(source) => {
                let host = self.gateways.gateways[self.current].authority.clone();
                self.move_on();
                Err(GatewayError { host, source }.into())
            }
        }
    }

    /// Sends the next request to the next gateway.
    fn move_on(&mut self) {
        let many = self.gateways.len();
        if many > 1 {
            self.open = None;
            self.current = (self.current + 1) % many;
            self.gateways.preferred.store(self.current, Relaxed);
        }
    }

    async fn ask_repeatedly(
        &mut self,
        question: &LeaseApiRequest<'_>,
    ) -> Result<GatewayResponse, Unanswered> {
        match self.ask_current(question).await {
            // The request may have taken effect. If it granted a lease that we do not know of, later requests would
            // wait for our own lease.
            Err(_lost) if question.name.is_some() => self.ask_current(question).await,
            answer => answer,
        }
    }

    async fn ask_current(&mut self, question: &LeaseApiRequest<'_>) -> Result<GatewayResponse, Unanswered> {
        if let Some(open) = self.open.take()
            && let Ok(answer) = self.exchange(open, question).await
        {
            return Ok(answer);
        }
        let open = self.gateways.gateways[self.current].open().await?;
        self.exchange(open, question).await
    }

    async fn exchange(
        &mut self,
        mut open: OpenConnection,
        question: &LeaseApiRequest<'_>,
    ) -> Result<GatewayResponse, Unanswered> {
        open.questions.ready().await?;
        let answer = open.questions.send_request(self.request(question)?).await?;
        let status = answer.status();
        let retry_after = retry_after(&answer);
        let body = Limited::new(answer.into_body(), LONGEST).collect().await?.to_bytes();
        // The connection is kept only after a complete response. Otherwise the rest of this one would be read as the
        // next response.
        self.open = Some(open);
        Ok(GatewayResponse { status, retry_after, body })
    }

    fn request(&self, question: &LeaseApiRequest<'_>) -> Result<Request<Full<Bytes>>, http::Error> {
        let host = &self.gateways.gateways[self.current].host;
        let path = format!("{PREFIX}{}", question.path);
        let mut request = Request::builder().method(&question.method).uri(path).header(HOST, host);
        if let Some(bearer) = &self.gateways.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        if let Some(lease) = question.lease {
            request = request.header(FENCING_LEASE, lease);
        }
        if let Some(name) = question.name {
            request = request.header(IDEMPOTENCY_KEY, name);
        }
        if question.in_queue {
            request = request.header("prefer", "respond-async");
        }
        request.header(CONTENT_TYPE, "application/json").body(Full::new(question.body.clone()))
    }
}

impl GatewayResponse {
    /// Whether the response does not decide about the lease, so that another try or another gateway may have a result.
    pub(crate) fn is_retryable(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS || self.status.is_server_error()
    }

    /// Whether an earlier request of the same name is in progress: a repeat at the same gateway gets its result.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.status == StatusCode::CONFLICT && self.problem().reason == IN_PROGRESS
    }

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

    fn plain(url: &str, token: &str) -> Result<GatewaySet, ClientConfigError> {
        GatewaySet::new(&[GatewayUrl::parse(url)?], Some(token.as_bytes()), None)
    }

    /// A gateway URL of a client without TLS is `http`, a host and a port. Anything else is refused, as is a token with
    /// a line break.
    #[test]
    fn url_is_scheme_host_and_port() {
        for good in ["http://localhost", "http://127.0.0.1:8080", "http://[::1]:8080/"] {
            assert!(plain(good, "secret").is_ok(), "{good}");
        }
        for bad in
            ["", "localhost:8080", "/x", "http://a/b", "http://a?b", "http://me@a", "https://a", "ftp://a"]
        {
            assert!(plain(bad, "secret").is_err(), "{bad}");
        }
        assert!(matches!(plain("http://a", "a\nb"), Err(ClientConfigError::Token)));
    }

    /// A gateway is named by an `http` or `https` URL without a path.
    #[test]
    fn gateway_url_has_no_path() {
        let read = |url: &str| GatewayUrl::parse(url).ok().map(|url| (url.authority.to_string(), url.is_tls));
        assert_eq!(read("http://gw-1:8080"), Some(("gw-1:8080".to_owned(), false)));
        assert_eq!(read("https://gw-1/"), Some(("gw-1".to_owned(), true)));
        assert_eq!(read("http://[::1]:8080/"), Some(("[::1]:8080".to_owned(), false)));
        for wrong in ["gw-1:8080", "ftp://gw-1", "http://", "http://gw-1/x", "http://a@b", "http://a b"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    /// A response after which another try can succeed is distinguished from a final refusal.
    #[test]
    fn retryable_answer_differs_from_refusal() {
        let answer = |status: u16| GatewayResponse {
            status: StatusCode::from_u16(status).expect("a status"),
            retry_after: None,
            body: Bytes::from_static(br#"{"title": "t", "detail": "why"}"#),
        };
        assert!(!answer(423).is_retryable());
        assert_eq!(answer(423).problem().detail.as_deref(), Some("why"));
        assert!(answer(503).is_retryable() && answer(429).is_retryable());
        assert!(!answer(409).is_retryable() && !answer(409).is_in_progress(), "a conflict of another kind");
        assert!(answer(200).read::<crate::lease_json::LeaseResponseBody>().is_err(), "no lease");
    }
}
