//! Reads the issuers whose bearer tokens are verified.

use std::{collections::HashSet, path::PathBuf, time::Duration};

use super::{mapping::MappingReader, one_of::exactly_one, scalar, tickets, yaml::YamlNode};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{JwksSource, JwtAlgorithm, JwtIssuer},
};

/// The issuers of the file.
pub(super) struct ParsedIssuers {
    /// The issuers; `None` if one of them is invalid.
    pub(super) issuers: Option<Vec<JwtIssuer>>,
    /// The number of issuers in the file, including invalid ones.
    pub(super) count: usize,
}

pub(super) fn issuers(policy: &mut MappingReader) -> ParsedIssuers {
    let faults = policy.faults();
    let nodes = policy.list("jwt").unwrap_or_default();
    let mut names = HashSet::new();
    let read = |node: &YamlNode| {
        MappingReader::read(Some(node), "an issuer", node.place, faults, |block| issuer(block, &mut names))?
    };
    // All issuers are read before an invalid one is returned as `None`, so that each mistake is reported.
    let issuers: Vec<Option<JwtIssuer>> = nodes.iter().map(read).collect();
    if nodes.is_empty() && policy.is_present("jwt") {
        let message = "`jwt` has no issuer, so no token is verified";
        let remedy = "leave it out, or write `{issuer: \"https://login.example\", audiences: [pay], algorithms: [ES256], jwks_file: /etc/fencegate/jwks.json}`";
        policy.report("jwt", Diagnostic::new(DiagnosticCode::MissingField, message).with_remedy(remedy));
    }
    ParsedIssuers { count: nodes.len(), issuers: issuers.into_iter().collect() }
}

fn issuer(block: &mut MappingReader, names: &mut HashSet<String>) -> Option<JwtIssuer> {
    block.require("issuer", "issuer: \"https://login.example\"");
    let issuer = block.value("issuer", name);
    if let Some(name) = &issuer
        && !names.insert(name.clone())
    {
        let message = format!("there is another issuer `{name}` above");
        let remedy = "write all audiences and algorithms of an issuer into one entry";
        block.report("issuer", Diagnostic::new(DiagnosticCode::SameIssuer, message).with_remedy(remedy));
    }
    block.require("audiences", "audiences: [pay]");
    let audiences =
        nonempty(block, "audiences", "write the `aud` of the tokens that are meant for this gateway", name);
    block.require("algorithms", "algorithms: [ES256]");
    let algorithms =
        nonempty(block, "algorithms", "write those that the issuer signs with: `[ES256]`", algorithm);
    let keys = keys(block);
    let leeway = block.value("leeway", scalar::duration);
    let forward = block.keyword("forward", &[("true", true), ("false", false)]);
    Some(JwtIssuer {
        issuer: issuer?,
        audiences: audiences?,
        algorithms: algorithms?,
        keys: keys?,
        leeway: leeway.unwrap_or(JwtIssuer::LEEWAY),
        forward: forward.unwrap_or(true),
    })
}

/// A list with at least one value; an empty one is reported.
fn nonempty<T>(
    block: &mut MappingReader,
    field: &'static str,
    remedy: &str,
    parse: impl Fn(&str) -> Result<T, Diagnostic>,
) -> Option<Vec<T>> {
    let values = block.values(field, parse)?;
    if values.is_empty() {
        let message = format!("the list `{field}` is empty, so no token of this issuer counts");
        block.report(field, Diagnostic::new(DiagnosticCode::MissingField, message).with_remedy(remedy));
        return None;
    }
    Some(values)
}

/// Reads the name of an issuer or an audience, spelled as in the token.
fn name(text: &str) -> Result<String, Diagnostic> {
    let is_name = (1..=512).contains(&text.len()) && text.trim() == text && !text.contains(char::is_control);
    if is_name {
        return Ok(text.to_owned());
    }
    let message = format!("`{text}` is no name of an issuer or an audience");
    Err(Diagnostic::new(DiagnosticCode::BadName, message)
        .with_remedy("write it as it stands in the token, such as `https://login.example`"))
}

