//! What the listener verifies of its clients, for the templates and rules that read it.

use std::fmt::Display;

use crate::{
    client_name::CertificateNameKind,
    diagnostics::{Diagnostic, DiagnosticCode},
    key::JsonPointer,
    plan::{AccessRule, ClientCertificateMode, ListenerSettings},
};

/// The claim that names the issuer of a token.
const ISSUER: &str = "/iss";

/// What is verified of a client before its request has a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct VerifiedIdentities {
    /// `None` where the listener could not be read: then nothing is reported about certificates.
    certificates: Option<ClientCertNameMode>,
    /// How many issuers of tokens the file has.
    issuers: usize,
    /// The rules of the route say of which issuers a claim counts.
    are_issuers_named: bool,
}

/// The names of clients by their certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientCertNameMode {
    /// Clients are asked for no certificate.
    NotAsked,
    /// Clients show certificates, and no name in these counts.
    Unnamed,
    Named(CertificateNameKind),
}

impl VerifiedIdentities {
    pub(super) fn new(listener: Option<&ListenerSettings>, issuers: usize) -> Self {
        let names = |listener: &ListenerSettings| match &listener.tls {
            Some(tls) if tls.client_auth != ClientCertificateMode::Off => {
                tls.client_name.map_or(ClientCertNameMode::Unnamed, ClientCertNameMode::Named)
            }
            _ => ClientCertNameMode::NotAsked,
        };
        Self { certificates: listener.map(names), issuers, are_issuers_named: false }
    }

    /// For the templates of a route with these rules. If each names the issuer, by its name or by `*`, its author knows that
    /// there are several.
    pub(super) fn under_rules(self, rules: &[AccessRule]) -> Self {
        let names_issuer =
            |rule: &AccessRule| rule.claims.iter().any(|(claim, _)| claim.to_string() == ISSUER);
        Self { are_issuers_named: !rules.is_empty() && rules.iter().all(names_issuer), ..self }
    }

    /// Which name in a certificate is that of its client.
    pub(super) fn client_name(self) -> Option<CertificateNameKind> {
        match self.certificates {
            Some(ClientCertNameMode::Named(kind)) => Some(kind),
            Some(ClientCertNameMode::NotAsked | ClientCertNameMode::Unnamed) | None => None,
        }
    }

    /// A variable that only what is verified of a client can fill; `None` where nothing is.
    pub(super) fn verified_variable(self) -> Option<&'static str> {
        match self.certificates {
            _ if self.issuers == 1 => Some("{jwt:/sub}"),
            _ if self.issuers > 1 => Some("{jwt:/iss}/{jwt:/sub}"),
            Some(ClientCertNameMode::Unnamed | ClientCertNameMode::Named(_)) => Some("{client.name}"),
            Some(ClientCertNameMode::NotAsked) | None => None,
        }
    }

    /// Why no request has such a claim. `what` reads it: it begins the message.
    pub(super) fn claim_fault(self, what: impl Display, claim: &JsonPointer) -> Option<Diagnostic> {
        if self.issuers == 0 {
            let message = format!("{what} takes the claim `{claim}`, and no token is verified");
            let remedy = "add `jwt: [{issuer: \"https://login.example\", audiences: [pay], algorithms: [ES256], jwks_file: /etc/fencegate/jwks.json}]`";
            return Some(Diagnostic::new(DiagnosticCode::NoIssuer, message).with_remedy(remedy));
        }
        None
    }

    /// The fault of a part of the policy by which two issuers could give one value of `claims` to two clients.
    pub(super) fn mixed_issuers_fault<'c>(
        self,
        what: impl Display,
        claims: impl Iterator<Item = &'c JsonPointer>,
        remedy: &str,
    ) -> Option<Diagnostic> {
        let claims: Vec<String> = claims.map(ToString::to_string).collect();
        let is_told = self.are_issuers_named || claims.iter().any(|claim| claim == ISSUER);
        if self.issuers < 2 || claims.is_empty() || is_told {
            return None;
        }
        let message = format!(
            "{what} takes the claim `{}`, and two issuers may give one value of it to two clients",
            claims[0]
        );
        Some(Diagnostic::new(DiagnosticCode::MixedIssuers, message).with_remedy(remedy))
    }

    /// Why no client has a name. `what` reads the name: it begins the message.
    pub(super) fn client_name_fault(self, what: impl Display) -> Option<Diagnostic> {
        let (reason, remedy) = match self.certificates? {
            ClientCertNameMode::Named(_) => return None,
            ClientCertNameMode::NotAsked => (
                "the listener asks clients for no certificate",
                "add `client_auth: required`, `client_ca_file` and `client_name: uri` to the `tls` of the listener",
            ),
            ClientCertNameMode::Unnamed => (
                "the listener does not say which name in a certificate counts",
                "add `client_name: uri` to the `tls` of the listener, or `dns`, or `cn`",
            ),
        };
        let message = format!("{what} takes the name of the client, and {reason}");
        Some(Diagnostic::new(DiagnosticCode::NoClientName, message).with_remedy(remedy))
    }
}
