//! The issuers whose bearer tokens the gateway verifies (RFC 6750, RFC 7519).

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

use super::shown::format_duration;
use crate::{key::JsonPointer, words::words};

/// The bearer tokens that are verified, and the claims that are read from them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JwtSettings {
    /// The issuers, each with a name of its own. Empty if no tokens are verified.
    pub issuers: Vec<JwtIssuer>,
    /// The claims that the plan reads, each once.
    pub claims: Vec<JsonPointer>,
}

/// An issuer of tokens, and the tokens that are accepted from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtIssuer {
    /// The claim `iss`, compared byte by byte.
    pub issuer: String,
    /// A token must be for one of these audiences. At least one.
    pub audiences: Vec<String>,
    /// The accepted algorithms; at least one.
    pub algorithms: Vec<JwtAlgorithm>,
    pub keys: JwksSource,
    /// The most by which the clocks of issuer and gateway may differ. Default 60 s.
    pub leeway: Duration,
    /// True if the service gets the token as the client has sent it. Default true.
    pub forward: bool,
}

/// The place of an issuer's public keys: a JSON Web Key Set (RFC 7517, section 5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksSource {
    /// A file, which is read again when it changes.
    File(PathBuf),
    Url {
        /// The address, with `http://` or `https://`.
        url: String,
        /// The CAs for the certificate of its server. Default: those that the system trusts.
        ca_file: Option<PathBuf>,
        /// The time for which a key set is used before it is fetched again. Default 5 min.
        cache_duration: Duration,
        /// The greatest age of a key set by which tokens are verified, if it cannot be fetched again. Default:
        /// [`JwtIssuer::max_key_age`].
        max_age: Duration,
    },
}

impl JwtIssuer {
    /// The default of `leeway`.
    pub(crate) const LEEWAY: Duration = Duration::from_secs(60);
    /// The default of `cache_duration`.
    pub(crate) const CACHE_DURATION: Duration = Duration::from_secs(300);

    /// The default of `max_age`: an hour, or twelve times the cache duration if that is longer. So there is time to
    /// repair a failed fetch, and a key that was revoked meanwhile does not stay valid forever.
    pub(crate) fn max_key_age(cache_duration: Duration) -> Duration {
        (cache_duration * 12).max(Duration::from_secs(3600))
    }
}

/// An algorithm of signatures with public keys (RFC 7518, section 3.1; RFC 8037). None with a shared secret is
/// supported, because every party that can verify such a token can also make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JwtAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

words! { JwtAlgorithm {
    Rs256 = "RS256",
    Rs384 = "RS384",
    Rs512 = "RS512",
    Ps256 = "PS256",
    Ps384 = "PS384",
    Ps512 = "PS512",
    Es256 = "ES256",
    Es384 = "ES384",
    EdDsa = "EdDSA",
} }

/// An issuer as operators see it.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveIssuer {
    pub issuer: String,
    pub audiences: Vec<String>,
    pub algorithms: Vec<&'static str>,
    /// The address of the key set; absent if it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// How long a fetched key set is used; absent if it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_duration: Option<String>,
    /// How old a fetched key set may get where it cannot be fetched again; absent if it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_key_age: Option<String>,
    pub leeway: String,
    /// Whether the service gets the token.
    pub forward: bool,
}

impl EffectiveIssuer {
    pub fn new(issuer: &JwtIssuer) -> Self {
        let JwtIssuer { issuer, audiences, algorithms, keys, leeway, forward } = issuer;
        let (jwks_url, cache_duration, max_key_age) = match keys {
            JwksSource::File(_) => (None, None, None),
            JwksSource::Url { url, ca_file: _, cache_duration, max_age } => {
                (Some(url.clone()), Some(format_duration(*cache_duration)), Some(format_duration(*max_age)))
            }
        };
        Self {
            issuer: issuer.clone(),
            audiences: audiences.clone(),
            algorithms: algorithms.iter().map(|algorithm| algorithm.as_str()).collect(),
            jwks_url,
            cache_duration,
            max_key_age,
            leeway: format_duration(*leeway),
            forward: *forward,
        }
    }
}
