//! Verifies the bearer tokens of clients with the keys of one plan's issuers, and keeps these keys current.

use std::{path::PathBuf, sync::Arc, time::Duration};

use fencegate_http_client::upstream::tls::UpstreamTlsConnector;
use fencegate_metrics::IssuerKeyMetrics;
use fencegate_policies::plan::{ClientTls, JwksSource, JwtIssuer, JwtSettings};
use fencegate_process::{
    client_tls::{SYSTEM_ROOTS, TlsClientConfigError},
    clock::{MachineClock, SharedClock},
};
use fencegate_ticket::{
    AccessToken, AccessTokenRules, AccessTokenVerificationError, AccessTokenVerifier, KeyFileError,
    TrustedIssuer, VerifyingKeys, unix_seconds,
};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::jwks_fetcher::{FetchJwksError, JwksFetcher, JwksRefreshPolicy, JwksUrlError};

/// Verifies the bearer tokens of clients. All workers share it.
#[derive(Debug)]
pub struct AccessTokenAuthenticator {
    settings: JwtSettings,
    verifier: AccessTokenVerifier,
    /// The fetcher of each issuer's keys; `None` for an issuer whose keys are in a file, or if nothing is fetched.
    fetchers: Vec<Option<JwksFetcher>>,
}

/// The reason for which tokens cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum LoadJwtIssuerError {
    #[error("FG0512: the keys of the issuer {issuer} cannot be used")]
    File { issuer: String, source: Box<KeyFileError> },
    #[error("FG0512: {} of the issuer {issuer} cannot be used", .path.display())]
    Tls { issuer: String, path: PathBuf, source: Box<TlsClientConfigError> },
    #[error("the keys of the issuer {issuer} cannot be fetched")]
    Url { issuer: String, source: JwksUrlError },
}

/// The reason for which the keys of an issuer cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum IssuerKeysError {
    #[error(transparent)]
    Open(#[from] LoadJwtIssuerError),
    #[error(transparent)]
    Fetch(#[from] FetchJwksError),
}

/// The reason for which a request with a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticateError {
    #[error(transparent)]
    Token(#[from] AccessTokenVerificationError),
    /// The token may be valid: it names a key that is not known, and the keys cannot be fetched now.
    #[error("the keys of the token's issuer cannot be fetched now")]
    KeysUnavailable,
    /// The token names a key that is not known, and so many requests wait for the keys that this one must not wait.
    #[error("too many requests wait for the keys of the token's issuer")]
    TooManyWaiting,
    /// The token is signed by a known key, but the issuer may have revoked that key since its keys were fetched.
    #[error("the keys of the token's issuer could not be fetched for longer than `max_key_age`")]
    KeysTooOld,
}

/// Tells whether a request waits for keys that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JwksFetchWait {
    /// The request waits until the keys were fetched again, for some seconds at most.
    UntilFetched,
    Never,
}

/// The reason for which a token cannot be judged by the present keys. `issuer` is the index of its issuer.
#[derive(Debug, Clone, Copy)]
enum UndecidedTokenReason {
    UnknownKey { issuer: usize },
    KeysTooOld { issuer: usize },
}

