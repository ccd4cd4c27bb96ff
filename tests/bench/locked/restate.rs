//! Restate: a server that runs one call at a time for each key, and each operation at most once, and its handler.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use fencegate_testkit::child::ChildProcess;
use serde_json::json;

use super::fetched;
use crate::{plain, process, result::BenchResult, run::BenchRun};

const PACKAGES: [&str; 2] = ["@restatedev/restate-server@1.7.12", "@restatedev/restate-sdk@1.17.2"];
const PATIENCE: Duration = Duration::from_mins(1);

/// The npm packages of the server and of its library.
pub(super) struct RestatePackages {
    folder: PathBuf,
}

/// A server with a registered handler. Dropping it ends both.
pub(super) struct RestateServer {
    pub(super) ingress: SocketAddr,
    _server: ChildProcess,
    _handler: ChildProcess,
}

impl RestatePackages {
    pub(super) fn fetch(run: &BenchRun) -> BenchResult<Self> {
        let folder = fetched::from_npm(run, &PACKAGES)?;
        // The handler must be in the folder of the packages: Node searches for imports from the folder of the
        // importing module.
        fs::write(folder.join("account.mjs"), include_str!("account.mjs"))?;
        Ok(Self { folder })
    }

    /// Starts a server with an empty store, and its handler.
    pub(super) fn start(
        &self,
        run: &BenchRun,
        service: SocketAddr,
        round: u32,
    ) -> BenchResult<RestateServer> {
        let handled = process::free_address()?;
        let script = self.folder.join("account.mjs").display().to_string();
        let port = handled.port().to_string();
        let service = format!("http://{service}");
        // Start Node in its production mode:
        // https://nodejs.org/en/learn/getting-started/nodejs-the-difference-between-development-and-production
        let handler = ChildProcess::spawn("env", ["NODE_ENV=production", "node", &script, &port, &service])?;
        handler.wait_line(|line| line == "UP", PATIENCE)?;

        let [ingress, admin, fabric] =
            [process::free_address()?, process::free_address()?, process::free_address()?];
        let file = run.folder().join(format!("restate-{round}.toml"));
        let data = run.folder().join(format!("restate-{round}"));
        fs::write(&file, configuration(&data.display().to_string(), ingress, admin, fabric))?;
        // Start the program itself. The script that npm installs would start it as a child, which a kill would not
        // reach.
        let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let package = format!("node_modules/@restatedev/restate-server-linux-{machine}/bin/restate-server");
        let program = self.folder.join(package);
        let server = ChildProcess::spawn(program, ["--config-file", &file.display().to_string()])?;
        let answers = |question: &dyn Fn() -> BenchResult<String>| wait_until_successful(&server, question);
        answers(&|| plain::get(admin, "/health"))?;
        let deployment = json!({"uri": format!("http://{handled}")}).to_string();
        answers(&|| plain::send(admin, "POST", "/deployments", &deployment))?;
        answers(&|| plain::send(ingress, "POST", "/account/first/pay", "{}"))?;
        Ok(RestateServer { ingress, _server: server, _handler: handler })
    }
}

/// One node with its default settings, which wait for the disk: <https://docs.restate.dev/references/server-config>.
/// It listens only on loopback and sends no telemetry.
fn configuration(data: &str, ingress: SocketAddr, admin: SocketAddr, fabric: SocketAddr) -> String {
    let ip = fabric.ip();
    let ingress = ingress.port();
    let admin = admin.port();
    let fabric = fabric.port();
    format!(
        "listen-mode = \"tcp\"\nbind-ip = \"{ip}\"\nbind-port = {fabric}\ndisable-telemetry = true\n\
         base-dir = \"{data}\"\nnode-name = \"bench\"\nlog-filter = \"error\"\n\
         [ingress]\nbind-port = {ingress}\n[admin]\nbind-port = {admin}\ndisable-web-ui = true\n"
    )
}

fn wait_until_successful(
    server: &ChildProcess,
    question: &dyn Fn() -> BenchResult<String>,
) -> BenchResult<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = question();
        if answer.as_ref().is_ok_and(|answer| plain::is_good(answer)) {
            return Ok(());
        }
        if Instant::now() > deadline || !server.is_running() {
            return Err(format!("Restate answers {answer:?}; it said:\n{}", server.log()).into());
        }
        thread::sleep(Duration::from_millis(100));
    }
}
