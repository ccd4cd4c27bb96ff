//! Verifies the bearer tokens of clients, by the issuers of one plan, and keeps the keys of the issuers current.

use std::{path::PathBuf, sync::Arc};

use fencegate_http_client::upstream::tls::UpstreamTlsConnector;
use fencegate_policies::plan::{ClientTls, JwksSource, JwtIssuer, JwtSettings};
use fencegate_process::client_tls::{SYSTEM_ROOTS, TlsClientConfigError};
use fencegate_ticket::{
    AccessToken, AccessTokenError, AccessTokenRules, AccessTokenVerifier, KeyFileError, TrustedIssuer,
    VerifyingKeys, unix_seconds,
};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::jwks_fetcher::{FetchJwksError, JwksFetcher, JwksRefreshPolicy, JwksUrlError};

/// The bearer tokens of clients. All workers share it.
#[derive(Debug)]
pub struct AccessTokenAuthenticator {
    settings: JwtSettings,
    verifier: AccessTokenVerifier,
    /// What fetches the keys of each issuer; `None` for one whose keys are in a file, or where nothing is fetched.
    fetchers: Vec<Option<JwksFetcher>>,
}

/// Why tokens cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum OpenIssuerError {
    #[error("FG0512: the keys of the issuer {issuer} cannot be used")]
    File { issuer: String, source: Box<KeyFileError> },
    #[error("FG0512: {} of the issuer {issuer} cannot be used", .path.display())]
    Tls { issuer: String, path: PathBuf, source: Box<TlsClientConfigError> },
    #[error("the keys of the issuer {issuer} cannot be fetched")]
    Url { issuer: String, source: JwksUrlError },
}

