//! `fencegate era`: straight to ZooKeeper, no gateway needed.

use std::io;

use fencegate_policies::plan;
use tokio::task::LocalSet;

use crate::{
    randomness::SystemRandomness,
    session::{
        era::{self, Init, Unreadable},
        link::{Connect, Fault, Link},
        paths::Paths,
        zookeeper::Servers,
    },
};

/// Why nothing could be said or done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("start a runtime")]
    Runtime(#[from] io::Error),
    #[error("connect to ZooKeeper at {servers}")]
    Connect { servers: String, source: Fault },
    #[error("make the nodes below {root}")]
    Make { root: String, source: Fault },
    #[error(transparent)]
    Read(#[from] Unreadable),
}

/// Makes the installation's nodes where missing, and says what is there then.
pub(super) fn init(policy: &plan::ZooKeeper) -> Result<String, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let connected = Servers::of(policy).connect().await;
        let link =
            connected.map_err(|source| Trouble::Connect { servers: policy.servers.join(","), source })?;
        let paths = Paths::below(&policy.root);
        let init = era::init(&link, &paths, &SystemRandomness)
            .await
            .map_err(|source| Trouble::Make { root: policy.root.clone(), source })?;
        let era = era::read(&link, &paths).await?;
        link.close().await;
        let how = if init == Init::Made { "made" } else { "already there" };
        Ok(format!("{}: {how}, installation {}, era {}", paths.meta(), era.meta.uuid, era.meta.era))
    })
}
