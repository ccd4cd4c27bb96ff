//! Keeps the keys that verify tokens current from a URL: fetches them at the start, at intervals, and when a token names
//! an unknown key.

use std::{
    error::Error,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use fencegate_http_client::{
    http1::{ClientStream, ExchangeError, Http1Connection},
    upstream::tls::{TlsReloadResult, UpstreamTlsConnector},
};
use fencegate_metrics::IssuerKeyMetrics;
use fencegate_process::{
    clock::{BootInstant, SharedClock},
    display::{FormattedDuration, error_chain},
};
use fencegate_ticket::{LARGEST, TicketJwkError, VerifyingKeys};
use http_body_util::Empty;
use hyper::{Request, StatusCode, Uri, header};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, SemaphorePermit},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tracing::{debug, error, info, warn};

#[cfg(test)]
mod tests;

/// Fetches a key set from a URL into a verifier. A party that can change the response of this URL can make valid
/// tokens. So the URL must be reached by TLS, on the same host, or over a network that is trusted as a whole.
#[derive(Debug)]
pub struct JwksFetcher {
    url: Uri,
    pace: JwksRefreshPolicy,
    /// The TLS settings; `None` if the scheme is `http`.
    tls: Option<Arc<UpstreamTlsConnector>>,
    keys: Arc<VerifyingKeys>,
    /// Has a permit for each request that may wait for a fetch.
    waits: Semaphore,
    /// Set for the keys of an issuer of access tokens, whose age is bounded.
    age: Option<IssuerKeyFreshness>,
}

/// The age of an issuer's keys. It is bounded, because a key may have been revoked while its URL cannot be reached.
#[derive(Debug)]
struct IssuerKeyFreshness {
    issuer: String,
    longest: Duration,
    clock: SharedClock,
    metrics: IssuerKeyMetrics,
    /// The moment when the newest successful fetch began; `None` before the first one.
    fetched_at: Mutex<Option<BootInstant>>,
}

/// The most requests that wait for the keys of one issuer. A client can name any number of unknown keys in made-up
/// tokens, and each request that waits takes the place of one that could be served.
const MOST_WAITING: usize = 64;

/// The intervals and time limits for fetching a key set.
#[derive(Debug, Clone, Copy)]
pub struct JwksRefreshPolicy {
    /// The usual interval. Default 5 min.
    pub every: Duration,
    /// The least time between two fetches, after a failure and however many tokens name unknown keys. Default 10 s.
    pub least: Duration,
    /// The longest time for one fetch, from the lookup of the name to the last byte. Default 3 s.
    pub patience: Duration,
}

impl JwksRefreshPolicy {
    /// The policy for the keys of clients' tokens: a client may be waiting for a new key, so the least interval is
    /// short.
    pub fn for_access_tokens(every: Duration) -> Self {
        let [least, patience] = [1, 2].map(Duration::from_secs);
        // A shorter interval than `least` would not be kept.
        Self { every: every.max(least), least, patience }
    }

    /// The longest time until a key that a token names is known, or is known to be missing.
    pub fn max_refresh_wait(self) -> Duration {
        self.least + self.patience * 2
    }
}

impl Default for JwksRefreshPolicy {
    fn default() -> Self {
        let [every, least, patience] = [300, 10, 3].map(Duration::from_secs);
        Self { every, least, patience }
    }
}

/// The time until the next attempt after a failure, if no token names an unknown key.
const RETRY: Duration = Duration::from_secs(10);

/// The reason for which a URL cannot be the address of a key set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwksUrlError {
    #[error("`{0}` is no URL of the form http://host[:port]/path, nor with https://")]
    Form(String),
    /// The URL is not repeated in the text, because it contains a password.
    #[error("the URL names a user; key sets are public")]
    User,
    #[error("`{0}` is of a scheme that is not fetched here; fetch the file by other means and name the file")]
    Scheme(String),
}

