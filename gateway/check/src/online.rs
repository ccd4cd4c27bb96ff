//! Checks everything that a plan names, all at the same time and within a bounded time.

use std::{error::Error, io, path::PathBuf};

use fencegate_config::{
    access_tokens::{IssuerKeysError, fetch_issuer_keys},
    jwks_fetcher::{JwksFetcher, JwksRefreshPolicy},
};
use fencegate_guard_client::ticket_issuer::TicketIssuer;
use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{FencingLevel, GatewayPlan, GuardPlan, GuardStoreLocation, JwtIssuer, TicketVerificationKeys},
};
use fencegate_process::display::error_chain;
use fencegate_ticket::TicketVerifier;
use fencegate_zookeeper::state::HighestEpochTracker;
use futures_util::future::{join, join_all, join3, join4};
use tokio::task::LocalSet;

use super::handshakes;
use super::{
    endpoints, ensemble, files,
    findings::{FindingCollector, OnlineCheckFinding},
    services, store,
};

/// The facts and the problems that a check has found.
pub(super) struct OnlineCheckResult {
    pub(super) facts: Vec<OnlineCheckFinding>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

pub(super) fn check_gateway(text: &str, gateway: &GatewayPlan) -> io::Result<OnlineCheckResult> {
    let findings = FindingCollector::new(text);
    let serving = &gateway.serving;
    let listener = ["listeners", &serving.listener.name, "tls"];
    files::check_listener(&findings, &listener, serving.listener.tls.as_ref());
    let address = ["listeners", &serving.listener.name, "address"];
    files::check_unix_socket(&findings, &address, &serving.listener.address);
    files::check_admin(&findings, &serving.admin);
    files::check_key_hash_secret(&findings, &serving.log);
    let limits = ["listeners", &serving.listener.name, "limits"];
    files::check_memory(&findings, &limits, &serving.listener.limits);
    if let Some(leases) = &gateway.leases {
        files::check_lease_credentials(&findings, leases);
    }
    if let Some(key) = &gateway.tickets
        && let Err(bad) = TicketIssuer::new(key, gateway, &"".into(), &Default::default())
    {
        files::report_unusable(&findings, &["tickets"], &error_chain(&bad));
    }
    let before =
        gateway.state_dir.as_ref().map_or_else(Vec::new, |folder| files::check_state_dir(&findings, folder));
    let memory = HighestEpochTracker::from_records(before);
    run(async {
        let endpoints =
            serving.upstreams.iter().map(|upstream| endpoints::check_gateway_upstream(&findings, upstream));
        let gateways = async {
            let found = ensemble::check(&findings, gateway, &memory).await?;
            handshakes::check_remote_peers(&findings, gateway, &found.members).await;
            Some(found.meta)
        };
        let own = async {
            if let Some(peer) = &gateway.peer {
                handshakes::check_local_peer(&findings, peer).await;
            }
        };
        let shared = services::check_shared_addresses(&findings, serving);
        let issuers = serving.jwt.issuers.iter().enumerate();
        let issuers = join_all(issuers.map(|(number, issuer)| check_issuer(&findings, number, issuer)));
        let (installation, met, (), _) =
            join4(gateways, join_all(endpoints), own, join(shared, issuers)).await;
        for (upstream, met) in serving.upstreams.iter().zip(met) {
            if upstream.fencing == FencingLevel::Guard {
                endpoints::check_guards(&findings, upstream, &met, installation.as_ref());
            }
        }
    })?;
    Ok(collect(findings))
}

pub(super) fn check_guard(text: &str, guard: &GuardPlan) -> io::Result<OnlineCheckResult> {
    let findings = FindingCollector::new(text);
    let serving = &guard.serving;
    files::check_listener(&findings, &["listener", "tls"], serving.listener.tls.as_ref());
    files::check_unix_socket(&findings, &["listener", "address"], &serving.listener.address);
    files::check_admin(&findings, &serving.admin);
    files::check_key_hash_secret(&findings, &serving.log);
    files::check_memory(&findings, &["listener", "limits"], &serving.listener.limits);
    if guard.store != GuardStoreLocation::Stateless
        && serving.upstreams.iter().any(|one| one.sharing.health.is_none())
    {
        findings.record("upstream", NO_HEALTH);
    }
    run(async {
        let upstreams =
            serving.upstreams.iter().map(|upstream| endpoints::check_guard_upstream(&findings, upstream));
        let tickets = check_ticket_keys(&findings, guard.tickets.as_ref());
        let store = store::check(&findings, &guard.store);
        join3(join_all(upstreams), tickets, store).await;
    })?;
    Ok(collect(findings))
}

/// The finding for a guard that does not check the health of its service.
const NO_HEALTH: &str =
    "without `health`: what is in doubt ends by the clock alone, also while the service stands still";

/// Checks the keys with which tickets are verified.
async fn check_ticket_keys(findings: &FindingCollector, from: Option<&TicketVerificationKeys>) {
    let opened =
        |path: &PathBuf, verifier: Result<TicketVerifier, fencegate_ticket::KeyFileError>| match verifier {
            Ok(_) => findings.record("tickets", format!("verified with {}", path.display())),
            Err(bad) => files::report_unusable(findings, &["tickets"], &error_chain(&bad)),
        };
    match from {
        None => {}
        Some(TicketVerificationKeys::PublicKeys(path)) => opened(path, TicketVerifier::from_jwks_file(path)),
        Some(TicketVerificationKeys::Secret(path)) => opened(path, TicketVerifier::from_secret_file(path)),
        Some(TicketVerificationKeys::Jwks(url)) => {
            let keys = TicketVerifier::without_keys().keys().clone();
            let fetched = match JwksFetcher::new(url, JwksRefreshPolicy::default(), None, keys) {
                Ok(remote) => remote.fetch().await.map_err(|error| error_chain(&error)),
                Err(bad) => Err(error_chain(&bad)),
            };
            match fetched {
                Ok(()) => findings.record("tickets", format!("verified with {url}")),
                Err(why) => findings.report_problem(
                    &["tickets", "jwks_url"],
                    DiagnosticCode::NoEndpoint,
                    format!("the ticket keys at {url} cannot be fetched: {why}"),
                    "without them every ticket is refused: start the gateway that shows them, or name a file",
                ),
            }
        }
    }
}

/// Checks the keys with which the tokens of an issuer are verified. The issuer is the one at `number` in the
/// policy.
async fn check_issuer(findings: &FindingCollector, number: usize, issuer: &JwtIssuer) {
    let name = &issuer.issuer;
    let number = number.to_string();
    match fetch_issuer_keys(issuer).await {
        Ok(kids) => findings.record("jwt", format!("{name} has the keys {kids}")),
        Err(IssuerKeysError::Open(bad)) => {
            let why = bad.source().map_or_else(|| bad.to_string(), error_chain);
            files::report_unusable(findings, &["jwt", &number], &why);
        }
        Err(IssuerKeysError::Fetch(error)) => findings.report_problem(
            &["jwt", &number, "jwks_url"],
            DiagnosticCode::NoEndpoint,
            format!("the keys of {name} cannot be fetched: {}", error_chain(&error)),
            "without them every token of the issuer is refused: see that the server is there, or name a file",
        ),
    }
}

fn run(look: impl Future<Output = ()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, look);
    // Does not wait for a lookup that has no response from its name server yet.
    runtime.shutdown_background();
    Ok(())
}

fn collect(findings: FindingCollector) -> OnlineCheckResult {
    let (facts, diagnostics) = findings.into_sorted();
    OnlineCheckResult { facts, diagnostics }
}
