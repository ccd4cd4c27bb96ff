//! Fetches a key set from its URL, and says when to ask again.

use std::{
    future::Future,
    io,
    pin::pin,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::{Request, StatusCode, Uri, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    sync::Notify,
    time::{sleep, timeout},
};

use super::{file::LARGEST, jwks::Set, keys::BadKey};

/// A key set behind a URL.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) url: Uri,
    pace: Pace,
    wanted: Notify,
}

/// How often a key set is fetched.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// While all is well. Default 5 min.
    pub every: Duration,
    /// From one fetch to the next, however many tickets name unknown keys, and after a failure. Default 10 s.
    pub least: Duration,
    /// For one fetch, from name to last byte. Default 3 s.
    pub patience: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let [every, least, patience] = [300, 10, 3].map(Duration::from_secs);
        Self { every, least, patience }
    }
}

/// Why a URL cannot be one of a key set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("`{0}` is no URL of the form http://host[:port]/path")]
    Form(String),
    /// The text is not repeated: it holds a password.
    #[error("the URL names a user; key sets are public")]
    User,
    #[error(
        "`{0}` is not http://, which is the only scheme so far; fetch the file by other means and name the file"
    )]
    Scheme(String),
}

/// Why a key set could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum Unfetched {
    #[error("connect")]
    Connect(#[source] io::Error),
    #[error("the connection broke")]
    Broken(#[from] hyper::Error),
    #[error("no complete answer within {0:?}")]
    Timeout(Duration),
    /// Redirections are not followed: where keys come from is written down in one place.
    #[error("the answer was {0}")]
    Status(StatusCode),
    #[error("the answer is larger than 64 KiB")]
    Large,
    #[error("the answer is no key set")]
    Keys(#[from] BadKey),
}

impl Remote {
    pub(super) fn new(url: &str, pace: Pace) -> Result<Self, BadUrl> {
        let form = || BadUrl::Form(url.to_owned());
        if url.split('/').nth(2).is_some_and(|authority| authority.contains('@')) {
            return Err(BadUrl::User);
        }
        let parsed: Uri = url.parse().map_err(|_| form())?;
        match (parsed.scheme_str(), parsed.host()) {
            (Some("http"), Some(host)) if !host.is_empty() => {}
            (Some("http") | None, _) => return Err(form()),
            (Some(_), _) => return Err(BadUrl::Scheme(url.to_owned())),
        }
        Ok(Self { url: parsed, pace, wanted: Notify::new() })
    }

    /// A ticket named a key that is not known: fetch soon.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Waits until it is time for the next fetch.
    pub(super) async fn wait(&self, all_is_well: bool) {
        sleep(self.pace.least).await;
        if all_is_well {
            let rest = self.pace.every.saturating_sub(self.pace.least);
            // Over or wanted: both mean now.
            drop(timeout(rest, self.wanted.notified()).await);
        }
    }

    pub(super) async fn fetch(&self) -> Result<Set, Unfetched> {
        let begun = Instant::now();
        let answer = timeout(self.pace.patience, self.exchange()).await;
        let bytes = answer.map_err(|_| Unfetched::Timeout(self.pace.patience))??;
        tracing::debug!(url = %self.url, took = %fencegate_process::said::Brief(begun.elapsed()), bytes = bytes.len(), "key set fetched");
        Ok(Set::parse(&bytes)?)
    }

    async fn exchange(&self) -> Result<Bytes, Unfetched> {
        let host = self.url.host().expect("checked when it was made");
        let authority = format!("{host}:{}", self.url.port_u16().unwrap_or(80));
        let stream = TcpStream::connect(&authority).await.map_err(Unfetched::Connect)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(header::HOST, authority)
            .header(header::ACCEPT, "application/jwk-set+json, application/json")
            .body(Empty::<Bytes>::new())
            .expect("the parts of a URL");
        beside(connection, async {
            let answer = sender.send_request(request).await?;
            if answer.status() != StatusCode::OK {
                return Err(Unfetched::Status(answer.status()));
            }
            match Limited::new(answer.into_body(), LARGEST).collect().await {
                Ok(body) => Ok(body.to_bytes()),
                Err(error) => Err(match error.downcast::<hyper::Error>() {
                    Ok(broken) => Unfetched::Broken(*broken),
                    Err(error) => {
                        debug_assert!(error.is::<LengthLimitError>(), "{error}");
                        Unfetched::Large
                    }
                }),
            }
        })
        .await
    }
}

/// Drives the connection along with its one exchange: no task is left behind when the exchange is given up.
async fn beside<T>(connection: impl Future, exchange: impl Future<Output = T>) -> T {
    match select(pin!(connection), pin!(exchange)).await {
        // What the connection knows of its end the exchange is told, too.
        Either::Left((_, exchange)) => exchange.await,
        Either::Right((done, _)) => done,
    }
}
