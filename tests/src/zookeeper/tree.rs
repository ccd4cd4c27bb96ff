//! Reads and changes the nodes of ZooKeeper without a gateway, like another client.

use std::{cell::RefCell, collections::BTreeSet, net::SocketAddr, time::Duration};

use fencegate_testkit::wait::wait_until;
use serde_json::{Value, json};
use tokio::time::sleep;
use zookeeper_client::{
    Acl, Acls, AddWatchMode, AuthId, Client, CreateMode, Error, EventType, Permission, PersistentWatcher,
};

/// Between two tries to connect.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The super user of those servers that have one.
const SUPER: (&str, &[u8]) = ("digest", b"super:super");

/// What stands below one root.
pub struct ZnodeTree {
    client: Client,
    root: String,
}

/// Which nodes were made below `/locks`.
pub struct LockNodeWatch<'t> {
    tree: &'t ZnodeTree,
    events: PersistentWatcher,
}

impl ZnodeTree {
    /// # Panics
    /// If the server does not serve soon.
    pub async fn connect(server: SocketAddr, root: &str) -> Self {
        Self::connect_to_any(&server.to_string(), root).await
    }

    /// `servers`: of one ensemble, with commas between them. One that has lost sight of the other servers may look for
    /// them for a minute, and serves no client meanwhile.
    ///
    /// # Panics
    /// If none of them serves soon.
    pub async fn connect_to_any(servers: &str, root: &str) -> Self {
        let connects = async {
            loop {
                // Servers without a super user take the name and let it pass.
                let connector = Client::connector()
                    .with_session_timeout(Duration::from_secs(30))
                    .with_auth(SUPER.0, SUPER.1);
                match connector.connect(servers).await {
                    Ok(client) => break client,
                    Err(_) => sleep(LOOK_AGAIN).await,
                }
            }
        };
        let client = wait_until("ZooKeeper to serve", connects, || servers).await;
        Self { client, root: root.to_owned() }
    }

