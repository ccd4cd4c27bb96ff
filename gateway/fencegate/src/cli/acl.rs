//! `fencegate acl`: shows and sets which identities may write the nodes of an installation, directly in ZooKeeper.

use std::process::ExitCode;

use clap::Subcommand;
use fencegate_policies::plan;
use fencegate_process::command_hint::{self, CommandHintTarget};
use fencegate_zookeeper::session::{
    acl_audit::{AclAuditReport, audit_acls},
    apply_acl::{AclApplyReport, apply_acl},
    client::{ZkClient, ZkError},
};
use serde_json::json;
use tracing::info;

use super::{
    config::ConfigArgs,
    ensemble::{self, ConnectZooKeeperError},
    exit::RUNTIME,
    log::OutputFormat,
    out::{print_result, print_text, report_error},
};

#[derive(Debug, Subcommand)]
pub(super) enum AclCommand {
    /// Name the nodes that others may write, beside those that the policy permits. Reads only.
    Show {
        #[command(flatten)]
        config: ConfigArgs,
        /// The form of the output; `json` for programs.
        #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
        format: OutputFormat,
    },
    /// Give every node below the root the ACL that new ones get by this policy. Safe to repeat, and while gateways run.
    Set {
        #[command(flatten)]
        config: ConfigArgs,
    },
}

/// The reason for which the verb failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum AclCommandError {
    #[error(transparent)]
    Away(#[from] ConnectZooKeeperError),
    #[error("the policy has no `acl: closed`: everybody may write the nodes that its gateways make")]
    Open,
    #[error("cannot read this client's identity from ZooKeeper, which reports it from 3.7 on")]
    Unasked(#[source] Option<ZkError>),
    #[error("cannot read the nodes below {root}")]
    Look { root: String, source: ZkError },
    #[error("cannot change the nodes below {root} (some may be changed already, so repeat the command)")]
    Change { root: String, source: ZkError },
    #[error("{0}")]
    OpenNodes(String),
}

impl AclCommand {
    pub(super) fn config(&self) -> &ConfigArgs {
        let (Self::Show { config, .. } | Self::Set { config }) = self;
        config
    }
}

/// Runs the verb and prints its result.
pub(super) fn run(verb: &AclCommand, policy: &plan::ZooKeeperSettings) -> Result<(), ExitCode> {
    match verb {
        AclCommand::Show { format, .. } => {
            let shown = show(policy).map_err(|error| report_error(&error))?;
            match format {
                OutputFormat::Text => print_result(shown.text()),
                OutputFormat::Json => {
                    print_text(shown.json())?;
                    if shown.audit.count > 0 { Err(ExitCode::from(RUNTIME)) } else { Ok(()) }
                }
            }
        }
        AclCommand::Set { .. } => print_result(set(policy)),
    }
}

/// The identities that may write the nodes of an installation.
struct AclSnapshot {
    root: String,
    /// The identities that the policy permits.
    intended: Vec<String>,
    audit: AclAuditReport,
}

impl AclSnapshot {
    /// The report for people.
    ///
    /// # Errors
    /// Returns an error if identities other than the intended ones may write some of the nodes.
    fn text(&self) -> Result<String, AclCommandError> {
        let Self { root, intended, audit } = self;
        if audit.count > 0 {
            let set = command_hint::command_line(CommandHintTarget::Gateway, "acl set");
            return Err(AclCommandError::OpenNodes(format!("{}\nTo close them: `{set}`", audit.summary())));
        }
        let bound = if audit.unfinished { ", the first ones of more," } else { "" };
        let writers = intended.join(", ");
        Ok(format!("{root}: {} nodes{bound} may be written by nobody but {writers}", audit.looked))
    }

    /// The report for programs. `open_nodes` names only the first ones of the open nodes.
    fn json(&self) -> String {
        let Self { root, intended, audit: AclAuditReport { looked, unfinished, open, count } } = self;
        let document = json!({
            "root": root,
            "writers": intended,
            "nodes": looked,
            "more_nodes": unfinished,
            "open": count,
            "open_nodes": open,
        });
        format!("{document:#}")
    }
}

fn show(policy: &plan::ZooKeeperSettings) -> Result<AclSnapshot, AclCommandError> {
    if policy.acl != plan::AclMode::Closed {
        return Err(AclCommandError::Open);
    }
    ensemble::with_session(policy, async |link, paths| {
        let meant = link.intended_writers().await.map_err(|fault| AclCommandError::Unasked(Some(fault)))?;
        let intended = meant.ok_or(AclCommandError::Unasked(None))?;
        let root = paths.root();
        let audit = audit_acls(link, root, &intended).await;
        let audit = audit.map_err(|source| AclCommandError::Look { root: root.to_owned(), source })?;
        Ok(AclSnapshot { root: root.to_owned(), intended, audit })
    })
}

fn set(policy: &plan::ZooKeeperSettings) -> Result<String, AclCommandError> {
    ensemble::with_session(policy, async |link, paths| {
        let root = paths.root();
        let applied = apply_acl(link, root).await;
        let AclApplyReport { nodes, closed_to_us } =
            applied.map_err(|source| AclCommandError::Change { root: root.to_owned(), source })?;
        // The audit log records the change for readers who do not see the terminal.
        info!(target: "audit", root, nodes, "acl set");
        if let Some(first) = closed_to_us.first() {
            let count = closed_to_us.len();
            return Err(AclCommandError::OpenNodes(format!(
                "{nodes} nodes have the ACL of the policy; {count} are closed to us, as {first}: ask those to whom they belong"
            )));
        }
        Ok(format!("{root}: {nodes} nodes have the ACL of the policy"))
    })
}
