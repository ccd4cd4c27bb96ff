//! One real ZooKeeper for all tests of a process, and a look at its tree that does not go through a gateway.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fencegate::demo::zookeeper::{PrivateZooKeeper, Settings};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::spawn_blocking,
};
use zookeeper_client::{
    Acl, Acls, AddWatchMode, AuthId, Client, CreateMode, Error, EventType, Permission, PersistentWatcher,
};

use crate::{patience::patiently, scratch};

/// The server that all tests share; it dies with the process. A test that stops its server starts one of its own.
pub fn shared() -> SocketAddr {
    static SERVER: LazyLock<PrivateZooKeeper> = LazyLock::new(|| {
        let data = scratch::folder().join("zookeeper");
        PrivateZooKeeper::start(&data, Settings::default()).expect("ZooKeeper starts")
    });
    SERVER.address()
}

/// A path that no other test uses.
pub fn fresh_root() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("/t/{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Sends one of ZooKeeper's four-letter words; the answer ends with the connection.
///
/// # Errors
/// When nobody answers.
pub async fn ask(server: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The number of the last transaction that a server has seen: everything that was written has one.
///
/// # Panics
/// If the server does not answer.
pub async fn last_zxid(server: SocketAddr) -> u64 {
    let answer = ask(server, "srvr").await.expect("the server is up");
    let zxid = answer.lines().find_map(|line| line.strip_prefix("Zxid: 0x"));
    u64::from_str_radix(zxid.expect("a server that serves"), 16).expect("hexadecimal")
}

/// A server that one test may stop and freeze.
pub struct OwnZooKeeper {
    pub server: PrivateZooKeeper,
    data: TempDir,
}

/// One that was stopped, and has its data still.
pub struct Stopped(OwnZooKeeper);

/// What a server had written down at some time.
pub struct Backup(TempDir);

/// What stands below one root.
pub struct Tree {
    client: Client,
    root: String,
}

/// Which nodes were made below `/locks`.
pub struct Followed<'t> {
    tree: &'t Tree,
    events: PersistentWatcher,
}

impl Followed<'_> {
    /// The whole paths of those that were made before this was called.
    pub async fn made(mut self) -> BTreeSet<String> {
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

impl OwnZooKeeper {
    /// Blocks for about a second: until the server serves.
    pub fn start() -> Self {
        let data = TempDir::new_in(scratch::folder()).expect("a folder");
        let server = PrivateZooKeeper::start(data.path(), Settings::default()).expect("ZooKeeper starts");
        Self { server, data }
    }

    /// A copy of its data, taken while it is stopped for a moment.
    pub async fn backed_up(self) -> (Self, Backup) {
        self.stopped(|data| {
            let copy = TempDir::new_in(scratch::folder()).expect("a folder");
            copy_files(&data, copy.path());
            Backup(copy)
        })
        .await
    }

    /// As it was when the copy was taken.
    pub async fn restored(self, backup: &Backup) -> Self {
        let from = backup.0.path().to_owned();
        let restore = move |data: PathBuf| {
            fs::remove_dir_all(&data).expect("our own");
            copy_files(&from, &data);
        };
        self.stopped(restore).await.0
    }

    /// As if it had never served anybody.
    pub async fn wiped(self) -> Self {
        self.stopped(|data| fs::remove_dir_all(&data).expect("our own")).await.0
    }

    /// Started again on the same data, and from now on it keeps no session for longer than this.
    pub async fn keeping_sessions_for(self, most: Duration) -> Self {
        let change = move |data: PathBuf| {
            let file = data.parent().expect("below the server's folder").join("zoo.cfg");
            let text = fs::read_to_string(&file).expect("our own");
            let others = text.lines().filter(|line| !line.starts_with("maxSessionTimeout="));
            let text = others.map(|line| format!("{line}\n")).collect::<String>();
            let most = most.as_millis();
            fs::write(&file, format!("{text}maxSessionTimeout={most}\n")).expect("our own");
        };
        self.stopped(change).await.0
    }

    /// Whoever is connected is hung up on, and nobody else is answered.
    pub async fn stop(mut self) -> Stopped {
        let stopped = spawn_blocking(move || {
            self.server.stop();
            Stopped(self)
        });
        stopped.await.expect("no panic")
    }

    /// Does something to the data of the stopped server, and starts it again.
    async fn stopped<R: Send + 'static>(
        self,
        change: impl FnOnce(PathBuf) -> R + Send + 'static,
    ) -> (Self, R) {
        let stopped = self.stop().await;
        let data = stopped.0.data.path().join("version-2");
        let done = spawn_blocking(move || change(data)).await.expect("no panic");
        (stopped.start_again().await, done)
    }
}

impl Stopped {
    /// On the same port, with the same data.
    pub async fn start_again(mut self) -> OwnZooKeeper {
        let started = spawn_blocking(move || {
            self.0.server.start_again().expect("ZooKeeper starts again");
            self.0
        });
        started.await.expect("no panic")
    }
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("our own");
    for file in fs::read_dir(from).expect("our own") {
        let file = file.expect("our own");
        fs::copy(file.path(), to.join(file.file_name())).expect("our own");
    }
}

impl Tree {
    pub async fn connect(server: SocketAddr, root: &str) -> Self {
        let connector = Client::connector().with_session_timeout(Duration::from_secs(30));
        let client = connector.connect(&server.to_string()).await.expect("ZooKeeper serves");
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
    pub async fn follow_locks(&self) -> Followed<'_> {
        let path = format!("{}/locks", self.root);
        let events = self.client.watch(&path, AddWatchMode::PersistentRecursive).await;
        Followed { tree: self, events: events.expect("locks can be watched") }
    }

    /// The lock nodes of all keys: what holds or waits.
    pub async fn locks(&self) -> Vec<String> {
        let mut paths = self.paths().await;
        paths.retain(|path| path.starts_with("/locks/") && path.matches('/').count() == 4);
        paths
    }

    /// Waits until the lock nodes are as wanted.
    pub async fn locks_become(&self, what: &str, wanted: impl Fn(&[String]) -> bool) {
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
        patiently(what, become_so, || last.take()).await;
    }

    /// The zxid that created a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub async fn created(&self, path: &str) -> u64 {
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

    /// The registrations of the gateways' sessions, without the nodes that ask beside them whether a session is still
    /// ours: those come and go.
    pub async fn members(&self) -> Vec<String> {
        let mut paths = self.paths().await;
        paths.retain(|path| path.starts_with("/members/") && !path.ends_with("-probe"));
        paths
    }

    /// # Panics
    /// If there is no such node.
    pub async fn data(&self, path: &str) -> Vec<u8> {
        self.data_if_there(path).await.expect("the node exists")
    }

    /// # Panics
    /// If ZooKeeper does not serve.
    pub async fn data_if_there(&self, path: &str) -> Option<Vec<u8>> {
        match self.client.get_data(&format!("{}{path}", self.root)).await {
            Ok((data, _)) => Some(data),
            Err(Error::NoNode) => None,
            Err(error) => panic!("read `{}{path}`: {error}", self.root),
        }
    }

    /// Makes one node below the root that stays, as a stranger would.
    ///
    /// # Panics
    /// If it is there, or its parent is not.
    pub async fn create(&self, path: &str, data: &[u8]) {
        let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let made = self.client.create(&format!("{}{path}", self.root), data, &anyone).await;
        made.unwrap_or_else(|error| panic!("create `{}{path}`: {error}", self.root));
    }

    /// Writes the data of one node, as a stranger would.
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

    /// Who may do anything with one node: `ip:127.0.0.1`.
    ///
    /// # Panics
    /// If it is not there.
    pub async fn access(&self, path: &str) -> Vec<String> {
        let (acls, _) = self.client.get_acl(&format!("{}{path}", self.root)).await.expect("there");
        acls.iter().map(|acl| format!("{}:{}", acl.scheme(), acl.id())).collect()
    }

    /// Removes one node below the root, as a stranger would.
    pub async fn delete(&self, path: &str) -> Result<(), Error> {
        self.client.delete(&format!("{}{path}", self.root), None).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tree_sees_lock_nodes_come_and_go() {
        let root = fresh_root();
        let tree = Tree::connect(shared(), &root).await;
        assert_eq!(tree.paths().await, [""; 0]);
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        tree.client.mkdir(&format!("{root}/locks/a7/key"), &persistent).await.expect("made");
        assert_eq!(tree.paths().await, ["/locks", "/locks/a7", "/locks/a7/key"]);
        assert_eq!(tree.locks().await, [""; 0]);

        let node = format!("{root}/locks/a7/key/n-");
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let created = tree.client.create(&node, b"", &mode);
        let ((), made) = tokio::join!(tree.locks_become("one", |locks| locks.len() == 1), created);
        let (stat, _) = made.expect("made");
        assert_eq!(tree.created("/locks/a7/key/n-0000000000").await, stat.czxid.unsigned_abs());

        let ((), deleted) = tokio::join!(
            tree.locks_become("none", <[String]>::is_empty),
            tree.delete("/locks/a7/key/n-0000000000")
        );
        assert_eq!(deleted, Ok(()));
    }
}