    /// Every path below the root, without it.
    pub async fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![String::new()];
        while let Some(path) = open.pop() {
            match self.client.list_children(&format!("{}{path}", self.root)).await {
                Ok(children) => {
                    open.extend(children.into_iter().map(|child| format!("{path}/{child}")));
                    found.push(path);
                }
                // It went while we looked.
                Err(Error::NoNode) => {}
                Err(error) => panic!("list `{}{path}`: {error}", self.root),
            }
        }
        found.retain(|path| !path.is_empty());
        found.sort();
        found
    }

    /// Follows from now on which nodes are made below `/locks`, also those that are gone again.
    ///
    /// # Panics
    /// If ZooKeeper does not let us watch.
    pub async fn follow_locks(&self) -> LockNodeWatch<'_> {
        let path = format!("{}/locks", self.root);
        let events = self.client.watch(&path, AddWatchMode::PersistentRecursive).await;
        LockNodeWatch { tree: self, events: events.expect("locks can be watched") }
    }

    /// The lock nodes of all keys: what holds or waits.
    pub async fn locks(&self) -> Vec<String> {
        let mut paths = self.paths().await;
        paths.retain(|path| path.starts_with("/locks/") && path.matches('/').count() == 4);
        paths
    }

    /// Waits until the lock nodes are as wanted.
    pub async fn wait_locks(&self, what: &str, wanted: impl Fn(&[String]) -> bool) {
        let mut changes =
            self.client.watch(&self.root, AddWatchMode::PersistentRecursive).await.expect("a watch");
        let last = RefCell::<Vec<String>>::default();
        let become_so = async {
            loop {
                let locks = self.locks().await;
                if wanted(&locks) {
                    return;
                }
                last.replace(locks);
                changes.changed().await;
            }
        };
        wait_until(what, become_so, || last.take()).await;
    }

    /// Waits until no key has a holder or a waiter.
    pub async fn assert_no_locks(&self) {
        self.wait_locks("none left", <[String]>::is_empty).await;
    }

    /// Waits until so many wait in the queue behind a holder, and no other key has a holder or a waiter.
    pub async fn wait_waiters(&self, waiters: usize) {
        let what = format!("a holder and {waiters} waiters");
        self.wait_locks(&what, |locks| locks.len() == 1 + waiters).await;
    }

    /// The zxid that created a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub async fn created_zxid(&self, path: &str) -> u64 {
        let stat = self.client.check_stat(&format!("{}{path}", self.root)).await.expect("ZooKeeper serves");
        stat.expect("the node exists").czxid.try_into().expect("zxids are positive")
    }

    /// How often the data of a node was written since it was made.
    ///
    /// # Panics
    /// If there is no such node.
    pub async fn version(&self, path: &str) -> u64 {
        let stat = self.client.check_stat(&format!("{}{path}", self.root)).await.expect("ZooKeeper serves");
        stat.expect("the node exists").version.try_into().expect("versions are positive")
    }

    /// The registrations of the gateways' sessions, without the probe nodes beside them, which are created and
    /// removed all the time.
    pub async fn members(&self) -> Vec<String> {
        let mut paths = self.paths().await;
        paths.retain(|path| path.starts_with("/members/") && !path.ends_with("-probe"));
        paths
    }

    /// The nodes that are there until they are deleted: of each its path, its data, and how often that was written.
    ///
    /// # Panics
    /// If a node goes meanwhile.
    pub async fn persistent_nodes(&self) -> Vec<Value> {
        let mut found = Vec::new();
        for path in self.paths().await {
            let (data, stat) = self.client.get_data(&format!("{}{path}", self.root)).await.expect("there");
            // Containers have an owner as well.
            if stat.ephemeral_owner == 0 {
                let data = String::from_utf8(data).expect("text");
                found.push(json!({"path": path, "data": data, "written": stat.version}));
            }
        }
        found
    }

    /// Makes such nodes again, each written as often as it was.
    ///
    /// # Panics
    /// If one is there, or this is no list of nodes.
    pub async fn restore(&self, nodes: &[Value]) {
        let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.client.mkdir(&self.root, &anyone).await.expect("ZooKeeper serves");
        for node in nodes {
            let [path, data] = ["path", "data"].map(|field| node[field].as_str().expect("text"));
            self.create(path, data.as_bytes()).await;
            for _ in 0..node["written"].as_u64().expect("a number") {
                self.set(path, data.as_bytes()).await;
            }
        }
    }

    /// # Panics
    /// If there is no such node.
    pub async fn data(&self, path: &str) -> Vec<u8> {
        self.try_data(path).await.expect("the node exists")
    }

    /// # Panics
    /// If ZooKeeper does not serve.
    pub async fn try_data(&self, path: &str) -> Option<Vec<u8>> {
        match self.client.get_data(&format!("{}{path}", self.root)).await {
            Ok((data, _)) => Some(data),
            Err(Error::NoNode) => None,
            Err(error) => panic!("read `{}{path}`: {error}", self.root),
        }
    }

    /// Makes one persistent node below the root, as another client would.
    ///
    /// # Panics
    /// If it is there, or its parent is not.
    pub async fn create(&self, path: &str, data: &[u8]) {
        let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let made = self.client.create(&format!("{}{path}", self.root), data, &anyone).await;
        made.unwrap_or_else(|error| panic!("create `{}{path}`: {error}", self.root));
    }

    /// Writes the data of one node, as another client would.
    ///
    /// # Panics
    /// If it is not there.
    pub async fn set(&self, path: &str, data: &[u8]) {
        let set = self.client.set_data(&format!("{}{path}", self.root), data, None).await;
        set.unwrap_or_else(|error| panic!("set `{}{path}`: {error}", self.root));
    }

    /// Lets only this machine change one node.
    ///
    /// # Panics
    /// If it is not there.
    pub async fn restrict(&self, path: &str) {
        let local = [Acl::new(Permission::ALL, AuthId::new("ip", "127.0.0.1"))];
        let set = self.client.set_acl(&format!("{}{path}", self.root), &local, None).await;
        set.unwrap_or_else(|error| panic!("setAcl `{}{path}`: {error}", self.root));
    }

    /// The ACL of one node: `ip:127.0.0.1` may do anything.
    ///
    /// # Panics
    /// If it is not there.
    pub async fn access(&self, path: &str) -> Vec<String> {
        let (acls, _) = self.client.get_acl(&format!("{}{path}", self.root)).await.expect("there");
        acls.iter().map(|acl| format!("{}:{}", acl.scheme(), acl.id())).collect()
    }

    /// Removes one node below the root, as another client would.
    pub async fn delete(&self, path: &str) -> Result<(), Error> {
        self.client.delete(&format!("{}{path}", self.root), None).await
    }
}

impl LockNodeWatch<'_> {
    /// The whole paths of those that were made before this was called.
    pub async fn stop(mut self) -> BTreeSet<String> {
        const LAST: &str = "/locks/made-last";
        self.tree.create(LAST, b"").await;
        let mut made = BTreeSet::new();
        loop {
            let event = self.events.changed().await;
            if event.event_type != EventType::NodeCreated {
                continue;
            }
            if event.path.ends_with(LAST) {
                return made;
            }
            made.insert(event.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zookeeper::{fresh_root, shared};

    /// The tree reports lock nodes when they are created and when they are deleted, apart from their parents.
    #[tokio::test]
    async fn lock_nodes_appear_and_disappear() {
        let root = fresh_root();
        let tree = ZnodeTree::connect(shared(), &root).await;
        assert_eq!(tree.paths().await, [""; 0]);
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        tree.client.mkdir(&format!("{root}/locks/a7/key"), &persistent).await.expect("made");
        assert_eq!(tree.paths().await, ["/locks", "/locks/a7", "/locks/a7/key"]);
        assert_eq!(tree.locks().await, [""; 0]);

        let node = format!("{root}/locks/a7/key/n-");
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let created = tree.client.create(&node, b"", &mode);
        let ((), made) = tokio::join!(tree.wait_locks("one", |locks| locks.len() == 1), created);
        let (stat, _) = made.expect("made");
        assert_eq!(tree.created_zxid("/locks/a7/key/n-0000000000").await, stat.czxid.unsigned_abs());

        let ((), deleted) = tokio::join!(
            tree.wait_locks("none", <[String]>::is_empty),
            tree.delete("/locks/a7/key/n-0000000000")
        );
        assert_eq!(deleted, Ok(()));
    }
}
