//! Checks ZooKeeper as a gateway would find it: through a session of its own, which is closed again.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode, Severity},
    plan::{GatewayPlan, ZooKeeperSettings},
};
use fencegate_process::{
    command_hint::{self, CommandHintTarget},
    display::{FormattedDuration, error_chain},
    pem,
};
use fencegate_zookeeper::{
    installation::InstallationMeta,
    session::{
        client::{NodeCreateMode, ZkClient, ZkConnector, ZkError},
        era::{self, ReadInstallationMetaError},
        member::{MemberRecord, gateway_name},
        paths::ZkPaths,
        servers::ZkServers,
        tls_diagnosis::TlsHandshakeOutcome,
        zookeeper::ZkSession,
    },
    state::HighestEpochTracker,
};
use futures_util::future::{join_all, join3};
use tokio::time::timeout;

use super::{acl, clock_difference::ClockDifference, files, findings::FindingCollector, fleet};

/// The time limit for a session, and again for all queries.
const PATIENCE: Duration = Duration::from_secs(8);

/// The installation in ZooKeeper.
pub(super) struct FoundInstallation {
    pub(super) meta: InstallationMeta,
    /// The member node of each gateway, by the gateway's name.
    pub(super) members: BTreeMap<String, MemberRecord>,
}

/// Checks ZooKeeper and the installation in it. `None` if no installation was found.
pub(super) async fn check(
    findings: &FindingCollector,
    gateway: &GatewayPlan,
    memory: &HighestEpochTracker,
) -> Option<FoundInstallation> {
    let zookeeper = &gateway.zookeeper;
    let servers = zookeeper.servers.join(", ");
    let ensemble = match ZkServers::from_policy(zookeeper) {
        Ok(ensemble) => ensemble,
        Err(bad) => {
            files::report_unusable(findings, &["zookeeper"], &error_chain(&bad));
            return None;
        }
    };
    let (connected, (), ()) = join3(
        timeout(PATIENCE, ensemble.connect()),
        check_tls(findings, zookeeper, &ensemble),
        check_server_kind(findings, zookeeper, &ensemble),
    )
    .await;
    let connected = match connected {
        Ok(connected) => connected,
        Err(_late) => Err(ZkError::Unreachable(ensemble.describe_reachability().await)),
    };
    let link = match connected {
        Ok(link) => link,
        // The failing servers were reported already.
        Err(ZkError::Tls(_)) => return None,
        Err(fault) => {
            let message = format!("no session with ZooKeeper: {fault}");
            let remedy =
                "start the ensemble, or correct `servers`; `nc` to each server shows which of them answer";
            findings.report_problem(&["zookeeper", "servers"], DiagnosticCode::NoEnsemble, message, remedy);
            return None;
        }
    };
    check_session(findings, zookeeper, &servers, link.negotiated_timeout());
    compare_session_timeouts(findings, &ensemble, zookeeper).await;
    let installation = timeout(PATIENCE, check_installation(findings, gateway, memory, &link)).await;
    link.close().await;
    installation.unwrap_or_else(|_| {
        let message = format!("ZooKeeper at {servers} gave a session, and then no answers");
        findings.report_problem(
            &["zookeeper", "servers"],
            DiagnosticCode::NoEnsemble,
            message,
            "look at its log: it may have no quorum",
        );
        None
    })
}

fn check_session(
    findings: &FindingCollector,
    zookeeper: &ZooKeeperSettings,
    servers: &str,
    granted: Duration,
) {
    let requested = zookeeper.session_timeout;
    let margin = zookeeper.margin(granted);
    findings.record(
        "zookeeper",
        format!(
            "{servers} grants a session of {} for the {} asked for; in its last {} nothing is sent",
            FormattedDuration(granted),
            FormattedDuration(requested),
            FormattedDuration(margin)
        ),
    );
    if granted == requested {
        return;
    }
    let message = format!(
        "ZooKeeper grants a session of {}, not the {} asked for",
        FormattedDuration(granted),
        FormattedDuration(requested)
    );
    let least = ZooKeeperSettings::least_margin(granted, zookeeper.tick);
    let short = margin < least || margin + ZooKeeperSettings::heartbeat_interval(granted) * 2 > granted;
    let mut diagnostic = Diagnostic::new(DiagnosticCode::SessionNegotiated, message);
    if short {
        // No gateway starts with a session that is too short for its margin and heartbeats.
        diagnostic.severity = Severity::Error;
    }
    let remedy = "ask for what it grants, or change its minSessionTimeout, maxSessionTimeout and tickTime";
    findings.report(&["zookeeper", "session_timeout"], diagnostic.with_remedy(remedy));
}

