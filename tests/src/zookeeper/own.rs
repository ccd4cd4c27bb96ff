//! A server that one test may stop, freeze, wipe, and set back to what it was.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use fencegate_testkit::{
    scratch,
    zookeeper::{PrivateZooKeeper, ZooKeeperServerConfig},
};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

/// A server that one test may stop and freeze.
pub struct OwnZooKeeper {
    pub server: PrivateZooKeeper,
    data: TempDir,
}

/// One that was stopped, and has its data still.
pub struct StoppedZooKeeper(OwnZooKeeper);

/// What a server had written down at some time.
pub struct ZooKeeperBackup(TempDir);

impl OwnZooKeeper {
    /// Blocks for about a second: until the server serves.
    pub fn start() -> Self {
        let data = scratch::temp_dir();
        let server =
            PrivateZooKeeper::start(data.path(), ZooKeeperServerConfig::default()).expect("ZooKeeper starts");
        Self { server, data }
    }

    /// A copy of its data, taken while it is stopped for a moment.
    pub async fn back_up(self) -> (Self, ZooKeeperBackup) {
        self.while_stopped(|data| {
            let copy = scratch::temp_dir();
            copy_files(&data, copy.path());
            ZooKeeperBackup(copy)
        })
        .await
    }

    /// As it was when the copy was taken.
    pub async fn restore(self, backup: &ZooKeeperBackup) -> Self {
        let from = backup.0.path().to_owned();
        let restore = move |data: PathBuf| {
            fs::remove_dir_all(&data).expect("our own");
            copy_files(&from, &data);
        };
        self.while_stopped(restore).await.0
    }

    /// As if it had never served a client.
    pub async fn wipe(self) -> Self {
        self.while_stopped(|data| fs::remove_dir_all(&data).expect("our own")).await.0
    }

    /// Started again on the same data, and from now on it keeps no session for longer than this.
    pub async fn with_max_session(self, most: Duration) -> Self {
        let change = move |data: PathBuf| {
            let file = data.parent().expect("below the server's folder").join("zoo.cfg");
            let text = fs::read_to_string(&file).expect("our own");
            let others = text.lines().filter(|line| !line.starts_with("maxSessionTimeout="));
            let text = others.map(|line| format!("{line}\n")).collect::<String>();
            let most = most.as_millis();
            fs::write(&file, format!("{text}maxSessionTimeout={most}\n")).expect("our own");
        };
        self.while_stopped(change).await.0
    }

    /// All connections are closed, and no client is answered.
    pub async fn stop(mut self) -> StoppedZooKeeper {
        let stopped = spawn_blocking(move || {
            self.server.stop();
            StoppedZooKeeper(self)
        });
        stopped.await.expect("no panic")
    }

    /// Does something to the data of the stopped server, and starts it again.
    async fn while_stopped<R: Send + 'static>(
        self,
        change: impl FnOnce(PathBuf) -> R + Send + 'static,
    ) -> (Self, R) {
        let stopped = self.stop().await;
        let data = stopped.0.data.path().join("version-2");
        let done = spawn_blocking(move || change(data)).await.expect("no panic");
        (stopped.restart().await, done)
    }
}

impl StoppedZooKeeper {
    /// On the same port, with the same data.
    pub async fn restart(mut self) -> OwnZooKeeper {
        let started = spawn_blocking(move || {
            self.0.server.restart().expect("ZooKeeper starts again");
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
