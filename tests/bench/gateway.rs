//! The released gateway as one process, with a route for each measurement.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use fencegate_testkit::child::{ChildProcess, Signal};
use serde_json::{Value, json};

use crate::{plain, process, result::BenchResult, run::BenchRun};

/// Enough for a gateway whose instructions are counted, which is fifty times slower.
const PATIENCE: Duration = Duration::from_mins(1);

/// The kind of server at the upstream's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamKind {
    Service,
    Guard,
}

/// A running gateway. [`BenchGateway::stop`] ends it and releases its locks.
pub(crate) struct BenchGateway {
    child: ChildProcess,
    pub(crate) public: SocketAddr,
    admin: SocketAddr,
    file: PathBuf,
}

impl BenchGateway {
    /// Starts a gateway before a plain service. Returns when it can grant locks.
    pub(crate) fn start(
        run: &BenchRun,
        name: &str,
        zookeeper: SocketAddr,
        upstream: SocketAddr,
    ) -> BenchResult<Self> {
        Self::start_before(run, name, zookeeper, upstream, UpstreamKind::Service)
    }

    /// Starts a gateway before a service or guard. Returns when it can grant locks.
    pub(crate) fn start_before(
        run: &BenchRun,
        name: &str,
        zookeeper: SocketAddr,
        upstream: SocketAddr,
        behind: UpstreamKind,
    ) -> BenchResult<Self> {
        Self::start_with(run, &policy(name, zookeeper, upstream, behind))
    }

    /// Starts a gateway with a policy of its own. Returns when it can grant locks.
    pub(crate) fn start_with(run: &BenchRun, policy: &Value) -> BenchResult<Self> {
        Self::start_command(run, &[run.gateway().display().to_string()], policy)
    }

    /// Starts a gateway with these arguments and a policy of its own. Returns when it can grant locks.
    pub(crate) fn start_command(run: &BenchRun, words: &[String], policy: &Value) -> BenchResult<Self> {
        let name = policy["name"].as_str().ok_or("a gateway has a name")?;
        let file = run.folder().join(format!("{name}.yaml"));
        fs::write(&file, policy.to_string())?;
        let path = file.display().to_string();
        let (program, before) = words.split_first().ok_or("a program is one word at least")?;
        let arguments = before.iter().map(String::as_str);
        let child = ChildProcess::spawn(
            program,
            arguments.chain(["run", "--init", "--log-format=json", "-c", &path]),
        )?;
        let public = listener_address(&child, "public")?;
        let admin = listener_address(&child, "admin")?;
        wait_ready(admin, &child)?;
        Ok(Self { child, public, admin, file })
    }

    /// Writes another policy. Returns when the gateway uses it.
    pub(crate) fn rewrite_policy(&self, text: &str) -> BenchResult<()> {
        fs::write(&self.file, text)?;
        let answer = plain::send(self.admin, "POST", "/api/v1/reload", "")?;
        match answer.contains("\"result\":\"applied\"") {
            true => Ok(()),
            false => Err(format!("not taken over: {}", answer.chars().take(500).collect::<String>()).into()),
        }
    }

    /// Drains the gateway, so that no lock of this turn is left for the next turn.
    pub(crate) fn stop(self) -> BenchResult<()> {
        self.child.signal(Signal::TERM)?;
        match self.child.wait(PATIENCE) {
            Some(status) if status.success() => Ok(()),
            ended => Err(format!("the gateway ended with {ended:?} and said:\n{}", self.child.log()).into()),
        }
    }

    pub(crate) fn cpu_seconds(&self) -> BenchResult<f64> {
        process::cpu_seconds(self.child.pid())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The number of requests of a route whose key was held by this gateway and free for the request.
    pub(crate) fn warm_requests(&self, route: &str) -> BenchResult<f64> {
        self.acquisitions(route, "result=\"warm\"")
    }

    /// The number of lock requests of a route, selected by a part of their labels.
    pub(crate) fn acquisitions(&self, route: &str, labels: &str) -> BenchResult<f64> {
        let route = format!("route=\"{route}\"");
        let metrics = plain::get(self.admin, "/metrics")?;
        let samples = metrics.lines().filter(|line| {
            line.starts_with("fencegate_lock_acquisitions_total{")
                && line.contains(&route)
                && line.contains(labels)
        });
        let values = samples.filter_map(|line| line.rsplit_once(' ')).map(|(_, value)| value.parse::<f64>());
        Ok(values.sum::<Result<f64, _>>()?)
    }
}

pub(crate) fn wait_ready(admin: SocketAddr, child: &ChildProcess) -> BenchResult<()> {
    let deadline = Instant::now() + PATIENCE;
    while !plain::get(admin, "/ready").is_ok_and(|answer| plain::is_good(&answer)) {
        if Instant::now() > deadline {
            return Err(format!("it is not ready; it said:\n{}", child.log()).into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A policy with default settings, except for wait limits that a busy machine does not reach, and keys that stay
/// cached.
pub(crate) fn policy(name: &str, zookeeper: SocketAddr, upstream: SocketAddr, behind: UpstreamKind) -> Value {
    let endpoints = json!([format!("http://{upstream}")]);
    let service = match behind {
        UpstreamKind::Service => json!({"endpoints": endpoints, "fencing": "upstream"}),
        UpstreamKind::Guard => json!({"endpoints": endpoints, "fencing": "guard", "direct": true}),
    };
    let route = |name: &str, fence: Value| {
        json!({
            "name": name,
            "upstream": "service",
            "match": {"methods": ["GET", "POST"], "path": format!("/{name}/{{key}}")},
            "fence": fence,
        })
    };
    let fence =
        |kind: &str, hold: Value| json!({"key": format!("{kind}/{{path.key}}"), "wait": "30s", "hold": hold});
    json!({
        "version": 1,
        "name": name,
        "listeners": {"public": {"address": "127.0.0.1:0"}},
        "admin": {"address": "127.0.0.1:0"},
        "zookeeper": {"servers": [zookeeper.to_string()], "root": "/fencegate"},
        "upstreams": {"service": service},
        "routes": [
            route("unfenced", json!("none")),
            route("warm", fence("warm", json!({"mode": "cached", "linger": "10s"}))),
            route("hot", fence("hot", json!({"mode": "cached"}))),
            route("cold", fence("cold", json!({"mode": "strict"}))),
        ],
    })
}

pub(crate) fn listener_address(child: &ChildProcess, listener: &str) -> BenchResult<SocketAddr> {
    Ok(listener_text(child, listener)?.parse()?)
}

/// The address of a listener: a port or a unix socket.
pub(crate) fn listener_text(child: &ChildProcess, listener: &str) -> BenchResult<String> {
    let address = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        let fields = &line["fields"];
        let ours = fields["message"] == "listening" && fields["listener"] == listener;
        ours.then(|| fields["address"].as_str().map(str::to_owned)).flatten()
    };
    let line = child.wait_line(|line| address(line).is_some(), PATIENCE)?;
    Ok(address(&line).expect("found by it"))
}