/// Checks TLS with each server, and when its certificate expires.
async fn check_tls(findings: &FindingCollector, zookeeper: &ZooKeeperSettings, ensemble: &ZkServers) {
    if let Some(client) = zookeeper.tls.as_ref().and_then(|tls| tls.client.as_ref()) {
        let until = pem::certificates(&client.chain).ok().and_then(|chain| pem::not_after(chain.first()?));
        let way = ["zookeeper", "tls", "client_certificate_file"];
        files::check_certificate_expiry(findings, &way, &client.chain.display().to_string(), until);
    }
    for (number, (server, met)) in ensemble.probe_tls().await.into_iter().enumerate() {
        let number = number.to_string();
        let way = ["zookeeper", "servers", &number];
        match met {
            TlsHandshakeOutcome::Accepted(until) => {
                files::check_certificate_expiry(findings, &way, &format!("of {server}"), until)
            }
            TlsHandshakeOutcome::Refused(why) => {
                let message = format!("TLS with {server} is not agreed on: {why}");
                let remedy =
                    "see `ca_file`, `client_certificate_file` and the port: `fencegate explain FG0521`";
                findings.report_problem(&way, DiagnosticCode::EnsembleTls, message, remedy);
            }
            // A server that cannot be reached is no problem here, because the sessions with each server are
            // checked, too.
            TlsHandshakeOutcome::Unreachable(why) => {
                findings.record("zookeeper", format!("{server} does not answer: {why}"))
            }
        }
    }
}

/// Reports servers that speak ZooKeeper's protocol but lack some of its guarantees.
async fn check_server_kind(findings: &FindingCollector, zookeeper: &ZooKeeperSettings, ensemble: &ZkServers) {
    let replies =
        join_all(zookeeper.servers.iter().map(|server| ensemble.four_letter_word(server, "srvr"))).await;
    for (number, (server, reply)) in zookeeper.servers.iter().zip(replies).enumerate() {
        if reply.is_some_and(|reply| reply.starts_with("ClickHouse Keeper")) {
            let message = format!(
                "{server} is ClickHouse Keeper, which does not give a session back after a broken connection"
            );
            let remedy = "take ZooKeeper: `fencegate explain FG0523` says what else differs";
            findings.report_problem(
                &["zookeeper", "servers", &number.to_string()],
                DiagnosticCode::NotZooKeeper,
                message,
                remedy,
            );
        }
    }
}

/// Compares the session timeouts of the servers. A session can move from server to server, and each server may
/// grant another timeout.
async fn compare_session_timeouts(
    findings: &FindingCollector,
    ensemble: &ZkServers,
    zookeeper: &ZooKeeperSettings,
) {
    if zookeeper.servers.len() < 2 {
        return;
    }
    let attempts = zookeeper.servers.iter().map(async |server| {
        let connected = timeout(EACH, ensemble.clone().with_server(server).connect()).await;
        let link = connected.ok()?.ok()?;
        let granted = link.negotiated_timeout();
        link.close().await;
        Some((server, granted))
    });
    let granted: Vec<_> = join_all(attempts).await.into_iter().flatten().collect();
    let listed = granted.iter().map(|(server, granted)| format!("{server} {granted:?}"));
    let listed = listed.collect::<Vec<_>>().join(", ");
    let count = granted.len();
    let all = zookeeper.servers.len();
    findings.record("zookeeper", format!("{count} of {all} servers give a session: {listed}"));
    let mut times = granted.iter().map(|(_, granted)| granted);
    let first = times.next();
    if times.any(|other| Some(other) != first) {
        let message = format!("the servers keep a session for unlike times: {listed}");
        let remedy = "give all servers one tickTime, minSessionTimeout and maxSessionTimeout, and restart them one by one";
        findings.report_problem(&["zookeeper", "servers"], DiagnosticCode::UnlikeServers, message, remedy);
    }
}

