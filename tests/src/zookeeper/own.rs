//! A ZooKeeper server of one test, which the test may stop, freeze, wipe, and set back to a backup.

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

/// A ZooKeeper server that belongs to one test.
pub struct OwnZooKeeper {
    pub server: PrivateZooKeeper,
    data: TempDir,
}

/// A stopped server that still has its data.
pub struct StoppedZooKeeper(OwnZooKeeper);

/// A copy of a server's data.
pub struct ZooKeeperBackup(TempDir);

impl OwnZooKeeper {
    /// Starts a server. Blocks for about a second, until the server serves.
    pub fn start() -> Self {
        let data = scratch::temp_dir();
        let server =
            PrivateZooKeeper::start(data.path(), ZooKeeperServerConfig::default()).expect("ZooKeeper starts");
        Self { server, data }
    }

    /// Copies the data of the server, which is stopped for a moment.
    pub async fn back_up(self) -> (Self, ZooKeeperBackup) {
        self.while_stopped(|data| {
            let copy = scratch::temp_dir();
            copy_files(&data, copy.path());
            ZooKeeperBackup(copy)
        })
        .await
    }

    /// Replaces the data of the server by a backup.
    pub async fn restore(self, backup: &ZooKeeperBackup) -> Self {
        let from = backup.0.path().to_owned();
        let restore = move |data: PathBuf| {
            fs::remove_dir_all(&data).expect("our own");
            copy_files(&from, &data);
        };
        self.while_stopped(restore).await.0
    }

    /// Removes the data of the server, as if no client had ever written.
    pub async fn wipe(self) -> Self {
        self.while_stopped(|data| fs::remove_dir_all(&data).expect("our own")).await.0
    }

    /// Restarts the server on the same data, with this limit on session timeouts.
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

    /// Stops the server. All connections are closed, and no client is answered.
    pub async fn stop(mut self) -> StoppedZooKeeper {
        let stopped = spawn_blocking(move || {
            self.server.stop();
            StoppedZooKeeper(self)
        });
        stopped.await.expect("no panic")
    }

    /// Stops the server, changes its data, and starts it again.
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
    /// Starts the server on the same port, with the same data.
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
