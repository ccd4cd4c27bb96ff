//! What one test has to itself: an origin, a root in ZooKeeper, and gateways that use both.

use std::net::SocketAddr;

use crate::{
    gateway::{Gateway, Launch},
    origin::Origin,
    policy::Policy,
    zookeeper::{self, Tree},
};

pub struct Site {
    pub origin: Origin,
    pub zookeeper: SocketAddr,
    pub root: String,
}

impl Site {
    /// On the ZooKeeper that all tests share.
    pub fn fresh() -> Self {
        Self::at(zookeeper::shared())
    }

    pub fn at(zookeeper: SocketAddr) -> Self {
        Self { origin: Origin::start(), zookeeper, root: zookeeper::fresh_root() }
    }

    /// With an upstream that compares tokens.
    #[must_use]
    pub fn comparing(self) -> Self {
        Self { origin: Origin::comparing(), ..self }
    }

    /// The policy of a gateway with a door of its own at the origin.
    pub fn policy(&self, name: &str) -> Policy {
        Policy::new(name, self.zookeeper, &self.root, self.origin.door(name))
    }

    pub async fn gateway(&self, name: &str) -> Gateway {
        Gateway::start(&self.policy(name)).await
    }

    /// A gateway that stops at a failpoint once, for so long.
    pub async fn pausing(&self, name: &str, failpoint: &str, milliseconds: u32) -> Gateway {
        let action = format!("1*sleep({milliseconds})");
        let gateway = Launch::new(&self.policy(name)).failpoint(failpoint, &action).start().await;
        gateway.becomes_ready().await;
        gateway
    }

    pub async fn tree(&self) -> Tree {
        Tree::connect(self.zookeeper, &self.root).await
    }
}