/// The time limit for a session with one server.
const EACH: Duration = Duration::from_secs(4);

async fn check_installation(
    findings: &FindingCollector,
    gateway: &GatewayPlan,
    memory: &HighestEpochTracker,
    link: &ZkSession,
) -> Option<FoundInstallation> {
    let paths = ZkPaths::new(&gateway.zookeeper.root);
    acl::check(findings, gateway, link, &paths).await;
    let meta = match era::read_meta(link, &paths).await {
        Ok(era) => era.meta,
        Err(unreadable) => {
            if let ReadInstallationMetaError::Fault { source: ZkError::Denied(_), .. } = unreadable {
                let remedy = "show the identity that the other gateways show: `fencegate explain FG0524`";
                findings.report_problem(
                    &["zookeeper"],
                    DiagnosticCode::NotLetIn,
                    error_chain(&unreadable),
                    remedy,
                );
                return None;
            }
            let init = command_hint::command_line(CommandHintTarget::Gateway, "era init");
            let (said, remedy) = match &unreadable {
                ReadInstallationMetaError::Missing { path } => {
                    (format!("{path} does not exist"), format!("make it once: `{init}`"))
                }
                other => {
                    (error_chain(other), "see whether `root` and `servers` are the right ones".to_owned())
                }
            };
            findings.report_problem(&["zookeeper", "root"], DiagnosticCode::NoInstallation, said, &remedy);
            return None;
        }
    };
    findings.record("root", format!("{} has installation {}, era {}", paths.root(), meta.uuid, meta.era));
    if let Err(went_back) = memory.check_installation(&meta) {
        let bump = command_hint::command_line(CommandHintTarget::Gateway, "era bump");
        let remedy = format!("follow *Restoring ZooKeeper* in the runbook: `{bump}` makes larger tokens");
        findings.report_problem(
            &["zookeeper", "root"],
            DiagnosticCode::OtherEnsemble,
            error_chain(&went_back),
            &remedy,
        );
    }
    check_clock(findings, link, &paths).await;
    let members = match read_members(link, &paths).await {
        Ok(members) => {
            check_other_gateways(findings, gateway, &members);
            if let Err(fault) = fleet::check_fleet_plans(findings, gateway, link, &paths).await {
                findings.record("members", format!("what they have published is not to be told: {fault}"));
            }
            members
        }
        Err(fault) => {
            findings.record("members", format!("not to be told: {fault}"));
            BTreeMap::new()
        }
    };
    Some(FoundInstallation { meta, members })
}

/// Compares the clock of the leader, which stamps every change, with ours. No query returns that clock, so a
/// node is made and removed again. If this process is killed in between, the node ends with the session.
async fn check_clock(findings: &FindingCollector, link: &ZkSession, paths: &ZkPaths) {
    let path = paths.clock_probe_path(link.id());
    let before = SystemTime::now();
    let made = link.create(&path, b"", NodeCreateMode::Ephemeral).await;
    let after = SystemTime::now();
    let made = match made {
        Ok(made) => made,
        Err(fault) => {
            findings.record("zookeeper", format!("its clock is not to be told: {path}: {fault}"));
            return;
        }
    };
    link.delete(&path).await.ok();
    let said = UNIX_EPOCH + Duration::from_millis(made.stat.created);
    match ClockDifference::from_remote_reading(said, Duration::from_millis(1), before, after) {
        Some(difference) => report_clock(findings, difference),
        None => {
            let least = FormattedDuration(ClockDifference::LEAST);
            findings.record("zookeeper", format!("its clock and the one of this machine agree to {least}"));
        }
    }
}

fn report_clock(findings: &FindingCollector, difference: ClockDifference) {
    let message = format!(
        "the clock of ZooKeeper is {difference}: the ages of operations and gateways are told wrong, and operations are \
         remembered for longer than `keep`, or, where the clock of a gateway is wrong as well, forgotten early"
    );
    let way = ["zookeeper", "servers"];
    findings.report_problem(&way, DiagnosticCode::ClocksDiffer, message, ClockDifference::REMEDY);
}

