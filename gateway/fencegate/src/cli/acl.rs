//! `fencegate acl`: shows and sets who may write the nodes of an installation, directly in ZooKeeper.

use clap::Subcommand;
use fencegate_policies::plan;
use fencegate_process::command_hint::{self, CommandHintTarget};
use fencegate_zookeeper::session::{
    acl_audit::audit_acls,
    apply_acl::{AclApplyReport, apply_acl},
    client::{ZkClient, ZkError},
};
use tracing::info;

use super::{
    config::ConfigArgs,
    ensemble::{self, ConnectZooKeeperError},
};

#[derive(Debug, Subcommand)]
pub(super) enum AclCommand {
    /// Name the nodes that others may write, beside those that the policy permits. Reads only.
    Show {
        #[command(flatten)]
        config: ConfigArgs,
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
    #[error("ask ZooKeeper for our identity, which only 3.7 and later tell")]
    Unasked(#[source] Option<ZkError>),
    #[error("look at the nodes below {root}")]
    Look { root: String, source: ZkError },
    #[error("change the nodes below {root}; some may be changed already, so repeat the command")]
    Change { root: String, source: ZkError },
    #[error("{0}")]
    OpenNodes(String),
}

impl AclCommand {
    pub(super) fn config(&self) -> &ConfigArgs {
        let (Self::Show { config } | Self::Set { config }) = self;
        config
    }
}

/// Runs the verb and returns the text to print.
pub(super) fn run(verb: &AclCommand, policy: &plan::ZooKeeperSettings) -> Result<String, AclCommandError> {
    match verb {
        AclCommand::Show { .. } => show(policy),
        AclCommand::Set { .. } => set(policy),
    }
}

fn show(policy: &plan::ZooKeeperSettings) -> Result<String, AclCommandError> {
    if policy.acl != plan::AclMode::Closed {
        return Err(AclCommandError::Open);
    }
    ensemble::with_session(policy, async |link, paths| {
        let meant = link.intended_writers().await.map_err(|fault| AclCommandError::Unasked(Some(fault)))?;
        let meant = meant.ok_or(AclCommandError::Unasked(None))?;
        let root = paths.root();
        let found = audit_acls(link, root, &meant).await;
        let found = found.map_err(|source| AclCommandError::Look { root: root.to_owned(), source })?;
        if found.count > 0 {
            let set = command_hint::command_line(CommandHintTarget::Gateway, "acl set");
            return Err(AclCommandError::OpenNodes(format!("{}\nTo close them: `{set}`", found.summary())));
        }
        let bound = if found.unfinished { ", the first ones of more," } else { "" };
        Ok(format!("{root}: {} nodes{bound} may be written by nobody but {}", found.looked, meant.join(", ")))
    })
}

fn set(policy: &plan::ZooKeeperSettings) -> Result<String, AclCommandError> {
    ensemble::with_session(policy, async |link, paths| {
        let root = paths.root();
        let applied = apply_acl(link, root).await;
        let AclApplyReport { nodes, closed_to_us } =
            applied.map_err(|source| AclCommandError::Change { root: root.to_owned(), source })?;
        // For a later reader of the log, who does not see the terminal.
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
