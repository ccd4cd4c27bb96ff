//! The names of the fields that only the gateway writes, in every spelling that some server takes for them.

use serde::Serialize;

use crate::header_name::{is_spelling_of, normalize, starts_with_spelling};

/// The names of the two token fields at one upstream. Lower case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EffectiveTokenFields))]
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

/// Header names that only the gateway may write: all names that begin with `fencing-`, and the names that the policy
/// gives to the token fields.
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
    pub fn contains(&self, name: &str) -> bool {
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
                assert!(ours.contains(&name), "{name}");
            }
            assert!(same_field("x-account", &format!("X{between}Account")), "{between}");
        }
        for name in ["fencing", "fencings-token", "xfence", "x-fences", "x0fence", "a-fencing-token"] {
            assert!(!ours.contains(name), "{name}");
        }
    }
}