/// The member nodes, by the name of the gateway. A node that disappears meanwhile belongs to a gateway that has
/// ended.
async fn read_members(link: &ZkSession, paths: &ZkPaths) -> Result<BTreeMap<String, MemberRecord>, ZkError> {
    let mut members = BTreeMap::new();
    for node in link.children(&paths.members_path()).await? {
        let Ok((data, _)) = link.data(&format!("{}/{node}", paths.members_path())).await else { continue };
        if let Ok(member) = serde_json::from_slice::<MemberRecord>(&data) {
            members.insert(gateway_name(&node).to_owned(), member);
        }
    }
    Ok(members)
}

fn check_other_gateways(
    findings: &FindingCollector,
    gateway: &GatewayPlan,
    members: &BTreeMap<String, MemberRecord>,
) {
    let ours = format!("{:016x}", gateway.fingerprint);
    let (programs, gateways): (Vec<_>, Vec<_>) =
        members.iter().partition(|(_, member)| member.is_lock_client());
    let unlike: Vec<&str> =
        gateways.iter().filter(|(_, member)| member.plan != ours).map(|(name, _)| name.as_str()).collect();
    findings.record(
        "members",
        format!(
            "{} gateways, {} of them with other locks than this file; {} commands and programs that name their keys \
             themselves",
            gateways.len(),
            unlike.len(),
            programs.len()
        ),
    );
    if !unlike.is_empty() {
        let message = format!(
            "{} would lock other keys than this file: while both run, one resource has two locks",
            unlike.join(", ")
        );
        let remedy =
            "give all gateways of one root the same routes and keys, or change them with all of them stopped";
        findings.report_problem(&["routes"], DiagnosticCode::PlansDiffer, message, remedy);
    }
}

#[cfg(test)]
mod tests {
    use fencegate_policies::file::load;

    use super::*;

    const POLICY: &str = include_str!("../../../policies/examples/minimal.yaml");

    fn minimal_plan() -> GatewayPlan {
        load(POLICY).plan.expect("a sound policy")
    }

    /// A shorter session than the requested one is reported; as an error if no gateway starts with it.
    #[test]
    fn granted_session_is_compared() {
        let zookeeper = minimal_plan().zookeeper;
        let requested = zookeeper.session_timeout;
        for (granted, expected) in [
            (requested, None),
            (requested * 2, Some(Severity::Warning)),
            (Duration::from_millis(10), Some(Severity::Error)),
        ] {
            let findings = FindingCollector::new(POLICY);
            check_session(&findings, &zookeeper, "zk:2181", granted);
            let (facts, problems) = findings.into_sorted();
            assert_eq!(facts.len(), 1);
            let severity = problems.first().map(|one| {
                assert_eq!(one.code, DiagnosticCode::SessionNegotiated);
                one.severity
            });
            assert_eq!(
                (severity, problems.len()),
                (expected, usize::from(expected.is_some())),
                "{granted:?}"
            );
        }
    }

    /// A member whose plan locks other keys is named; one with the same plan is only counted.
    #[test]
    fn members_with_other_plan_are_named() {
        let gateway = minimal_plan();
        let member = |plan: String| -> MemberRecord {
            serde_json::from_value(serde_json::json!({"format": 1, "version": "0.1.0", "plan": plan}))
                .expect("a record")
        };
        let same = member(format!("{:016x}", gateway.fingerprint));
        let other = member(format!("{:016x}", gateway.fingerprint ^ 1));
        for (members, named) in [(vec![("a", same.clone())], false), (vec![("a", same), ("b", other)], true)]
        {
            let members = members.into_iter().map(|(name, member)| (name.to_owned(), member)).collect();
            let findings = FindingCollector::new(POLICY);
            check_other_gateways(&findings, &gateway, &members);
            let (facts, problems) = findings.into_sorted();
            assert_eq!((facts.len(), problems.len()), (1, usize::from(named)));
            assert!(
                problems
                    .iter()
                    .all(|one| one.code == DiagnosticCode::PlansDiffer && one.message.starts_with("b "))
            );
        }
    }
}