/// Why there are no keys of an issuer.
#[derive(Debug, thiserror::Error)]
pub enum IssuerKeysError {
    #[error(transparent)]
    Open(#[from] OpenIssuerError),
    #[error(transparent)]
    Fetch(#[from] FetchJwksError),
}

/// Why a request with a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticateError {
    #[error(transparent)]
    Token(#[from] AccessTokenError),
    /// The token may be good: it names a key that is not known, and the keys cannot be fetched now.
    #[error("the keys of its issuer cannot be fetched now")]
    KeysUnavailable,
}

impl AccessTokenAuthenticator {
    /// `before`: that of the plan in force, whose keys stay until they are fetched again. `None` where the plan verifies no
    /// tokens.
    ///
    /// # Errors
    /// A file of the policy cannot be used.
    pub fn open(settings: &JwtSettings, before: Option<&Self>) -> Result<Option<Arc<Self>>, OpenIssuerError> {
        if settings.issuers.is_empty() {
            return Ok(None);
        }
        let opened = settings.issuers.iter().map(|issuer| {
            let former = before.and_then(|before| before.keys_of(&issuer.keys));
            let keys = Arc::new(open_keys(issuer, former)?);
            let fetcher = open_fetcher(issuer, &keys)?;
            Ok((TrustedIssuer::new(issuer, keys), fetcher))
        });
        let (issuers, fetchers) = opened.collect::<Result<Vec<_>, OpenIssuerError>>()?.into_iter().unzip();
        let verifier = AccessTokenVerifier::new(issuers, settings.claims.clone());
        Ok(Some(Arc::new(Self { settings: settings.clone(), verifier, fetchers })))
    }

    /// As [`Self::open`], but nothing is fetched: of an issuer with a URL no key is known.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_unfetched(settings: &JwtSettings) -> Result<Option<Arc<Self>>, OpenIssuerError> {
        let opened = Self::open(settings, None)?.and_then(Arc::into_inner);
        Ok(opened.map(|opened| {
            let fetchers = opened.fetchers.iter().map(|_| None).collect();
            Arc::new(Self { fetchers, ..opened })
        }))
    }

    /// The keys from this source.
    fn keys_of(&self, source: &JwksSource) -> Option<&VerifyingKeys> {
        let same = |other: &JwksSource| match (other, source) {
            // With other authorities the URL may lead to another server.
            (
                JwksSource::Url { url, ca_file, .. },
                JwksSource::Url { url: other, ca_file: other_authorities, .. },
            ) => url == other && ca_file == other_authorities,
            // A file is read anyway.
            _ => false,
        };
        let at = self.settings.issuers.iter().position(|issuer| same(&issuer.keys))?;
        Some(self.verifier.issuers()[at].keys())
    }

    /// Keeps the keys current for as long as it is polled. One task of the process runs this.
    pub async fn run_refresh_loops(&self) {
        join_all(self.fetchers.iter().flatten().map(JwksFetcher::run_refresh_loop)).await;
    }

    /// Checks a token now. Waits only for a token of a key that is not known, until the keys were fetched again, and for some
    /// seconds at most.
    ///
    /// # Errors
    /// [`AuthenticateError`].
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn authenticate(&self, token: &[u8]) -> Result<Arc<AccessToken>, AuthenticateError> {
        let issuer = match self.verifier.verify(token, unix_seconds()) {
            Err(AccessTokenError::UnknownKey { issuer }) => issuer,
            verified => return Ok(verified?),
        };
        let Some(fetcher) = &self.fetchers[issuer] else {
            return Err(match &self.settings.issuers[issuer].keys {
                // The file was looked at for this token.
                JwksSource::File(_) => AccessTokenError::UnknownKey { issuer }.into(),
                JwksSource::Url { .. } => AuthenticateError::KeysUnavailable,
            });
        };
        match timeout(fetcher.longest_wait(), fetcher.keys().wait_refreshed()).await {
            Ok(Ok(())) => Ok(self.verifier.verify(token, unix_seconds())?),
            // A fetch that has failed may have been the last of several, of which an earlier one had the key.
            Ok(Err(_)) | Err(_) => match self.verifier.verify(token, unix_seconds()) {
                Err(AccessTokenError::UnknownKey { .. }) => Err(AuthenticateError::KeysUnavailable),
                verified => Ok(verified?),
            },
        }
    }
}

/// Reads or fetches the keys of an issuer, once. Returns their names.
///
/// # Errors
/// [`IssuerKeysError`].
pub async fn fetch_issuer_keys(issuer: &JwtIssuer) -> Result<String, IssuerKeysError> {
    let keys = Arc::new(open_keys(issuer, None)?);
    if let Some(fetcher) = open_fetcher(issuer, &keys)? {
        fetcher.fetch().await?;
    }
    Ok(keys.kids())
}

fn open_keys(issuer: &JwtIssuer, former: Option<&VerifyingKeys>) -> Result<VerifyingKeys, OpenIssuerError> {
    let rules = AccessTokenRules::from(issuer);
    Ok(match &issuer.keys {
        JwksSource::File(path) => VerifyingKeys::from_issuer_file(path, rules).map_err(|source| {
            OpenIssuerError::File { issuer: issuer.issuer.clone(), source: source.into() }
        })?,
        JwksSource::Url { .. } => {
            let keys = VerifyingKeys::for_issuer(rules);
            match former {
                Some(former) => keys.with_keys_of(former),
                None => keys,
            }
        }
    })
}

fn open_fetcher(
    issuer: &JwtIssuer,
    keys: &Arc<VerifyingKeys>,
) -> Result<Option<JwksFetcher>, OpenIssuerError> {
    let JwksSource::Url { url, ca_file, cache_duration } = &issuer.keys else { return Ok(None) };
    let name = || issuer.issuer.clone();
    let tls = url.starts_with("https://").then(|| {
        let tls = ClientTls { ca_file: ca_file.clone(), ..ClientTls::default() };
        let path = || ca_file.clone().unwrap_or_else(|| SYSTEM_ROOTS.into());
        UpstreamTlsConnector::open(&tls).map(Arc::new).map_err(|source| OpenIssuerError::Tls {
            issuer: name(),
            path: path(),
            source: source.into(),
        })
    });
    let pace = JwksRefreshPolicy::for_access_tokens(*cache_duration);
    let fetcher = JwksFetcher::new(url, pace, tls.transpose()?, keys.clone());
    fetcher.map(Some).map_err(|source| OpenIssuerError::Url { issuer: name(), source })
}
