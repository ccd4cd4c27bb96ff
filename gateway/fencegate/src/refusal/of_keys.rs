//! Why a request has no key, as reasons of ours.

use fencegate_policies::key::BadKey;

use super::{Reason, Refusal};

impl Refusal {
    /// `missing`: the reason where a value is not there.
    pub fn of_key(bad: &BadKey, missing: Reason) -> Self {
        let reason = match bad {
            BadKey::Missing { .. } => missing,
            BadKey::Invalid { .. } | BadKey::TooLong => Reason::KeyInvalid,
        };
        Self::new(reason, bad.to_string())
    }
}
