//! Processes whose log is not read: their stdout and stderr are one pipe that is full from the start.

use std::{net::SocketAddr, path::Path, time::Duration};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    scratch,
    wait::wait_until,
};
use tempfile::TempDir;
use tokio::{task::spawn_blocking, time::sleep};

use crate::{
    client::TestRequest, ensemble::free_ports, gateway::write_policy, policy::TestPolicy, process::binary,
};

/// A gateway or a guard whose log is not read.
pub struct UnreadProcess {
    child: ChildProcess,
    pub public: SocketAddr,
    pub admin: SocketAddr,
    _home: TempDir,
}

/// The script that starts a process with a full pipe. The pipe holds 64 KiB, its reader takes nothing, and the
/// reader ends with the process.
const SCRIPT: &str = r#"mkfifo "$0" && { setpriv --pdeathsig KILL sleep 600 < "$0" & } && head -c 65536 /dev/zero > "$0" && exec "$@" > "$0" 2>&1"#;

/// Runs the binary under test with these arguments, and a log that is not read.
///
/// # Panics
/// If the shell cannot be started.
pub fn run_unread(home: &Path, environment: &[&str], arguments: &[&str]) -> ChildProcess {
    let pipe = home.join("log").display().to_string();
    let mut line = vec!["-c".to_owned(), SCRIPT.to_owned(), pipe, "env".to_owned()];
    line.extend(environment.iter().map(|word| (*word).to_owned()));
    line.push(binary().display().to_string());
    line.extend(arguments.iter().map(|word| (*word).to_owned()));
    ChildProcess::spawn("sh", line).expect("setpriv")
}

impl UnreadProcess {
    /// Starts a gateway and waits until it is ready.
    ///
    /// # Panics
    /// If the gateway does not become ready.
    pub async fn gateway(policy: TestPolicy, environment: &[&str]) -> Self {
        Self::start(policy, "/listeners/public/address", environment, &["run", "--init"]).await
    }

    /// Starts a guard and waits until it is ready.
    ///
    /// # Panics
    /// If the guard does not become ready.
    pub async fn guard(policy: TestPolicy) -> Self {
        let ensemble = "6f2a3a52-6b1f-4a39-9d3e-2f3f0b6c8d11";
        let verb = ["guard", "--init", "--floor", "1", "--ensemble", ensemble];
        Self::start(policy, "/listener/address", &[], &verb).await
    }

    async fn start(policy: TestPolicy, listener: &str, environment: &[&str], verb: &[&str]) -> Self {
        let home = scratch::temp_dir();
        let [public, admin] = [0, 1].map(|n| SocketAddr::from(([127, 0, 0, 1], free_ports(2)[n])));
        let policy = policy.with(listener, public.to_string()).with("/admin/address", admin.to_string());
        let file = write_policy(home.path(), &policy.to_string()).display().to_string();
        let arguments = [verb, &["-c", &file]].concat();
        let child = run_unread(home.path(), environment, &arguments);
        // Polls, because no log line can report that the process is ready.
        let ready = async {
            while TestRequest::get("/ready").send_to(admin).await.map_or(0, |answer| answer.status) != 200 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        wait_until("it to be ready", ready, || child.is_running()).await;
        Self { child, public, admin, _home: home }
    }

    /// Sends SIGTERM to the process. Returns false if the process does not end within `most`.
    ///
    /// # Panics
    /// If the process has ended before.
    pub async fn terminate_within(self, most: Duration) -> bool {
        self.child.signal(Signal::TERM).expect("it runs");
        spawn_blocking(move || self.child.wait(most).is_some()).await.expect("no panic")
    }
}
