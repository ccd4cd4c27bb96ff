//! The names of the header fields that only the gateway writes, in every spelling that some server takes for them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    header_name::{is_spelling_of, normalize, starts_with_spelling},
    key::JsonPointer,
};

/// The names of the two token fields at one upstream, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenHeaderNames {
    /// The field with the token. Default `fencing-token`.
    pub token: String,
    /// The field with the number. Default `fencing-number`.
    pub number: String,
}

impl TokenHeaderNames {
    /// The default of [`TokenHeaderNames::token`].
    pub const TOKEN: &str = "fencing-token";
    /// The default of [`TokenHeaderNames::number`].
    pub const NUMBER: &str = "fencing-number";
}

impl Default for TokenHeaderNames {
    fn default() -> Self {
        Self { token: Self::TOKEN.into(), number: Self::NUMBER.into() }
    }
}

/// The names of the header fields with verified identities of the client, in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityHeaderNames {
    /// The field with the name in the client's certificate; `None` if the upstream gets none.
    pub client_name: Option<String>,
    /// The fields with claims of the client's token.
    pub claims: Vec<(String, JsonPointer)>,
}

impl IdentityHeaderNames {
    /// The names of all these fields.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let claims = self.claims.iter().map(|(name, _)| name.as_str());
        self.client_name.as_deref().into_iter().chain(claims)
    }
}

/// The fields that only the gateway writes to an upstream, as operators see them.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EffectiveFields))]
pub struct EffectiveHeaderNames {
    /// The field with the whole token.
    pub token: String,
    /// The field with its number.
    pub number: String,
    /// The field with the name in the certificate of the client; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// The fields with claims of the token of the client, and these claims.
    pub claims: BTreeMap<String, String>,
}

impl EffectiveHeaderNames {
    pub(super) fn new(fields: &TokenHeaderNames, identity: &IdentityHeaderNames) -> Self {
        let TokenHeaderNames { token, number } = fields.clone();
        let IdentityHeaderNames { client_name, claims } = identity;
        let claims = claims.iter().map(|(name, claim)| (name.clone(), claim.to_string()));
        Self { token, number, client_name: client_name.clone(), claims: claims.collect() }
    }
}

/// The header fields that only the gateway may write: all names that begin with `fencing-`, and the names that the
/// policy gives to the fields for tokens and client identities.
#[derive(Debug, Clone, Default)]
pub struct ReservedHeaderNames {
    renamed: Vec<String>,
}

impl ReservedHeaderNames {
    /// `renamed`: the names that the policy gives, in any spelling.
    pub fn new(renamed: impl IntoIterator<Item = String>) -> Self {
        Self { renamed: renamed.into_iter().map(|name| normalize(&name)).collect() }
    }

    /// Whether some server takes `name` for one of these fields, see [`crate::header_name::normalize`].
    pub fn is_reserved_header(&self, name: &str) -> bool {
        starts_with_spelling(name, "fencing-")
            || self.renamed.iter().any(|renamed| is_spelling_of(name, renamed))
    }
}

/// The header fields that authenticate a client. Tokens against forged requests are left out, because they may
/// change with each request.
const CREDENTIALS: [&str; 7] = [
    "authorization",
    "cookie",
    "api-key",
    "x-api-key",
    "x-access-token",
    "x-auth-token",
    "x-amz-security-token",
];

/// Whether some server takes `name` for a field that authenticates a client.
pub fn is_credential(name: &str) -> bool {
    CREDENTIALS.into_iter().any(|known| is_spelling_of(name, known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header_name::same_field;

    /// Fields with credentials are recognised in every spelling.
    #[test]
    fn credentials_match_in_any_spelling() {
        assert!(["authorization", "Cookie", "X_Api.Key"].into_iter().all(is_credential));
        assert!(!["cookies", "x-csrf-token", "authorization-2"].into_iter().any(is_credential));
    }

    /// Names of header fields are equal if they differ only in characters other than letters and digits.
    #[test]
    fn punctuation_does_not_distinguish_fields() {
        let ours = ReservedHeaderNames::new(["X-Fence".to_owned()]);
        for between in "-_.~!+'*|^`$%&#".chars() {
            for name in ["Fencing?Token", "fencing?", "FENCING?key?2", "x?fence"] {
                let name = name.replace('?', &between.to_string());
                assert!(ours.is_reserved_header(&name), "{name}");
            }
            assert!(same_field("x-account", &format!("X{between}Account")), "{between}");
        }
        for name in ["fencing", "fencings-token", "xfence", "x-fences", "x0fence", "a-fencing-token"] {
            assert!(!ours.is_reserved_header(name), "{name}");
        }
    }
}
