//! Checks who may write the nodes of the installation, and whether the file matches that.

use fencegate_policies::{
    diagnostics::DiagnosticCode,
    plan::{AclMode, GatewayPlan},
};

use fencegate_process::command_hint::{self, CommandHintTarget};
use fencegate_zookeeper::session::{
    acl_audit::audit_acls,
    client::{AclGrantee, ZkClient, ZkError},
    paths::ZkPaths,
    zookeeper::ZkSession,
};

use super::findings::FindingCollector;

pub(super) async fn check(
    findings: &FindingCollector,
    gateway: &GatewayPlan,
    link: &ZkSession,
    paths: &ZkPaths,
) {
    match gateway.zookeeper.acl {
        AclMode::Closed => check_no_open_acls(findings, link, paths).await,
        AclMode::Checked | AclMode::Open => {
            check_open_acls(findings, gateway.zookeeper.acl, link, paths).await
        }
    }
}

/// Checks every node: one node that anybody may write is enough.
async fn check_no_open_acls(findings: &FindingCollector, link: &ZkSession, paths: &ZkPaths) {
    let root = paths.root();
    let meant = match link.intended_writers().await {
        Ok(Some(meant)) => meant,
        Ok(None) => {
            return findings.record(
                "root",
                "who may write was not checked: only ZooKeeper 3.7 and later tell a client its identity",
            );
        }
        Err(fault) => {
            return findings
                .record("root", format!("the identity that ZooKeeper knows for us cannot be read: {fault}"));
        }
    };
    if meant.is_empty() {
        let message = "ZooKeeper knows no identity of this machine, so no node could be closed to others";
        let remedy = "see that the servers ask for certificates (`ssl.clientAuth=need`), and the port: `fencegate explain FG0524`";
        return findings.report_problem(&["zookeeper", "acl"], DiagnosticCode::NotLetIn, message, remedy);
    }
    let meant_told = meant.join(", ");
    match audit_acls(link, root, &meant).await {
        Ok(found) if found.count > 0 => {
            let set = command_hint::command_line(CommandHintTarget::Gateway, "acl set");
            let remedy = format!("close them: `{set}`; or add whom you mean to `identities`");
            findings.report_problem(
                &["zookeeper", "acl"],
                DiagnosticCode::OpenNodes,
                found.summary(),
                &remedy,
            );
        }
        Ok(found) => {
            let bound = if found.unfinished { ", the first ones of more," } else { "" };
            let says =
                format!("{} nodes{bound} may be written by {meant_told}, and by nobody else", found.looked);
            findings.record("root", says);
        }
        // A missing or closed node is reported by the check that reads it, so it is no problem here.
        Err(ZkError::NoNode | ZkError::Denied(_)) => {
            findings.record("root", format!("what will be made may be written by {meant_told}"))
        }
        Err(fault) => findings.record("root", format!("who may write below {root} cannot be told: {fault}")),
    }
}

async fn check_open_acls(findings: &FindingCollector, acl: AclMode, link: &ZkSession, paths: &ZkPaths) {
    let root = paths.root();
    let nodes = [root.to_owned(), paths.members_path(), paths.locks_path()];
    let mut open = Vec::new();
    for node in nodes {
        match link.acl_grantees(&node).await {
            Ok(writers) => open.extend(report_writers(findings, &node, &writers).then_some(node)),
            Err(ZkError::NoNode) => {}
            Err(fault) => findings.record("root", format!("who may write {node} cannot be told: {fault}")),
        }
    }
    if !open.is_empty() && acl == AclMode::Open {
        findings.record(
            "root",
            format!("everybody may write {}, which `acl: open` says is meant", open.join(", ")),
        );
    } else if !open.is_empty() {
        let message =
            format!("whoever reaches ZooKeeper may write {}, and take every lock away", open.join(", "));
        let remedy = "have gateways show who they are, and write `acl: closed`; or, where a firewall keeps strangers away, `acl: open`";
        findings.report_problem(&["zookeeper", "root"], DiagnosticCode::RootOpen, message, remedy);
    }
}

/// Reports whether anybody may write the node.
fn report_writers(findings: &FindingCollector, node: &str, writers: &[AclGrantee]) -> bool {
    let named = writers.iter().map(|AclGrantee { who, may }| format!("{who} ({may})"));
    let named = named.collect::<Vec<_>>().join(", ");
    findings.record("root", format!("{node} may be written by {named}"));
    writers.iter().any(AclGrantee::is_anyone)
}
