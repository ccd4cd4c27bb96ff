//! Reads the rules that restrict which clients may use a route.

use super::{
    diagnostics::Diagnostics, identities::VerifiedIdentities, mapping::MappingReader, yaml::YamlNode,
};
use crate::{
    client_name::CertificateNameKind,
    diagnostics::{Diagnostic, DiagnosticCode},
    key::JsonPointer,
    plan::{AccessRule, IdentityPattern},
};

/// The rules of a route; an empty list if every client may use the route. `None` if a rule is invalid.
pub(super) fn allow(
    route: &mut MappingReader,
    name: &str,
    identities: VerifiedIdentities,
) -> Option<Vec<AccessRule>> {
    let is_present = route.is_present("allow");
    let faults = route.faults();
    let nodes = route.list("allow");
    if !is_present {
        return Some(Vec::new());
    }
    let nodes = nodes?;
    if nodes.is_empty() {
        let fault =
            Diagnostic::new(DiagnosticCode::BadRule, format!("nobody may use {name}: the list is empty"));
        route.report("allow", fault.with_remedy(EXAMPLE));
        return None;
    }
    let read = |node: &YamlNode| {
        MappingReader::read(Some(node), format!("a rule of {name}"), node.place, faults, |block| {
            rule(block, name, identities, faults)
        })?
    };
    // All rules are read before an invalid one is returned as `None`, so that each mistake is reported.
    let rules: Vec<Option<AccessRule>> = nodes.iter().map(read).collect();
    rules.into_iter().collect()
}

const EXAMPLE: &str = "write who may, or leave `allow` out: `{client_name: \"spiffe://shop.example/*\"}`, `{claims: {\"/scope\": pay}}`";

fn rule(
    block: &mut MappingReader,
    route: &str,
    identities: VerifiedIdentities,
    faults: &Diagnostics,
) -> Option<AccessRule> {
    let client_name = block.value("client_name", |text| {
        let pattern = pattern(text)?;
        Ok(match identities.client_name() {
            Some(CertificateNameKind::Dns) => pattern.to_lowercase(),
            Some(CertificateNameKind::Uri | CertificateNameKind::CommonName) | None => pattern,
        })
    });
    let what = format!("a rule of {route}");
    if block.is_present("client_name")
        && let Some(fault) = identities.client_name_fault(&what)
    {
        block.report("client_name", fault);
    }
    let claims = block.text_entries("claims", |claim, wanted| {
        let claim = JsonPointer::parse(claim).map_err(|why| {
            let message = format!("`{claim}` names no claim");
            Diagnostic::new(DiagnosticCode::BadClaim, message)
                .with_remedy(format!("{why}; here `/sub`, or `/groups/*`"))
        })?;
        if let Some(fault) =
            identities.claim_fault(&what, &claim).or_else(|| listed_item_fault(&what, &claim))
        {
            return Err(fault);
        }
        Ok((claim, pattern(wanted)?))
    });
    if !block.is_present("client_name") && !block.is_present("claims") {
        let fault = Diagnostic::new(DiagnosticCode::BadRule, format!("{what} says nothing of a client"));
        block.report("client_name", fault.with_remedy(EXAMPLE));
        return None;
    }
    let claims = claims?;
    let remedy = "write the issuer beside it, `/iss: \"https://login.example\"`, or `/iss: \"*\"` where the claim means the same to all of them";
    if let Some(fault) = identities.mixed_issuers_fault(&what, claims.iter().map(|(claim, _)| claim), remedy)
    {
        faults.push(fault.at(block.place_of("claims")));
    }
    if block.is_present("client_name") && client_name.is_none()
        || block.is_present("claims") && claims.is_empty()
    {
        return None;
    }
    Some(AccessRule { client_name, claims })
}

/// Reports a claim that is one item of a list, or that has a wildcard of another pointer syntax.
fn listed_item_fault(what: &str, claim: &JsonPointer) -> Option<Diagnostic> {
    let is_odd = claim.items().next().is_some() || claim.foreign_wildcard().is_some();
    let message = format!("{what} takes the claim `{claim}`, which is one item of a list");
    is_odd.then(|| {
        Diagnostic::new(DiagnosticCode::BadClaim, message).with_remedy("write `*` for any item: `/groups/*`")
    })
}

fn pattern(text: &str) -> Result<IdentityPattern, Diagnostic> {
    IdentityPattern::parse(text).map_err(|why| {
        Diagnostic::new(DiagnosticCode::BadRule, format!("`{text}` is no pattern of names: {why}"))
            .with_remedy("write a whole name, `spiffe://shop.example/*`, `*.shop.example`, or `*` for every client that is verified")
    })
}