impl AccessTokenAuthenticator {
    /// Opens the authenticator of a plan; `None` if the plan verifies no tokens. `before` is the authenticator of the
    /// plan in force, whose keys are used until they are fetched again.
    ///
    /// # Errors
    /// Returns an error if a file of the policy cannot be used.
    pub fn open(
        settings: &JwtSettings,
        clock: &SharedClock,
        metrics: &IssuerKeyMetrics,
        before: Option<&Self>,
    ) -> Result<Option<Arc<Self>>, LoadJwtIssuerError> {
        let opened = settings.issuers.iter().map(|issuer| {
            let former = before.and_then(|before| before.fetcher_for_source(&issuer.keys));
            let keys = Arc::new(open_issuer_keys(issuer, former.map(|former| &**former.keys()))?);
            let fetcher = open_fetcher(issuer, &keys)?.map(|(fetcher, max_age)| {
                let age = (&*issuer.issuer, max_age);
                fetcher.with_max_age(age, clock.clone(), metrics.clone(), former)
            });
            Ok((TrustedIssuer::new(issuer, keys), fetcher))
        });
        let (issuers, fetchers): (Vec<_>, Vec<Option<JwksFetcher>>) =
            opened.collect::<Result<Vec<_>, LoadJwtIssuerError>>()?.into_iter().unzip();
        let fetched = settings.issuers.iter().zip(&fetchers).filter(|(_, fetcher)| fetcher.is_some());
        let fetched: Vec<&str> = fetched.map(|(issuer, _)| &*issuer.issuer).collect();
        let former = before.iter().flat_map(|before| &before.settings.issuers);
        for gone in former.filter(|issuer| !fetched.contains(&&*issuer.issuer)) {
            metrics.remove_unusable(&gone.issuer);
        }
        if settings.issuers.is_empty() {
            return Ok(None);
        }
        let verifier = AccessTokenVerifier::new(issuers, settings.claims.clone());
        Ok(Some(Arc::new(Self { settings: settings.clone(), verifier, fetchers })))
    }

    /// Opens an authenticator that fetches nothing, so that no keys of an issuer with a URL are known.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Self::open`].
    pub fn open_unfetched(settings: &JwtSettings) -> Result<Option<Arc<Self>>, LoadJwtIssuerError> {
        let clock: SharedClock = Arc::new(MachineClock);
        let opened = Self::open(settings, &clock, &IssuerKeyMetrics::unexposed(), None)?;
        let opened = opened.and_then(Arc::into_inner);
        Ok(opened.map(|opened| {
            let fetchers = opened.fetchers.iter().map(|_| None).collect();
            Arc::new(Self { fetchers, ..opened })
        }))
    }

    /// Returns the fetcher of the keys from this source.
    fn fetcher_for_source(&self, source: &JwksSource) -> Option<&JwksFetcher> {
        let same = |other: &JwksSource| match (other, source) {
            // If another `ca_file` is trusted, another server may answer at the same URL, so its keys are not taken
            // over.
            (
                JwksSource::Url { url, ca_file, .. },
                JwksSource::Url { url: other, ca_file: other_authorities, .. },
            ) => url == other && ca_file == other_authorities,
            // The keys in a file are read again for each plan.
            _ => false,
        };
        let at = self.settings.issuers.iter().position(|issuer| same(&issuer.keys))?;
        self.fetchers[at].as_ref()
    }

    /// Keeps the keys current for as long as it is polled. One task of the process runs this.
    pub async fn run_refresh_loops(&self) {
        join_all(self.fetchers.iter().flatten().map(JwksFetcher::run_refresh_loop)).await;
    }

