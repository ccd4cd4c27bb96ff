//! Checks everything that a plan names, all at the same time and within a bounded time.

use std::{io, path::PathBuf};

use fencegate_guard::ticket::Verifier;
use fencegate_lock::state::TokenHistory;
use fencegate_policies::{
    diagnose::{Code, Diagnostic},
    plan::{FencingLevel, GatewayPlan, GuardPlan, StoreLocation, TicketVerification},
};
use fencegate_process::said::causes;
use futures_util::future::{join_all, join3, join4};
use tokio::task::LocalSet;

use super::handshakes;
use super::{
    endpoints, ensemble, files,
    findings::{Finding, FindingCollector},
    services, store,
};
use crate::{
    ticket_keys::{JwksFetcher, RefreshPolicy},
    ticketing::TicketIssuer,
};

/// The results.
pub(super) struct OnlineResult {
    pub(super) facts: Vec<Finding>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

pub(super) fn gateway(text: &str, gateway: &GatewayPlan) -> io::Result<OnlineResult> {
    let findings = FindingCollector::in_file(text);
    let serving = &gateway.serving;
    let listener = ["listeners", &serving.listener.name, "tls"];
    files::listener(&findings, &listener, serving.listener.tls.as_ref());
    let address = ["listeners", &serving.listener.name, "address"];
    files::socket(&findings, &address, &serving.listener.address);
    files::admin(&findings, &serving.admin);
    files::log(&findings, &serving.log);
    let limits = ["listeners", &serving.listener.name, "limits"];
    files::memory(&findings, &limits, &serving.listener.limits);
    if let Some(leases) = &gateway.leases {
        files::leases(&findings, leases);
    }
    if let Some(key) = &gateway.tickets
        && let Err(bad) = TicketIssuer::new(key, gateway, &"".into(), &Default::default())
    {
        files::unusable(&findings, &["tickets"], &causes(&bad));
    }
    let before = gateway.state_dir.as_ref().map_or_else(Vec::new, |folder| files::state(&findings, folder));
    let memory = TokenHistory::recalling(before);
    run(async {
        let endpoints = serving.upstreams.iter().map(|upstream| endpoints::of_gateway(&findings, upstream));
        let gateways = async {
            let found = ensemble::look(&findings, gateway, &memory).await?;
            handshakes::others(&findings, gateway, &found.members).await;
            Some(found.meta)
        };
        let own = async {
            if let Some(peer) = &gateway.peer {
                handshakes::own(&findings, peer).await;
            }
        };
        let shared = services::look(&findings, serving);
        let (installation, met, (), ()) = join4(gateways, join_all(endpoints), own, shared).await;
        for (upstream, met) in serving.upstreams.iter().zip(met) {
            if upstream.fencing == FencingLevel::Guard {
                endpoints::judge(&findings, upstream, &met, installation.as_ref());
            }
        }
    })?;
    Ok(found(findings))
}

pub(super) fn guard(text: &str, guard: &GuardPlan) -> io::Result<OnlineResult> {
    let findings = FindingCollector::in_file(text);
    let serving = &guard.serving;
    files::listener(&findings, &["listener", "tls"], serving.listener.tls.as_ref());
    files::socket(&findings, &["listener", "address"], &serving.listener.address);
    files::admin(&findings, &serving.admin);
    files::log(&findings, &serving.log);
    files::memory(&findings, &["listener", "limits"], &serving.listener.limits);
    if guard.store != StoreLocation::Stateless
        && serving.upstreams.iter().any(|one| one.sharing.health.is_none())
    {
        findings.saw("upstream", NO_HEALTH);
    }
    run(async {
        let upstreams = serving.upstreams.iter().map(|upstream| endpoints::of_guard(&findings, upstream));
        let (tickets, store) =
            (keys(&findings, guard.tickets.as_ref()), store::look(&findings, &guard.store));
        join3(join_all(upstreams), tickets, store).await;
    })?;
    Ok(found(findings))
}

/// Said of a guard that does not ask.
const NO_HEALTH: &str =
    "without `health`: what is in doubt ends by the clock alone, also while the service stands still";

/// The keys with which tickets are verified.
async fn keys(findings: &FindingCollector, from: Option<&TicketVerification>) {
    let opened =
        |path: &PathBuf, verifier: Result<Verifier, fencegate_guard::ticket::KeyFileError>| match verifier {
            Ok(_) => findings.saw("tickets", format!("verified with {}", path.display())),
            Err(bad) => files::unusable(findings, &["tickets"], &causes(&bad)),
        };
    match from {
        None => {}
        Some(TicketVerification::PublicKeys(path)) => opened(path, Verifier::from_jwks_file(path)),
        Some(TicketVerification::Secret(path)) => opened(path, Verifier::from_secret_file(path)),
        Some(TicketVerification::Jwks(url)) => {
            let fetched = match JwksFetcher::new(url, RefreshPolicy::default()) {
                Ok(remote) => remote.fetch().await.map_err(|error| causes(&error)),
                Err(bad) => Err(causes(&bad)),
            };
            match fetched {
                Ok(()) => findings.saw("tickets", format!("verified with {url}")),
                Err(why) => findings.wrong(
                    &["tickets", "jwks_url"],
                    Code::NoEndpoint,
                    format!("the ticket keys at {url} cannot be fetched: {why}"),
                    "without them every ticket is refused: start the gateway that shows them, or name a file",
                ),
            }
        }
    }
}

fn run(look: impl Future<Output = ()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, look);
    // A lookup that gets no answer from its name server is not waited for any longer.
    runtime.shutdown_background();
    Ok(())
}

fn found(findings: FindingCollector) -> OnlineResult {
    let (facts, diagnostics) = findings.sorted();
    OnlineResult { facts, diagnostics }
}