/// The reason for which a key set could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchJwksError {
    #[error("cannot connect to the server of the key set")]
    Connect(#[source] io::Error),
    #[error("the TLS handshake with the server of the key set failed")]
    Tls(#[source] io::Error),
    #[error("the connection to the server of the key set broke")]
    Broken(#[from] hyper::Error),
    #[error("the server of the key set sent no complete answer within {0:?}")]
    Timeout(Duration),
    /// Redirections are not followed, so that the source of the keys is configured in one place.
    #[error("the server of the key set answered {0}")]
    Status(StatusCode),
    #[error("the answer of the server is larger than 64 KiB")]
    Large,
    #[error("the answer of the server is not a key set")]
    Keys(#[from] TicketJwkError),
}

impl IssuerKeyFreshness {
    fn fetched_at(&self) -> Option<BootInstant> {
        *self.fetched_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_too_old(&self) -> bool {
        self.fetched_at().is_none_or(|at| self.clock.now().since(at) > self.longest)
    }

    /// Records the result of a fetch. `begun` is the moment when it began; `None` if it has failed.
    fn record_fetch(&self, begun: Option<BootInstant>) {
        self.metrics.record_fetch(&self.issuer, begun.is_some());
        if begun.is_some() {
            *self.fetched_at.lock().unwrap_or_else(PoisonError::into_inner) = begun;
        }
    }
}

impl JwksFetcher {
    /// The URL must be `http://`, or `https://` if `tls` is given. There are no keys before the first
    /// [`JwksFetcher::fetch`]. Some task must run [`JwksFetcher::run_refresh_loop`].
    ///
    /// # Errors
    /// Returns a [`JwksUrlError`] if the URL cannot be used.
    pub fn new(
        url: &str,
        pace: JwksRefreshPolicy,
        tls: Option<Arc<UpstreamTlsConnector>>,
        keys: Arc<VerifyingKeys>,
    ) -> Result<Self, JwksUrlError> {
        let form = || JwksUrlError::Form(url.to_owned());
        if url.split('/').nth(2).is_some_and(|authority| authority.contains('@')) {
            return Err(JwksUrlError::User);
        }
        let parsed: Uri = url.parse().map_err(|_| form())?;
        let tls = match (parsed.scheme_str(), parsed.host(), tls) {
            (Some("http"), Some(host), _) if !host.is_empty() => None,
            (Some("https"), Some(host), Some(tls)) if !host.is_empty() => Some(tls),
            (Some("http") | None, ..) => return Err(form()),
            (Some(_), ..) => return Err(JwksUrlError::Scheme(url.to_owned())),
        };
        Ok(Self { url: parsed, pace, tls, keys, waits: Semaphore::new(MOST_WAITING), age: None })
    }

    /// Bounds the age of the keys of an issuer of access tokens. `former` is the fetcher of the former plan, which has
    /// fetched the keys that are already known.
    #[must_use]
    pub fn with_max_age(
        self,
        (issuer, longest): (&str, Duration),
        clock: SharedClock,
        metrics: IssuerKeyMetrics,
        former: Option<&Self>,
    ) -> Self {
        let fetched_at = Mutex::new(
            former.and_then(|former| former.age.as_ref()).and_then(IssuerKeyFreshness::fetched_at),
        );
        Self {
            age: Some(IssuerKeyFreshness { issuer: issuer.to_owned(), longest, clock, metrics, fetched_at }),
            ..self
        }
    }

    pub fn keys(&self) -> &Arc<VerifyingKeys> {
        &self.keys
    }

    /// The longest time until a key that a token names is known, or is known to be missing.
    pub fn max_refresh_wait(&self) -> Duration {
        self.pace.max_refresh_wait()
    }

    /// True if no token is accepted, because the keys were not fetched yet, or too long ago.
    pub fn are_keys_too_old(&self) -> bool {
        self.age.as_ref().is_some_and(IssuerKeyFreshness::is_too_old)
    }

    /// Permits a request to wait for keys; `None` if as many requests as allowed are waiting.
    pub fn try_begin_wait(&self) -> Option<SemaphorePermit<'_>> {
        self.waits.try_acquire().ok()
    }

    /// Fetches the key set now.
    ///
    /// # Errors
    /// Returns a [`FetchJwksError`] if no key set came; the old keys then stay.
    ///
    /// # Cancellation
    /// If the future is dropped, requests that wait for the keys wait for the next fetch.
    pub async fn fetch(&self) -> Result<(), FetchJwksError> {
        // The age of the keys counts from the request for them, because the response may have taken long.
        let begun = self.age.as_ref().map(|age| age.clock.now());
        self.keys.record_fetch_begin();
        let fetched = self.fetch_keys().await;
        if let Some(age) = &self.age {
            age.record_fetch(begun.filter(|_| fetched.is_ok()));
        }
        self.keys.record_fetch_end(fetched.is_ok());
        fetched
    }

    async fn fetch_keys(&self) -> Result<(), FetchJwksError> {
        let begun = Instant::now();
        let answer = timeout(self.pace.patience, self.exchange()).await;
        let bytes = answer.map_err(|_| FetchJwksError::Timeout(self.pace.patience))??;
        debug!(url = %self.url, took = %FormattedDuration(begun.elapsed()), bytes = bytes.len(), "key set fetched");
        Ok(self.keys.set_keys(&bytes, &self.url)?)
    }

    /// Fetches the key set at once, and then at intervals, as long as it is polled. Each key set has one task that runs
    /// this.
    pub async fn run_refresh_loop(&self) {
        let mut reported = None;
        let mut was_too_old = false;
        loop {
            self.reload_client_tls().await;
            let fetched = self.fetch().await;
            was_too_old = self.report_key_age(was_too_old);
            let failure = fetched.as_ref().err().map(|error| error_chain(error));
            // Each cause is logged once: while tokens name unknown keys, there may be a fetch every second.
            if let (Err(error), true) = (&fetched, failure != reported) {
                let cause = error.source().map(ToString::to_string);
                warn!(url = %self.url, %error, cause, kids = self.keys.kids(), "keys not fetched: the old keys stay in use");
            }
            reported = failure;
            self.wait_next_fetch(fetched.is_ok()).await;
        }
    }

    /// Logs when tokens begin and cease to be refused because of the age of their keys. Returns whether they are
    /// refused now.
    fn report_key_age(&self, was_too_old: bool) -> bool {
        let Some(IssuerKeyFreshness { issuer, longest, metrics, .. }) = &self.age else { return false };
        let is_too_old = self.are_keys_too_old();
        metrics.set_unusable(issuer, is_too_old);
        let max_key_age = FormattedDuration(*longest);
        match (was_too_old, is_too_old) {
            (false, true) => error!(
                url = %self.url,
                issuer,
                %max_key_age,
                "no token of an issuer counts until its keys are fetched: they are older than max_key_age, or were never fetched"
            ),
            (true, false) => {
                info!(url = %self.url, issuer, "the keys of an issuer were fetched: its tokens count")
            }
            (true, true) | (false, false) => {}
        }
        is_too_old
    }

    /// Takes over the files for TLS if they have changed.
    async fn reload_client_tls(&self) {
        let Some(tls) = self.tls.clone() else { return };
        // The runtime reports a panic of the check, and the next fetch tries again.
        if let Ok(TlsReloadResult::Bad(bad)) = spawn_blocking(move || tls.reload_if_changed()).await {
            let error = error_chain(&bad);
            warn!(url = %self.url, error, "new TLS files for a key set cannot be used; the old ones stay");
        }
    }

    /// Waits until it is time for the next fetch.
    async fn wait_next_fetch(&self, all_is_well: bool) {
        sleep(self.pace.least).await;
        let interval = if all_is_well { self.pace.every } else { self.pace.every.min(RETRY) };
        let rest = interval.saturating_sub(self.pace.least);
        // The result does not matter: either the interval is over, or a token names an unknown key. A fetch is due in
        // both cases.
        drop(timeout(rest, self.keys.wait_for_unknown_key()).await);
    }

    async fn exchange(&self) -> Result<Bytes, FetchJwksError> {
        let host = self.url.host().expect("checked when it was made");
        let port = self.url.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let authority = format!("{host}:{port}");
        let stream = TcpStream::connect(&authority).await.map_err(FetchJwksError::Connect)?;
        let stream: Box<dyn ClientStream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let shaken = tls.connect(&authority, stream, &["http/1.1"]).await;
                Box::new(shaken.map_err(FetchJwksError::Tls)?.0)
            }
        };
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
