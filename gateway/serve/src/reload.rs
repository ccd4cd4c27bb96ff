//! Puts another plan in force while requests run: the file is checked in full, then all workers take the plan over. A
//! file with an error changes nothing.

use std::{path::PathBuf, sync::Arc, time::Duration};

use fencegate_admin::command::ReloadReport;
use fencegate_config::{
    access_tokens::AccessTokenAuthenticator,
    active_config::ActiveConfig,
    current_config::{plan_delays_key_release, site_in_plan},
    key_secret,
    policy_file::PolicyFile,
};
use fencegate_guard_client::guard_identity::UpstreamGuardRegistry;
use fencegate_http::{listen::certificates::ListenerCertificates, network::sockets::OsNetwork};
use fencegate_http_client::upstream::health;
use fencegate_leases::LeaseSettings;
use fencegate_metrics::ReloadResult;
use fencegate_peers::plan_compat::{FleetPlanComparison, compare};
use fencegate_policies::{
    diff::PlanDiff, file, key::ResourceKey, plan::GatewayPlan, plan_digest::PublishedLockRules,
};
use fencegate_process::{display::error_chain, key_redaction, liveness::ThreadRole};
use fencegate_proxy::steps::fence::GatewayContext;
use fencegate_zookeeper::session::local_member::LocalMember;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use super::{plan_publisher::PlanPublisher, worker_context::run_with_jwks_refresh};

/// Tells a worker to switch to another configuration.
#[derive(Debug)]
pub struct ConfigUpdate {
    pub config: Arc<ActiveConfig>,
    /// Sent when no request begins under the former configuration any more.
    pub taken: oneshot::Sender<()>,
}

/// Reads the file again and puts its plan in force. It knows the plan in force, and every part that a change concerns.
pub struct Reloader {
    pub file: PathBuf,
    /// The plan at the start. A plan that differs from it in a setting that needs a restart is refused as a whole.
    pub started: GatewayPlan,
    pub gateway: GatewayPlan,
    pub config: Arc<ActiveConfig>,
    pub workers: Vec<mpsc::UnboundedSender<ConfigUpdate>>,
    /// The parts of the gateway that take the plan over.
    pub context: Arc<GatewayContext>,
    pub guards: Arc<UpstreamGuardRegistry>,
    /// The certificates of each listener that speaks TLS.
    pub certificates: Vec<Arc<ListenerCertificates>>,
    pub member: LocalMember,
    pub publisher: PlanPublisher,
}

impl Reloader {
    /// Reads the policy file again, and also the certificates in use, even if the policy has not changed or is refused.
    ///
    /// # Cancellation
    /// The future must not be dropped: some workers would have the new plan and others the old one.
    pub async fn reload(&mut self, dry: bool) -> ReloadReport {
        let mut report = self.reload_policy(dry).await;
        if !dry {
            let bad = self.certificates.iter().filter_map(|certificates| certificates.reload().err());
            report.said.extend(bad.map(|bad| format!("FG0510: {}", error_chain(&bad))));
            self.context.process.metrics.record_policy_reload(report.result);
        }
        self.log_report(&report, dry);
        report
    }

    async fn reload_policy(&mut self, dry: bool) -> ReloadReport {
        let refused = |lines| ReloadReport {
            result: ReloadResult::Refused,
            difference: PlanDiff::default(),
            said: lines,
            fleet: None,
        };
        let checked = match PolicyFile::open(&self.file) {
            Ok(file) => file.plan(file::load_with_environment),
            Err(unreadable) => return refused(vec![unreadable.to_string()]),
        };
        let lines = checked.said;
        let Some(gateway) = checked.plan else { return refused(lines) };
        let difference = PlanDiff::between(&self.gateway, &gateway);
        let same = difference.is_empty();
        let difference = difference.with_restarts_since(&self.started, &gateway);
        if let Some(refusal) = restart_refusal(&difference) {
            // The plan is refused as a whole: with `fencing: guard` but without the new `tickets`, every fenced request
            // would be refused.
            let said = lines.into_iter().chain([refusal]).collect();
            return ReloadReport { result: ReloadResult::Refused, difference, said, fleet: None };
        }
        let result = match (same, dry) {
            (true, _) => ReloadResult::Unchanged,
            (false, true) => ReloadResult::Dry,
            (false, false) => match self.apply(gateway, &difference).await {
                Ok(()) => ReloadResult::Applied,
                Err(failed) => return refused(vec![failed]),
            },
        };
        ReloadReport { result, difference, said: lines, fleet: None }
    }

