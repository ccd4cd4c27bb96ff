//! The names of the fields that only the gateway writes, in every spelling that some server takes for them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    header_name::{is_spelling_of, normalize, starts_with_spelling},
    key::JsonPointer,
};

/// The names of the two token fields at one upstream. Lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenHeaderNames {
    /// Default `fencing-token`.
    pub token: String,
    /// Default `fencing-number`.
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

/// The names of the fields in which an upstream learns what was verified of a client. Lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityHeaderNames {
    /// The field with the name in its certificate; `None` if the upstream gets none.
    pub client_name: Option<String>,
    /// The fields with claims of its token.
    pub claims: Vec<(String, JsonPointer)>,
}

impl IdentityHeaderNames {
    /// All of these names.
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

/// Header names that only the gateway may write: all names that begin with `fencing-`, and the names that the policy
/// gives to the fields of tokens and of clients.
#[derive(Debug, Clone, Default)]
pub struct ReservedHeaderNames {
    renamed: Vec<String>,
}

impl ReservedHeaderNames {
    /// `renamed`: names in any spelling.
    pub fn new(renamed: impl IntoIterator<Item = String>) -> Self {
        Self { renamed: renamed.into_iter().map(|name| normalize(&name)).collect() }
    }

    /// True for every spelling that some server takes for one of our fields, see [`crate::header_name::normalize`].
    pub fn is_reserved_header(&self, name: &str) -> bool {
        starts_with_spelling(name, "fencing-")
            || self.renamed.iter().any(|renamed| is_spelling_of(name, renamed))
    }
}

/// Fields that authenticate a client. Tokens against forged requests are not among these: they may change with each
/// request.
const CREDENTIALS: [&str; 7] = [
    "authorization",
    "cookie",
    "api-key",
    "x-api-key",
    "x-access-token",
    "x-auth-token",
    "x-amz-security-token",
];

/// True for a field that authenticates a client, in every spelling that some server takes for it.
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

    /// In names of fields all characters but letters and digits are the same.
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
