//! Keeps the keys of a ticket verifier current from a URL: fetches them at the start, at intervals, and when a ticket
//! names an unknown key.

use std::{
    error::Error,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fencegate_http_client::http1::{ExchangeError, Http1Connection};
use fencegate_process::display::HumanDuration;
use fencegate_ticket::{LARGEST, TicketJwkError, TicketVerifier};
use http_body_util::Empty;
use hyper::{Request, StatusCode, Uri, header};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

#[cfg(test)]
mod tests;

/// The URL of a key set, and the verifier that uses the keys. A party that can change the response of this URL can
/// sign tickets. So it belongs on the same host, or on a network that is trusted as a whole.
#[derive(Debug)]
pub struct JwksFetcher {
    url: Uri,
    pace: JwksRefreshPolicy,
    verifier: Arc<TicketVerifier>,
}

/// How often a key set is fetched.
#[derive(Debug, Clone, Copy)]
pub struct JwksRefreshPolicy {
    /// The usual interval. Default 5 min.
    pub every: Duration,
    /// The least time between two fetches, after a failure and however many tickets name unknown keys. Default 10 s.
    pub least: Duration,
    /// The longest time for one fetch, from the lookup of the name to the last byte. Default 3 s.
    pub patience: Duration,
}

impl Default for JwksRefreshPolicy {
    fn default() -> Self {
        let [every, least, patience] = [300, 10, 3].map(Duration::from_secs);
        Self { every, least, patience }
    }
}

/// The reason for which a URL cannot be the address of a key set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwksUrlError {
    #[error("`{0}` is no URL of the form http://host[:port]/path")]
    Form(String),
    /// The text is not repeated: it contains a password.
    #[error("the URL names a user; key sets are public")]
    User,
    #[error(
        "`{0}` is not http://, which is the only scheme so far; fetch the file by other means and name the file"
    )]
    Scheme(String),
}

/// The reason for which a key set could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchJwksError {
    #[error("connect")]
    Connect(#[source] io::Error),
    #[error("the connection broke")]
    Broken(#[from] hyper::Error),
    #[error("no complete answer within {0:?}")]
    Timeout(Duration),
    /// Redirections are not followed, so that the source of the keys is configured in one place.
    #[error("the answer was {0}")]
    Status(StatusCode),
    #[error("the answer is larger than 64 KiB")]
    Large,
    #[error("the answer is no key set")]
    Keys(#[from] TicketJwkError),
}

impl JwksFetcher {
    /// The URL must be `http://`. There are no keys before the first [`JwksFetcher::fetch`]. Some task must run
    /// [`JwksFetcher::run_refresh_loop`].
    ///
    /// # Errors
    /// [`JwksUrlError`].
    pub fn new(url: &str, pace: JwksRefreshPolicy) -> Result<Self, JwksUrlError> {
        let form = || JwksUrlError::Form(url.to_owned());
        if url.split('/').nth(2).is_some_and(|authority| authority.contains('@')) {
            return Err(JwksUrlError::User);
        }
        let parsed: Uri = url.parse().map_err(|_| form())?;
        match (parsed.scheme_str(), parsed.host()) {
            (Some("http"), Some(host)) if !host.is_empty() => {}
            (Some("http") | None, _) => return Err(form()),
            (Some(_), _) => return Err(JwksUrlError::Scheme(url.to_owned())),
        }
        Ok(Self { url: parsed, pace, verifier: Arc::new(TicketVerifier::without_keys()) })
    }

    pub fn verifier(&self) -> &Arc<TicketVerifier> {
        &self.verifier
    }

    /// Fetches the key set now.
    ///
    /// # Errors
    /// [`FetchJwksError`]; the old keys then stay.
    pub async fn fetch(&self) -> Result<(), FetchJwksError> {
        let begun = Instant::now();
        let answer = timeout(self.pace.patience, self.exchange()).await;
        let bytes = answer.map_err(|_| FetchJwksError::Timeout(self.pace.patience))??;
        debug!(url = %self.url, took = %HumanDuration(begun.elapsed()), bytes = bytes.len(), "key set fetched");
        Ok(self.verifier.set_keys(&bytes, &self.url)?)
    }

    /// Fetches the key set at once, and then at intervals, as long as it is polled. Each key set has one task that
    /// runs this.
    pub async fn run_refresh_loop(&self) {
        loop {
            let fetched = self.fetch().await;
            if let Err(error) = &fetched {
                let cause = error.source().map(ToString::to_string);
                warn!(url = %self.url, %error, cause, kids = self.verifier.kids(), "keys not fetched, kept the old");
            }
            self.wait_next_fetch(fetched.is_ok()).await;
        }
    }

    /// Waits until it is time for the next fetch.
    async fn wait_next_fetch(&self, all_is_well: bool) {
        sleep(self.pace.least).await;
        if all_is_well {
            let rest = self.pace.every.saturating_sub(self.pace.least);
            // Either the time is over, or a key is needed. In both cases it is time to fetch.
            drop(timeout(rest, self.verifier.wait_for_unknown_key()).await);
        }
    }

    async fn exchange(&self) -> Result<Bytes, FetchJwksError> {
        let host = self.url.host().expect("checked when it was made");
        let authority = format!("{host}:{}", self.url.port_u16().unwrap_or(80));
        let stream = TcpStream::connect(&authority).await.map_err(FetchJwksError::Connect)?;
        let mut connection = Http1Connection::handshake(stream).await?;
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(header::HOST, authority)
            .header(header::ACCEPT, "application/jwk-set+json, application/json")
            .body(Empty::<Bytes>::new())
            .expect("the parts of a URL");
        let answer = connection.send(request).await?;
        if answer.status() != StatusCode::OK {
            return Err(FetchJwksError::Status(answer.status()));
        }
        connection.read_body(answer.into_body(), LARGEST).await.map_err(|error| match error {
            ExchangeError::Broken(broken) => FetchJwksError::Broken(broken),
            ExchangeError::TooLong => FetchJwksError::Large,
        })
    }
}
