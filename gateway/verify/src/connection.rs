//! A connection to an instance of the service, for one request. The body of the request can be held back in the
//! middle.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use fencegate_http_client::{
    http1::{ClientStream, Http1Connection},
    upstream::tls::UpstreamTlsConnector,
};
use fencegate_process::display::error_chain;
use hyper::{
    HeaderMap, Request, StatusCode,
    body::{Body, Frame, SizeHint},
    header,
};
use tokio::{net::TcpStream, sync::oneshot, time::timeout};

use super::template::RenderedRequest;

/// The address of an instance.
#[derive(Debug, Clone)]
pub struct InstanceAddress {
    /// As the user wrote it.
    pub url: String,
    /// Host and port.
    authority: String,
    /// The path that stands before every target; empty, or with a slash at its beginning and none at its end.
    base: String,
    tls: Option<Arc<UpstreamTlsConnector>>,
}

/// An open connection.
pub struct ServiceConnection {
    connection: Http1Connection<Box<dyn ClientStream>, PausedBody>,
    instance: InstanceAddress,
}

/// A complete answer.
#[derive(Debug, Clone)]
pub struct ServiceResponse {
    pub status: StatusCode,
    pub fields: HeaderMap,
    pub body: Bytes,
}

/// The request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ServiceRequestError {
    #[error("the service cannot be reached: {0}")]
    Unreachable(#[source] io::Error),
    #[error("the connection to the service broke: {0}")]
    Broken(String),
    #[error("the service sent no answer within {0:?}")]
    Timeout(Duration),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address of a service: write `http://host:port` or `https://host`")]
pub struct ParseServiceInstanceError(String);

/// A body that is sent at once, or in two halves with a wait in between.
pub(crate) struct PausedBody {
    first: Option<Bytes>,
    rest: Option<(oneshot::Receiver<()>, Bytes)>,
}

/// The most bytes that are read of one answer: a list of all effects may be long.
const MAX_RESPONSE_LEN: usize = 16 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl InstanceAddress {
    /// Parses the URL of an instance.
    ///
    /// # Errors
    /// Returns an error if the text is not an `http` or `https` URL with a host.
    pub fn parse(
        url: &str,
        secured: impl FnOnce() -> Arc<UpstreamTlsConnector>,
    ) -> Result<Self, ParseServiceInstanceError> {
        let bad = || ParseServiceInstanceError(url.to_owned());
        let uri: hyper::Uri = url.parse().map_err(|_| bad())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
        let (port, tls) = match uri.scheme_str() {
            Some("http") => (80, None),
            Some("https") => (443, Some(secured())),
            _ => return Err(bad()),
        };
        if uri.query().is_some() {
            return Err(bad());
        }
        let authority = format!("{host}:{}", uri.port_u16().unwrap_or(port));
        let base = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { url: url.to_owned(), authority, base, tls })
    }

    /// Connects to the instance.
    ///
    /// # Errors
    /// Returns [`ServiceRequestError::Unreachable`] if no connection was made.
    pub async fn open(&self) -> Result<ServiceConnection, ServiceRequestError> {
        let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut));
        timeout(CONNECT_TIMEOUT, self.dial())
            .await
            .unwrap_or_else(late)
            .map_err(ServiceRequestError::Unreachable)
    }

    async fn dial(&self) -> io::Result<ServiceConnection> {
        let addresses: Vec<SocketAddr> = tokio::net::lookup_host(&self.authority).await?.collect();
        let stream = TcpStream::connect(&*addresses).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn ClientStream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.connect(&self.authority, stream, &["http/1.1"]).await?.0),
        };
        let connection = Http1Connection::handshake(stream).await.map_err(io::Error::other)?;
        Ok(ServiceConnection { connection, instance: self.clone() })
    }
}

