//! Finds registered gateways whose locks for the resources of the file are incompatible with it.

use fencegate_peers::plan_compat::compare;
use fencegate_policies::{diagnostics::DiagnosticCode, plan::GatewayPlan, plan_digest::PublishedLockRules};
use fencegate_zookeeper::session::{
    client::ZkError, paths::ZkPaths, plan_publication::PublishedPlanBytes, plan_watch, zookeeper::ZkSession,
};

use super::findings::FindingCollector;

/// Compares the plan of the file with the plans that the registered gateways have published.
///
/// # Errors
/// Returns an error if ZooKeeper cannot be queried.
pub(super) async fn check_fleet_plans(
    findings: &FindingCollector,
    gateway: &GatewayPlan,
    link: &ZkSession,
    paths: &ZkPaths,
) -> Result<(), ZkError> {
    let file = PublishedLockRules::from_plan(&gateway.serving, gateway.leases.as_ref());
    let ours = PublishedPlanBytes::from_bytes(file.to_bytes());
    let (others, same) = plan_watch::compare_plan(link, paths, gateway.fingerprint, &ours).await?;
    let report = compare(&file, &ours, &same, &others);
    for unreadable in &report.unreadable {
        let remedy = "give all gateways the newest build";
        findings.report_problem(&["routes"], DiagnosticCode::PlanUnreadable, unreadable.clone(), remedy);
    }
    let refused: Vec<&str> =
        report.routes.iter().filter(|route| !route.agrees).map(|route| route.route.as_str()).collect();
    let agree = report.routes.len() - refused.len();
    findings.record(
        "members",
        format!(
            "{agree} of {} fenced routes and patterns of leases are locked alike by all",
            report.routes.len()
        ),
    );
    if !refused.is_empty() {
        let mut by: Vec<&str> =
            report.routes.iter().flat_map(|route| &route.unlike).map(String::as_str).collect();
        by.sort_unstable();
        by.dedup();
        let message = format!(
            "{} would be refused with `config-mismatch` beside {}: one resource would have two locks",
            refused.join(", "),
            by.join(", ")
        );
        let remedy = "follow *Changing keys in a fleet* in the runbook";
        findings.report_problem(&["routes"], DiagnosticCode::ConfigMismatch, message, remedy);
    }
    Ok(())
}
