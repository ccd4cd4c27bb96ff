//! Reads and changes the nodes of ZooKeeper without a gateway, as another client.

use std::{cell::RefCell, collections::BTreeSet, net::SocketAddr, time::Duration};

use fencegate_testkit::wait::wait_until;
use serde_json::{Value, json};
use tokio::time::sleep;
use zookeeper_client::{
    Acl, Acls, AddWatchMode, AuthId, Client, CreateMode, Error, EventType, Permission, PersistentWatcher,
};

/// The pause between two tries to connect.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The super user, on servers that have one.
const SUPER: (&str, &[u8]) = ("digest", b"super:super");

/// The nodes below one root.
pub struct ZnodeTree {
    client: Client,
    root: String,
}

/// Records the nodes that are made below `/locks`.
pub struct LockNodeWatch<'t> {
    tree: &'t ZnodeTree,
    events: PersistentWatcher,
}

impl ZnodeTree {
    /// Connects to a server.
    ///
    /// # Panics
    /// If the server does not serve soon.
    pub async fn connect(server: SocketAddr, root: &str) -> Self {
        Self::connect_to_any(&server.to_string(), root).await
    }

    /// Connects to one of `servers`, which are the addresses of one ensemble with commas between them. A server that
    /// has lost the other servers may look for them for a minute, and serves no client meanwhile.
    ///
    /// # Panics
    /// If none of the servers serves soon.
    pub async fn connect_to_any(servers: &str, root: &str) -> Self {
        let connects = async {
            loop {
                // Servers without a super user accept the name, and give it no special rights.
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

    /// The paths of all nodes below the root, without the root's own path in front.
    pub async fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![String::new()];
        while let Some(path) = open.pop() {
            match self.client.list_children(&format!("{}{path}", self.root)).await {
                Ok(children) => {
                    open.extend(children.into_iter().map(|child| format!("{path}/{child}")));
                    found.push(path);
                }
                // The node was deleted after its parent was listed.
                Err(Error::NoNode) => {}
                Err(error) => panic!("list `{}{path}`: {error}", self.root),
            }
        }
        found.retain(|path| !path.is_empty());
        found.sort();
        found
    }

    /// Records from now on the nodes that are made below `/locks`, including nodes that are deleted soon.
    ///
    /// # Panics
    /// If ZooKeeper refuses the watch.
    pub async fn follow_locks(&self) -> LockNodeWatch<'_> {
        let path = format!("{}/locks", self.root);
        let events = self.client.watch(&path, AddWatchMode::PersistentRecursive).await;
        LockNodeWatch { tree: self, events: events.expect("locks can be watched") }
    }

    /// The lock nodes of all keys, which belong to holders and waiters.
    pub async fn locks(&self) -> Vec<String> {
        let mut paths = self.paths().await;
        paths.retain(|path| path.starts_with("/locks/") && path.matches('/').count() == 4);
        paths
    }

    /// Waits until `wanted` accepts the lock nodes.
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

    /// Waits until there are one holder and this number of waiters, over all keys.
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

    /// The number of times that the data of a node was written after the node was made.
    ///
    /// # Panics
    /// If there is no such node.
    pub async fn version(&self, path: &str) -> u64 {
        let stat = self.client.check_stat(&format!("{}{path}", self.root)).await.expect("ZooKeeper serves");
        stat.expect("the node exists").version.try_into().expect("versions are positive")
    }

    /// The nodes by which sessions of gateways are registered, without the probe nodes beside them: these are made
    /// and removed all the time.
    pub async fn members(&self) -> Vec<String> {
        let mut paths = self.paths().await;
        paths.retain(|path| path.starts_with("/members/") && !path.ends_with("-probe"));
        paths
    }

    /// The persistent nodes: of each its path, its data, and the number of times the data was written.
    ///
    /// # Panics
    /// If a node is deleted meanwhile.
    pub async fn persistent_nodes(&self) -> Vec<Value> {
        let mut found = Vec::new();
        for path in self.paths().await {
            let (data, stat) = self.client.get_data(&format!("{}{path}", self.root)).await.expect("there");
            // ZooKeeper reports an ephemeral owner for container nodes as well, so these are left out.
            if stat.ephemeral_owner == 0 {
                let data = String::from_utf8(data).expect("text");
                found.push(json!({"path": path, "data": data, "written": stat.version}));
            }
        }
        found
    }

    /// Makes nodes again that [`Self::persistent_nodes`] has returned. Each is written as many times as before.
    ///
    /// # Panics
    /// If one of the nodes exists, or the list has another form.
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

    /// The data of a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub async fn data(&self, path: &str) -> Vec<u8> {
        self.try_data(path).await.expect("the node exists")
    }

    /// The data of a node, or `None` if there is no such node.
    ///
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
    /// If the node exists, or its parent does not.
    pub async fn create(&self, path: &str, data: &[u8]) {
        let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let made = self.client.create(&format!("{}{path}", self.root), data, &anyone).await;
        made.unwrap_or_else(|error| panic!("create `{}{path}`: {error}", self.root));
    }

    /// Writes the data of one node, as another client would.
    ///
    /// # Panics
    /// If the node does not exist.
    pub async fn set(&self, path: &str, data: &[u8]) {
        let set = self.client.set_data(&format!("{}{path}", self.root), data, None).await;
        set.unwrap_or_else(|error| panic!("set `{}{path}`: {error}", self.root));
    }

    /// Sets the ACL of one node: only clients at 127.0.0.1 may use it.
    ///
    /// # Panics
    /// If the node does not exist.
    pub async fn restrict(&self, path: &str) {
        let local = [Acl::new(Permission::ALL, AuthId::new("ip", "127.0.0.1"))];
        let set = self.client.set_acl(&format!("{}{path}", self.root), &local, None).await;
        set.unwrap_or_else(|error| panic!("setAcl `{}{path}`: {error}", self.root));
    }

    /// The ACL of one node. `ip:127.0.0.1` means that clients at this address have rights.
    ///
    /// # Panics
    /// If the node does not exist.
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
    /// Ends the recording. Returns the whole paths of the nodes that were made before the call.
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

    /// The tree reports lock nodes, and not their parents, from their creation to their deletion.
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