fn algorithm(text: &str) -> Result<JwtAlgorithm, Diagnostic> {
    let words = JwtAlgorithm::WORDS;
    if let Some((_, algorithm)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*algorithm);
    }
    let fault = Diagnostic::new(
        DiagnosticCode::BadAlgorithm,
        format!("`{text}` is no algorithm of signatures by public keys"),
    );
    Err(match text.to_ascii_uppercase().as_str() {
        "NONE" => fault.with_remedy("a token without a signature proves nothing: write the algorithm of the issuer, such as `ES256`"),
        "HS256" | "HS384" | "HS512" => fault.with_remedy(
            "whoever verifies with a shared secret could make tokens: let the issuer sign with a key pair, such as `ES256`",
        ),
        _ => {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            fault.suggest(text, &known, str::to_owned)
        }
    })
}

fn keys(block: &mut MappingReader) -> Option<JwksSource> {
    let example =
        "write `{jwks_file: /etc/fencegate/jwks.json}`, or `jwks_url: \"https://login.example/jwks.json\"`";
    let chosen = exactly_one(block, &["jwks_file", "jwks_url"], example);
    let file: Option<PathBuf> = block.value("jwks_file", scalar::file);
    let url = block.value("jwks_url", tickets::key_set_url);
    let ca_file = block.value("jwks_ca_file", scalar::file);
    let cache_duration: Option<Duration> = block.value("cache_duration", scalar::time_limit);
    let max_age: Option<Duration> = block.value("max_key_age", scalar::keep);
    if chosen == Some("jwks_file") {
        for field in ["jwks_ca_file", "cache_duration", "max_key_age"] {
            if block.is_present(field) {
                let message = format!("`{field}` has no effect without `jwks_url`");
                let remedy = "leave it out: a file is looked at every second";
                block.report(field, Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy));
            }
        }
        return file.map(JwksSource::File);
    }
    let url = url?;
    if let Some(plain) = url.strip_prefix("http://") {
        if block.is_present("jwks_ca_file") {
            let message = "`jwks_ca_file` has no effect without `https://`";
            let remedy = "write `https://` in `jwks_url`, or leave it out";
            block.report(
                "jwks_ca_file",
                Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy),
            );
        }
        if !is_loopback(plain) {
            let message = "the keys of an issuer cross the network as plain text: whoever can change them can make tokens";
            let remedy = "write `https://`, or let another program fetch the file and write `jwks_file`";
            block.report(
                "jwks_url",
                Diagnostic::new(DiagnosticCode::PlainKeySet, message).with_remedy(remedy),
            );
        }
    }
    let cache_duration = cache_duration.unwrap_or(JwtIssuer::CACHE_DURATION);
    if let Some(max_age) = max_age.filter(|max_age| *max_age < cache_duration * 2) {
        let message = format!(
            "with `max_key_age: {}` a fetch that fails once can end every token of the issuer",
            scalar::format_duration(max_age)
        );
        let remedy = format!(
            "make it at least twice `cache_duration`: `{}`, or `cache_duration` shorter",
            scalar::format_duration(cache_duration * 2)
        );
        block.report("max_key_age", Diagnostic::new(DiagnosticCode::OutOfRange, message).with_remedy(remedy));
    }
    let max_age = max_age.unwrap_or_else(|| JwtIssuer::max_key_age(cache_duration));
    Some(JwksSource::Url { url, ca_file, cache_duration, max_age })
}

/// Whether the host of a URL is on loopback. `rest`: the URL without its scheme.
fn is_loopback(rest: &str) -> bool {
    let host = rest.split('/').next().unwrap_or_default();
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.split(']').next())
        .unwrap_or_else(|| host.rsplit_once(':').map_or(host, |(host, _)| host));
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}
