//! `fencegate acl`: shows and sets who may write the nodes of an installation, directly in ZooKeeper.

use clap::Subcommand;
use fencegate_lock::session::{
    applied::{Applied, apply},
    link::{Fault, Link},
    open_nodes::audit,
};
use fencegate_policies::plan;
use fencegate_process::again::{self, Of};
use tracing::info;

use super::{
    config::Config,
    ensemble::{self, Away},
};

#[derive(Debug, Subcommand)]
pub(super) enum Acl {
    /// Name the nodes that others may write, beside those that the policy permits. Reads only.
    Show {
        #[command(flatten)]
        config: Config,
    },
    /// Give every node below the root the ACL that new ones get by this policy. Safe to repeat, and while gateways run.
    Set {
        #[command(flatten)]
        config: Config,
    },
}

/// Why the verb failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Away(#[from] Away),
    #[error("the policy has no `acl: closed`: everybody may write the nodes that its gateways make")]
    Open,
    #[error("ask ZooKeeper for our identity, which only 3.7 and later tell")]
    Unasked(#[source] Option<Fault>),
    #[error("look at the nodes below {root}")]
    Look { root: String, source: Fault },
    #[error("change the nodes below {root}; some may be changed already, so repeat the command")]
    Change { root: String, source: Fault },
    #[error("{0}")]
    OpenNodes(String),
}

impl Acl {
    pub(super) fn config(&self) -> &Config {
        let (Self::Show { config } | Self::Set { config }) = self;
        config
    }
}

/// Runs the verb and returns the text to print.
pub(super) fn run(verb: &Acl, policy: &plan::ZooKeeper) -> Result<String, Trouble> {
    match verb {
        Acl::Show { .. } => show(policy),
        Acl::Set { .. } => set(policy),
    }
}

fn show(policy: &plan::ZooKeeper) -> Result<String, Trouble> {
    if policy.acl != plan::Acl::Closed {
        return Err(Trouble::Open);
    }
    ensemble::ask(policy, async |link, paths| {
        let meant = link.meant().await.map_err(|fault| Trouble::Unasked(Some(fault)))?;
        let meant = meant.ok_or(Trouble::Unasked(None))?;
        let root = paths.root();
        let found = audit(link, root, &meant).await;
        let found = found.map_err(|source| Trouble::Look { root: root.to_owned(), source })?;
        if found.count > 0 {
            let set = again::command(Of::Gateway, "acl set");
            return Err(Trouble::OpenNodes(format!("{}\nTo close them: `{set}`", found.told())));
        }
        let bound = if found.unfinished { ", the first ones of more," } else { "" };
        Ok(format!("{root}: {} nodes{bound} may be written by nobody but {}", found.looked, meant.join(", ")))
    })
}

fn set(policy: &plan::ZooKeeper) -> Result<String, Trouble> {
    ensemble::ask(policy, async |link, paths| {
        let root = paths.root();
        let applied = apply(link, root).await;
        let Applied { nodes, closed_to_us } =
            applied.map_err(|source| Trouble::Change { root: root.to_owned(), source })?;
        // For a later reader of the log, who does not see the terminal.
        info!(target: "audit", root, nodes, "acl set");
        if let Some(first) = closed_to_us.first() {
            let count = closed_to_us.len();
            return Err(Trouble::OpenNodes(format!(
                "{nodes} nodes have the ACL of the policy; {count} are closed to us, as {first}: ask those to whom they belong"
            )));
        }
        Ok(format!("{root}: {nodes} nodes have the ACL of the policy"))
    })
}