    /// # Errors
    /// Returns an error if a part of the plan cannot be used. Nothing has changed then.
    async fn apply(&mut self, gateway: GatewayPlan, difference: &PlanDiff) -> Result<(), String> {
        let old = self.config.clone();
        let GatewayContext { process, locks, config: current, compat, leases, .. } = &*self.context;
        let plan = Arc::new(gateway.serving.clone());
        let settings = LeaseSettings::from_plan(gateway.leases.as_ref()).map_err(|bad| error_chain(&bad))?;
        let secret = key_secret::load(&gateway.serving.log).map_err(|bad| error_chain(&bad))?;
        let tokens = AccessTokenAuthenticator::open(
            &plan.jwt,
            &process.clock,
            process.metrics.issuer_keys(),
            old.tokens.as_deref(),
        );
        let tokens = tokens.map_err(|bad| error_chain(&bad))?;
        let fleets =
            old.fleets.for_next_plan(&plan, process.metrics.endpoints()).map_err(|bad| error_chain(&bad))?;
        let site = |key: &ResourceKey| {
            Some(site_in_plan(&gateway, key)).filter(|_| !plan_delays_key_release(&gateway, key))
        };
        let switch = leases.as_ref().map(|leases| leases.begin_switch(site)).transpose()?;
        let liveness =
            process.threads.register_until(ThreadRole::Endpoints, fleets.retirement_token().clone());
        let liveness = run_with_jwks_refresh(liveness, tokens.clone());
        let started = health::start_endpoint_tasks(
            OsNetwork,
            &fleets,
            process.clock.clone(),
            self.guards.clone(),
            liveness,
        );
        started.map_err(|failed| {
            fleets.stop_endpoint_tasks();
            format!("cannot start the tasks that watch the endpoints: {failed}")
        })?;
        // Nothing after this line can fail: a plan that is refused changes nothing, not even how the log redacts keys.
        key_redaction::set_key_redaction(gateway.serving.log.keys, secret);
        if let Some(switch) = &switch {
            switch.mark_rekeyed(&difference.rekeyed);
        }
        let (config, openings) =
            ActiveConfig::successor(&old, plan.clone(), fleets, tokens, &difference.rekeyed);
        process.metrics.apply_plan_to_metrics(&gateway);
        current.record_key_templates(&gateway);
        let taken = self.workers.iter().filter_map(|worker| {
            let (taken, took) = oneshot::channel();
            worker.send(ConfigUpdate { config: config.clone(), taken }).ok().map(|()| took)
        });
        // The wait fails for a worker that has ended, which starts no request either.
        for took in taken.collect::<Vec<_>>() {
            took.await.ok();
        }
        self.guards.retain(&plan.upstreams);
        self.member.set_plan_fingerprint(gateway.fingerprint);
        compat.apply_mixed_plan_policy(&gateway);
        // To enable or disable leases needs a restart, so without leases in the file the settings in force stay.
        if let (Some(switch), Some(_)) = (&switch, &gateway.leases) {
            switch.set_settings(settings);
        }
        self.publisher.publish(
            &gateway.serving,
            switch.as_ref(),
            ActiveConfig::dropped_generations(&old, &config),
        );
        current.replace(gateway.clone(), config.clone());
        drop(switch);
        old.fleets.stop_endpoint_tasks();
        for opening in openings {
            let lock_manager = locks.clone();
            tokio::spawn(async move {
                opening.wait_predecessors().await;
                lock_manager.close_all_tenures();
                opening.open();
            });
        }
        (self.gateway, self.config) = (gateway, config);
        Ok(())
    }

    /// Compares the file with all other gateways. The error is the reason for which that is not possible.
    pub async fn compare(&self) -> Result<FleetPlanComparison, String> {
        let checked = PolicyFile::open(&self.file)
            .map_err(|unreadable| unreadable.to_string())?
            .plan(file::load_with_environment);
        let gateway = checked.plan.ok_or_else(|| checked.said.join("\n"))?;
        let fleet = self.context.locks.published_plans().await.map_err(|untold| untold.to_string())?;
        let file = PublishedLockRules::from_plan(&gateway.serving, gateway.leases.as_ref());
        Ok(compare(&file, &fleet.ours, &fleet.same, &fleet.others))
    }

    fn log_report(&self, report: &ReloadReport, dry: bool) {
        let ReloadReport { result, difference, said: lines, .. } = report;
        let file = self.file.display();
        match result {
            ReloadResult::Refused => {
                error!(%file, dry, said = lines.join("\n"), "config.refused: the old plan stays in force")
            }
            _ => log_difference(&file.to_string(), result.as_str(), difference),
        }
        if !difference.forgets.is_empty() {
            let routes = difference.forgets.join(", ");
            warn!(%file, routes, dry, "config.operations_forgotten: an operation done on these routes before this change is not recognised when it is repeated");
        }
    }
}

/// The refusal of a plan that a running process cannot take over as a whole.
fn restart_refusal(difference: &PlanDiff) -> Option<String> {
    (!difference.restart.is_empty()).then(|| {
        format!(
            "FG0553: `{}` can only change with a restart, so nothing of the file was taken over; restart the process (*Rolling \
             restart* in the runbook), or leave what it was started with there",
            difference.restart.join("`, `")
        )
    })
}

/// Logs one field for each kind of change.
fn log_difference(file: &str, result: &str, difference: &PlanDiff) {
    let PlanDiff { added, removed, changed, rekeyed, upstreams, forgets, settings, restart } = difference;
    let named = |names: &[String]| (!names.is_empty()).then(|| names.join(", "));
    info!(
        file,
        result,
        added = named(added),
        removed = named(removed),
        changed = named(changed),
        rekeyed = named(rekeyed),
        upstreams = named(upstreams),
        forgets = named(forgets),
        settings = named(settings),
        restart = named(restart),
        "config.reloaded"
    );
}

/// Detects when a file has changed and is not being written any more.
pub(crate) struct FileWatcher {
    file: PathBuf,
    known: Option<Vec<u8>>,
    seen: Option<Vec<u8>>,
}

/// The interval in which the file is read. There is no event to wait for: orchestrators swap whole directories, which
/// sends no event for the file.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl FileWatcher {
    pub(crate) fn new(file: PathBuf) -> Self {
        let known = std::fs::read(&file).ok();
        Self { file, seen: known.clone(), known }
    }

    /// Returns when the file has other content than before, and the same content in two checks. A missing file is not
    /// reported, because it is about to come back.
    pub(crate) async fn wait_changed(&mut self) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let found = std::fs::read(&self.file).ok();
            let steady = found == self.seen;
            self.seen = found;
            if steady && self.seen.is_some() && self.seen != self.known {
                self.known = self.seen.clone();
                return;
            }
        }
    }
}
