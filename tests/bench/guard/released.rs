//! The released guard in front of a service, the released filter, and a load of new tenures.

use std::{fs, net::SocketAddr, time::Duration};

use fencegate_testkit::child::{ChildProcess, Signal};
use serde_json::{Value, json};

use crate::{
    gateway::{listener_address, listener_text, wait_ready},
    result::BenchResult,
    run::BenchRun,
    wrk::WrkLoad,
};

pub(crate) const WARM_UP: Duration = Duration::from_secs(2);
/// Enough for a guard whose instructions are counted, which is fifty times slower.
const PATIENCE: Duration = Duration::from_mins(1);

/// A load in which each request has a new tenure and goes directly to the guard.
pub(crate) const NEW: WrkLoad =
    WrkLoad { method: "TENURES", prefix: "/new/", keys: 1000, threads: 2, clients: 64 };

/// A released guard in front of the service. Its store is on the disk.
pub(crate) struct BenchGuard {
    child: ChildProcess,
    /// The guard's endpoint, as the policy of a gateway names it.
    pub(crate) endpoint: String,
}

impl BenchGuard {
    /// Starts a guard on a TCP port before a service. `store`: a new file if `None`.
    pub(crate) fn start(
        run: &BenchRun,
        name: &str,
        service: SocketAddr,
        ensemble: &str,
        store: Option<Value>,
    ) -> BenchResult<Self> {
        let store = store.unwrap_or_else(|| new_file(run, name));
        let listen = "127.0.0.1:0";
        let service = format!("http://{service}");
        let words = [run.gateway().display().to_string()];
        Self::start_on_new_store(run, &words, name, &policy_with_store(listen, &service, store), ensemble)
    }

    /// Starts a guard at the address `listen` before the endpoint `service`, with a store in a new file.
    pub(crate) fn start_between(
        run: &BenchRun,
        name: &str,
        listen: &str,
        service: &str,
        ensemble: &str,
    ) -> BenchResult<Self> {
        Self::start_command(run, &[run.gateway().display().to_string()], name, listen, service, ensemble)
    }

    /// Starts a guard as [`Self::start_between`] does, by the command `words`.
    pub(crate) fn start_command(
        run: &BenchRun,
        words: &[String],
        name: &str,
        listen: &str,
        service: &str,
        ensemble: &str,
    ) -> BenchResult<Self> {
        let store = new_file(run, name);
        Self::start_on_new_store(run, words, name, &policy_with_store(listen, service, store), ensemble)
    }

    /// Starts a guard with this policy, such as a changed [`guard_policy`].
    pub(crate) fn start_with(
        run: &BenchRun,
        name: &str,
        policy: &Value,
        ensemble: &str,
    ) -> BenchResult<Self> {
        Self::start_on_new_store(run, &[run.gateway().display().to_string()], name, policy, ensemble)
    }

    /// Starts the program as a filter, on a free TCP port before the endpoint `service`.
    pub(crate) fn start_filter(run: &BenchRun, name: &str, service: &str) -> BenchResult<Self> {
        let mut policy = storeless_policy("127.0.0.1:0", service);
        policy["filter"] = json!({"clock_error": "500ms"});
        Self::spawn_and_wait(run, &[run.gateway().display().to_string()], name, &policy, &["guard"])
    }

    fn start_on_new_store(
        run: &BenchRun,
        started: &[String],
        name: &str,
        policy: &Value,
        ensemble: &str,
    ) -> BenchResult<Self> {
        let words = ["guard", "--init", "--floor", "1", "--ensemble", ensemble];
        Self::spawn_and_wait(run, started, name, policy, &words)
    }

    fn spawn_and_wait(
        run: &BenchRun,
        started: &[String],
        name: &str,
        policy: &Value,
        verb: &[&str],
    ) -> BenchResult<Self> {
        let file = run.folder().join(format!("{name}.yaml"));
        fs::write(&file, policy.to_string())?;
        let file = file.display().to_string();
        let (program, before) = started.split_first().ok_or("a program is one word at least")?;
        let before = before.iter().map(String::as_str).chain(verb.iter().copied());
        let child = ChildProcess::spawn(program, before.chain(["--log-format=json", "-c", &file]))?;
        let public = listener_text(&child, "guard")?;
        let admin = listener_address(&child, "admin")?;
        wait_ready(admin, &child)?;
        let endpoint = if public.starts_with("unix:") { public } else { format!("http://{public}") };
        Ok(Self { child, endpoint })
    }

    /// The address of a guard that listens on a TCP port.
    pub(crate) fn address(&self) -> BenchResult<SocketAddr> {
        Ok(self.endpoint.trim_start_matches("http://").parse()?)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub(crate) fn stop(self) -> BenchResult<()> {
        self.child.signal(Signal::TERM)?;
        match self.child.wait(PATIENCE) {
            Some(status) if status.success() => Ok(()),
            ended => Err(format!("the guard ended with {ended:?} and said:\n{}", self.child.log()).into()),
        }
    }
}

/// The setting of a store in a new file. A file of an earlier measurement with this name is removed.
fn new_file(run: &BenchRun, name: &str) -> Value {
    let file = run.folder().join(format!("{name}.redb"));
    fs::remove_file(&file).ok();
    json!({"redb": file.display().to_string()})
}

/// The policy of a guard on a free TCP port, with a store in a new file.
pub(crate) fn guard_policy(run: &BenchRun, name: &str, service: &str) -> Value {
    policy_with_store("127.0.0.1:0", service, new_file(run, name))
}

fn policy_with_store(listen: &str, service: &str, store: Value) -> Value {
    let mut policy = storeless_policy(listen, service);
    policy["store"] = store;
    policy["max_execution"] = "2s".into();
    policy["send_within"] = "1s".into();
    policy
}

/// The settings that the policies of guards and filters have in common.
fn storeless_policy(listen: &str, service: &str) -> Value {
    json!({
        "version": 1,
        "listener": {"address": listen},
        "admin": {"address": "127.0.0.1:0"},
        "upstream": {"endpoint": service, "response_timeout": "1s"},
    })
}