impl ServiceConnection {
    /// Sends one request and closes the connection after the answer. With `until`, the second half of the body
    /// is sent only after that signal.
    ///
    /// # Errors
    /// Returns a [`ServiceRequestError`] if there is no answer. The request may have had an effect all the same.
    pub async fn send(
        mut self,
        filled: &RenderedRequest,
        until: Option<oneshot::Receiver<()>>,
        limit: Duration,
    ) -> Result<ServiceResponse, ServiceRequestError> {
        let target = format!("{}{}", self.instance.base, filled.target);
        let mut request = Request::builder().method(&filled.method).uri(target);
        if !filled.fields.iter().any(|(name, _)| name == header::HOST) {
            request = request.header(header::HOST, &self.instance.authority);
        }
        for (name, value) in &filled.fields {
            request = request.header(name, value);
        }
        let request =
            request.body(PausedBody::new(filled.body.clone(), until)).expect("looked at when it was read");
        let exchange = async {
            let answer = self.connection.exchange(request, MAX_RESPONSE_LEN).await;
            let answer = answer.map_err(|error| ServiceRequestError::Broken(error_chain(&error)))?;
            let (head, body) = answer.into_parts();
            Ok(ServiceResponse { status: head.status, fields: head.headers, body })
        };
        timeout(limit, exchange).await.unwrap_or(Err(ServiceRequestError::Timeout(limit)))
    }
}

impl PausedBody {
    fn new(body: Bytes, until: Option<oneshot::Receiver<()>>) -> Self {
        let Some(until) = until else { return Self { first: Some(body), rest: None } };
        let half = body.len() / 2;
        Self { first: Some(body.slice(..half)), rest: Some((until, body.slice(half..))) }
    }
}

impl Body for PausedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take_if(|first| !first.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.first = None;
        if let Some((until, _)) = &mut self.rest {
            // The body also goes on if the sender of the signal is dropped.
            std::task::ready!(Pin::new(until).poll(context)).ok();
        }
        Poll::Ready(self.rest.take().map(|(_, rest)| Ok(Frame::data(rest))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.first.as_ref().is_none_or(Bytes::is_empty)
    }

    /// The size is known from the start, so that a length is announced and no chunks are sent.
    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or(0, |(_, rest)| rest.len());
        SizeHint::with_exact((self.first.as_ref().map_or(0, Bytes::len) + rest) as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn none() -> Arc<UpstreamTlsConnector> {
        Arc::new(UpstreamTlsConnector::trusting_none())
    }

    /// The URL of an instance has a scheme, a host, a port and perhaps a path.
    #[test]
    fn instance_has_host_port_and_path() {
        let read =
            |url| InstanceAddress::parse(url, none).map(|one| (one.authority, one.base, one.tls.is_some()));
        let read = |url| read(url).expect(url);
        assert_eq!(read("http://127.0.0.1:8000"), ("127.0.0.1:8000".into(), String::new(), false));
        assert_eq!(read("http://pay.example/api/"), ("pay.example:80".into(), "/api".into(), false));
        assert_eq!(read("https://[::1]"), ("[::1]:443".into(), String::new(), true));
        for bad in ["", "pay.example", "127.0.0.1:8000", "ftp://pay.example", "http://a/?b", "http:///a"] {
            assert!(InstanceAddress::parse(bad, none).is_err(), "{bad}");
        }
    }

    /// The second half of a body is sent only after its signal.
    #[tokio::test]
    async fn second_half_of_body_waits() {
        let (go, until) = oneshot::channel();
        let mut body = PausedBody::new(Bytes::from_static(b"abcd"), Some(until));
        assert_eq!(body.size_hint().exact(), Some(4));
        let first = body.frame().await.expect("a frame").expect("never fails");
        assert_eq!(first.into_data().expect("data"), "ab");
        assert!(timeout(Duration::from_millis(10), body.frame()).await.is_err());
        go.send(()).expect("it listens");
        let rest = body.frame().await.expect("a frame").expect("never fails");
        assert_eq!(rest.into_data().expect("data"), "cd");
        assert!(body.frame().await.is_none() && body.is_end_stream());
    }
}
