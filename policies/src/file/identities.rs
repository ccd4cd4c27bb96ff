//! The facts about clients that the listener verifies, for the templates and rules that read them.

use std::fmt::Display;

use crate::{
    client_name::CertificateNameKind,
    diagnostics::{Diagnostic, DiagnosticCode},
    key::JsonPointer,
    plan::{AccessRule, ClientCertificateMode, ListenerSettings},
};

/// The claim that names the issuer of a token.
const ISSUER: &str = "/iss";

/// The kinds of identities that are verified before the key of a request is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct VerifiedIdentities {
    /// The names in client certificates; `None` if the listener could not be read, so that nothing is reported about
    /// certificates.
    certificates: Option<ClientCertNameMode>,
    /// The number of token issuers in the file.
    issuers: usize,
    /// True if the rules of the route name the issuers whose claims count.
    are_issuers_named: bool,
}

/// Whether clients have names from their certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientCertNameMode {
    /// Clients are not asked for a certificate.
    NotAsked,
    /// Clients show certificates, but no kind of name in them is configured.
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

    /// The identities for the templates of a route with these rules. If each rule names the issuer, or allows all with
    /// `*`, the templates need not name it: the author knows that there are several issuers.
    pub(super) fn with_issuer_named_by(self, rules: &[AccessRule]) -> Self {
        let names_issuer =
            |rule: &AccessRule| rule.claims.iter().any(|(claim, _)| claim.to_string() == ISSUER);
        Self { are_issuers_named: !rules.is_empty() && rules.iter().all(names_issuer), ..self }
    }

    /// The kind of name in a certificate that is the client's name.
    pub(super) fn client_name(self) -> Option<CertificateNameKind> {
        match self.certificates {
            Some(ClientCertNameMode::Named(kind)) => Some(kind),
            Some(ClientCertNameMode::NotAsked | ClientCertNameMode::Unnamed) | None => None,
        }
    }

    /// A variable that clients cannot choose, as an example for messages; `None` if nothing is verified.
    pub(super) fn verified_variable(self) -> Option<&'static str> {
        match self.certificates {
            _ if self.issuers == 1 => Some("{jwt:/sub}"),
            _ if self.issuers > 1 => Some("{jwt:/iss}/{jwt:/sub}"),
            Some(ClientCertNameMode::Unnamed | ClientCertNameMode::Named(_)) => Some("{client.name}"),
            Some(ClientCertNameMode::NotAsked) | None => None,
        }
    }

    /// The diagnostic for a claim that no request has, because no token is verified. `what`: the part of the policy
    /// that reads the claim, at the beginning of the message.
    pub(super) fn claim_fault(self, what: impl Display, claim: &JsonPointer) -> Option<Diagnostic> {
        if self.issuers == 0 {
            let message = format!("{what} takes the claim `{claim}`, and no token is verified");
            let remedy = "add `jwt: [{issuer: \"https://login.example\", audiences: [pay], algorithms: [ES256], jwks_file: /etc/fencegate/jwks.json}]`";
            return Some(Diagnostic::new(DiagnosticCode::NoIssuer, message).with_remedy(remedy));
        }
        None
    }

    /// The diagnostic for a part of the policy by which two issuers could give the same value of `claims` to two
    /// different clients.
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

    /// The diagnostic for a client name that no request has. `what`: the part of the policy that reads the name, at the
    /// beginning of the message.
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