    /// Checks a token. If the token names an unknown key, or if its keys are too old, waits until the keys were fetched
    /// again, for some seconds at most.
    ///
    /// # Errors
    /// Returns an [`AuthenticateError`] if the token is not valid or cannot be judged.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    pub async fn authenticate(
        &self,
        token: &[u8],
        wait: JwksFetchWait,
    ) -> Result<Arc<AccessToken>, AuthenticateError> {
        let unjudged = match self.verify_with_loaded_keys(token)? {
            Ok(verified) => return Ok(verified),
            Err(unjudged) => unjudged,
        };
        let (issuer, without_wait) = match unjudged {
            UndecidedTokenReason::UnknownKey { issuer } => (issuer, AuthenticateError::TooManyWaiting),
            UndecidedTokenReason::KeysTooOld { issuer } => (issuer, AuthenticateError::KeysTooOld),
        };
        let Some(fetcher) = &self.fetchers[issuer] else {
            return Err(match &self.settings.issuers[issuer].keys {
                // The verifier has already looked into the file for this token.
                JwksSource::File(_) => AccessTokenVerificationError::UnknownKey { issuer }.into(),
                JwksSource::Url { .. } => AuthenticateError::KeysUnavailable,
            });
        };
        if wait == JwksFetchWait::Never {
            return Err(match unjudged {
                UndecidedTokenReason::UnknownKey { .. } => AuthenticateError::KeysUnavailable,
                UndecidedTokenReason::KeysTooOld { .. } => AuthenticateError::KeysTooOld,
            });
        }
        let Some(_permit) = fetcher.try_begin_wait() else { return Err(without_wait) };
        let waited = timeout(fetcher.max_refresh_wait(), fetcher.keys().wait_refreshed()).await;
        match self.verify_with_loaded_keys(token)? {
            Ok(verified) => Ok(verified),
            Err(UndecidedTokenReason::KeysTooOld { .. }) => Err(AuthenticateError::KeysTooOld),
            Err(UndecidedTokenReason::UnknownKey { issuer }) if matches!(waited, Ok(Ok(()))) => {
                Err(AccessTokenVerificationError::UnknownKey { issuer }.into())
            }
            // The key may still exist: the last fetch has failed, and an earlier one during the wait may have had the
            // key.
            Err(UndecidedTokenReason::UnknownKey { .. }) => Err(AuthenticateError::KeysUnavailable),
        }
    }

    /// Checks a token by the keys that are known now.
    fn verify_with_loaded_keys(
        &self,
        token: &[u8],
    ) -> Result<Result<Arc<AccessToken>, UndecidedTokenReason>, AccessTokenVerificationError> {
        match self.verifier.verify(token, unix_seconds()) {
            Ok(verified) => {
                let issuer = verified.issuer;
                let is_too_old = self.fetchers[issuer].as_ref().is_some_and(JwksFetcher::are_keys_too_old);
                Ok(if is_too_old { Err(UndecidedTokenReason::KeysTooOld { issuer }) } else { Ok(verified) })
            }
            Err(AccessTokenVerificationError::UnknownKey { issuer }) => {
                Ok(Err(UndecidedTokenReason::UnknownKey { issuer }))
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads or fetches the keys of an issuer once. Returns their names.
///
/// # Errors
/// Returns an [`IssuerKeysError`] if there are no keys.
pub async fn fetch_issuer_keys(issuer: &JwtIssuer) -> Result<String, IssuerKeysError> {
    let keys = Arc::new(open_issuer_keys(issuer, None)?);
    if let Some((fetcher, _)) = open_fetcher(issuer, &keys)? {
        fetcher.fetch().await?;
    }
    Ok(keys.kids())
}

fn open_issuer_keys(
    issuer: &JwtIssuer,
    former: Option<&VerifyingKeys>,
) -> Result<VerifyingKeys, LoadJwtIssuerError> {
    let rules = AccessTokenRules::from(issuer);
    Ok(match &issuer.keys {
        JwksSource::File(path) => VerifyingKeys::from_issuer_file(path, rules).map_err(|source| {
            LoadJwtIssuerError::File { issuer: issuer.issuer.clone(), source: source.into() }
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

/// Makes the fetcher of an issuer with a URL, and returns it with the largest age of the keys.
fn open_fetcher(
    issuer: &JwtIssuer,
    keys: &Arc<VerifyingKeys>,
) -> Result<Option<(JwksFetcher, Duration)>, LoadJwtIssuerError> {
    let JwksSource::Url { url, ca_file, cache_duration, max_age } = &issuer.keys else { return Ok(None) };
    let name = || issuer.issuer.clone();
    let tls = url.starts_with("https://").then(|| {
        let tls = ClientTls { ca_file: ca_file.clone(), ..ClientTls::default() };
        let path = || ca_file.clone().unwrap_or_else(|| SYSTEM_ROOTS.into());
        UpstreamTlsConnector::open(&tls).map(Arc::new).map_err(|source| LoadJwtIssuerError::Tls {
            issuer: name(),
            path: path(),
            source: source.into(),
        })
    });
    let pace = JwksRefreshPolicy::for_access_tokens(*cache_duration);
    let fetcher = JwksFetcher::new(url, pace, tls.transpose()?, keys.clone());
    fetcher
        .map(|fetcher| Some((fetcher, *max_age)))
        .map_err(|source| LoadJwtIssuerError::Url { issuer: name(), source })
}
