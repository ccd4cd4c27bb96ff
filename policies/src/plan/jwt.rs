//! The issuers whose bearer tokens the gateway verifies (RFC 6750, RFC 7519).

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

use super::shown::format_duration;
use crate::{key::JsonPointer, words::words};

/// The bearer tokens that are verified, and what is read of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JwtSettings {
    /// Each with a name of its own. Empty where no tokens are verified.
    pub issuers: Vec<JwtIssuer>,
    /// The claims that the plan reads, each once.
    pub claims: Vec<JsonPointer>,
}

/// An issuer of tokens, and which of its tokens count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtIssuer {
    /// The claim `iss`, compared byte by byte.
    pub issuer: String,
    /// A token counts if it is for one of these. At least one.
    pub audiences: Vec<String>,
    /// At least one.
    pub algorithms: Vec<JwtAlgorithm>,
    pub keys: JwksSource,
    /// By how much the clocks of issuer and gateway may differ. Default 60 s.
    pub leeway: Duration,
    /// The service gets the token as it came. Default true.
    pub forward: bool,
}

/// Where the public keys of an issuer are: a JSON Web Key Set (RFC 7517, 5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksSource {
    /// A file, which is read again when it changes.
    File(PathBuf),
    Url {
        /// `http://` or `https://`.
        url: String,
        /// The CAs of its server. Default: those that the system trusts.
        ca_file: Option<PathBuf>,
        /// How long a key set is used before it is fetched again. Default 5 min.
        cache_duration: Duration,
        /// How long ago the key set may have been fetched for a token to count, where it cannot be fetched again. Default:
        /// [`JwtIssuer::max_key_age`].
        max_age: Duration,
    },
}

impl JwtIssuer {
    /// The default of `leeway`.
    pub(crate) const LEEWAY: Duration = Duration::from_secs(60);
    /// The default of `cache_duration`.
    pub(crate) const CACHE_DURATION: Duration = Duration::from_secs(300);

    /// The default of `max_key_age`: an hour, or twelve intervals where that is longer. So much of a failure is survived that
    /// somebody can mend it, and a key that was revoked meanwhile does not count for ever.
    pub(crate) fn max_key_age(cache_duration: Duration) -> Duration {
        (cache_duration * 12).max(Duration::from_secs(3600))
    }
}

/// An algorithm of signatures by public keys (RFC 7518, 3.1; RFC 8037). None with a shared secret: whoever verifies such a
/// token could make one.
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
