//! Authenticates the client that requests a lease, and decides which keys it may take.

use std::sync::Arc;

use fencegate_config::bearer::{BearerTokenFileError, ExpectedBearerToken};
use fencegate_http::connection_info::{ClientCertIdentity, ConnectionInfo};
use fencegate_policies::{
    key::ResourceKey,
    plan::{self, LeasePrincipal, PrincipalCredential},
};
use hyper::{HeaderMap, header::AUTHORIZATION};

/// The principals of one plan, and their credentials. Cheap to clone.
#[derive(Clone)]
pub struct LeaseAuth(Arc<[(LeasePrincipal, LeasePrincipalCredential)]>);

/// The credential of a principal.
enum LeasePrincipalCredential {
    Bearer(ExpectedBearerToken),
    Certificate(Arc<str>),
}

impl LeaseAuth {
    /// The principals of `leases`; none for a plan without leases.
    ///
    /// # Errors
    /// Returns an error if a file cannot be used.
    pub fn load(leases: Option<&plan::LeaseGrantSettings>) -> Result<Self, BearerTokenFileError> {
        let principals = leases.map(|leases| &*leases.principals).unwrap_or_default();
        let known = |principal: &LeasePrincipal| {
            let credential = match &principal.shows {
                PrincipalCredential::Bearer(file) => {
                    LeasePrincipalCredential::Bearer(ExpectedBearerToken::open(file)?)
                }
                PrincipalCredential::Certificate(name) => LeasePrincipalCredential::Certificate(name.clone()),
            };
            Ok((principal.clone(), credential))
        };
        principals.iter().map(known).collect::<Result<Vec<_>, _>>().map(|all| Self(all.into()))
    }

    /// Reloads the files when they change, as long as it is polled.
    pub async fn watch_files(&self) {
        let bearers = self.0.iter().filter_map(|(_, credential)| match credential {
            LeasePrincipalCredential::Bearer(bearer) => Some(bearer.clone().watch_token_file()),
            LeasePrincipalCredential::Certificate(_) => None,
        });
        futures_util::future::join_all(bearers).await;
    }

    /// The principal whose credential a request presents, with these fields over a connection of this peer. Every
    /// token is compared with every known one, so that the timing reveals nothing.
    pub fn principal(&self, headers: &HeaderMap, peer: &ConnectionInfo) -> Option<LeasePrincipal> {
        let token = bearer(headers);
        let certificate = peer.certificate();
        let shows = |credential: &LeasePrincipalCredential| match credential {
            LeasePrincipalCredential::Bearer(known) => token.is_some_and(|token| known.matches(token)),
            LeasePrincipalCredential::Certificate(name) => {
                certificate.is_some_and(|client| is_named(client, name))
            }
        };
        let mut found = None;
        for (principal, credential) in self.0.iter() {
            if shows(credential) && found.is_none() {
                found = Some(principal);
            }
        }
        found.cloned()
    }
}

/// True if a policy means this client by the name. A URI counts only for a name with a colon, and an e-mail address
/// only for a name with an `@`: a client that may choose the URI of its certificate must not choose the name of a
/// machine with it.
fn is_named(client: &ClientCertIdentity, name: &str) -> bool {
    let of_kind = |written: &String| match written.split_once(':') {
        Some(("URI", uri)) => name.contains(':') && uri.eq_ignore_ascii_case(name),
        Some(("email", address)) => name.contains('@') && address.eq_ignore_ascii_case(name),
        Some((_, host)) => host.eq_ignore_ascii_case(name),
        None => false,
    };
    client.common_names.iter().any(|common| common.eq_ignore_ascii_case(name))
        || client.names.iter().any(of_kind)
}

/// The token of `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let line = lines.next().filter(|_| lines.next().is_none())?.to_str().ok()?;
    let (scheme, shown) = line.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| shown.trim().as_bytes())
}

impl LeaseAuth {
    /// True if there still is a principal of this name, and it may take these keys.
    pub(crate) fn still_grants(&self, principal: &str, keys: &[ResourceKey]) -> bool {
        self.0.iter().any(|(known, _)| *known.name == *principal && may_take(known, keys))
    }
}

/// True if the principal may take all of these keys.
pub fn may_take(principal: &LeasePrincipal, keys: &[ResourceKey]) -> bool {
    keys.iter().all(|key| principal.keys.iter().any(|pattern| pattern.matches(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A URI matches only a policy name with a colon, an e-mail address only one with `@`; the common name always
    /// counts.
    #[test]
    fn uri_and_email_match_no_hostname() {
        let client = |common: &str, names: &[&str]| ClientCertIdentity {
            subject: String::new(),
            common_names: vec![common.to_owned()],
            names: names.iter().map(|&name| name.to_owned()).collect(),
            fingerprint: String::new(),
        };
        for (names, asked, known) in [
            (&["DNS:batch.internal"][..], "Batch.Internal", true),
            (&["URI:batch"], "batch", false),
            (&["email:batch"], "batch", false),
            (&["URI:spiffe://example/batch"], "spiffe://example/batch", true),
            (&["email:batch@example"], "batch@example", true),
            (&["URI:batch@example"], "batch@example", false),
            (&[], "guest", true),
            (&[], "batch", false),
        ] {
            assert_eq!(is_named(&client("guest", names), asked), known, "{names:?} {asked}");
        }
    }
}
