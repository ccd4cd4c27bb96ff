//! Restate: a server, a virtual object in two processes behind one address, and clients that call the server's
//! ingress.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    fault_proxy::FaultProxy,
    scratch,
    wait::wait_until,
};
use fencegate_tests::{client::TestRequest, ensemble::free_ports};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    account::AccountService,
    clients::{self, ClientProcesses, ClientProgram},
    fetched,
    run::LockProcesses,
};

const NPM: [&str; 2] = ["@restatedev/restate-server@1.7.12", "@restatedev/restate-sdk@1.17.2"];
const HANDLERS: usize = 2;

pub(crate) struct RestateProcesses {
    published: PathBuf,
    service: String,
    ports: Vec<u16>,
    running: Vec<Arc<ChildProcess>>,
    /// The index of the process that gets the requests.
    serving: usize,
    /// The address of the handlers. It leads to the other process when the first has not answered for the length of
    /// a lease.
    balancer: FaultProxy,
    clients: ClientProcesses,
    _server: ChildProcess,
    _home: TempDir,
}

impl RestateProcesses {
    pub(crate) async fn start(account: &AccountService) -> Self {
        let published = fetched::node(&NPM);
        // The handler must be in the folder of the packages: Node searches for imports from the folder of the
        // importing module.
        fs::write(published.join("account.mjs"), include_str!("account.mjs")).expect("our own folder");
        let service = format!("http://{}/pay/7", account.address);
        let ports = free_ports(HANDLERS);
        let running: Vec<_> =
            (0..HANDLERS).map(|number| start_handler(&published, &service, ports[number], number)).collect();
        for handler in &running {
            clients::wait_started(handler).await;
        }
        let balancer = FaultProxy::start_balancing(&[SocketAddr::from(([127, 0, 0, 1], ports[0]))]);
        let home = scratch::temp_dir();
        let (server, ingress) = serving(&published, &home, balancer.address).await;
        let clients = ClientProcesses::start(
            ClientProgram::python("none"),
            String::new(),
            &[ingress],
            "/account/7/pay",
        )
        .await;
        Self {
            published,
            service,
            ports,
            running,
            serving: 0,
            balancer,
            clients,
            _server: server,
            _home: home,
        }
    }

    fn name(number: usize) -> String {
        format!("handler-{number}")
    }

    fn address(&self, number: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[number]))
    }

    fn spare_handler(&self) -> usize {
        (self.serving + 1) % HANDLERS
    }
}

fn start_handler(published: &Path, service: &str, port: u16, number: usize) -> Arc<ChildProcess> {
    let script = published.join("account.mjs").display().to_string();
    // Start Node in its production mode:
    // https://nodejs.org/en/learn/getting-started/nodejs-the-difference-between-development-and-production
    let port = port.to_string();
    let name = RestateProcesses::name(number);
    let words = ["NODE_ENV=production", "node", &script, &port, service, &name];
    Arc::new(ChildProcess::spawn("env", words).expect("setpriv"))
}

/// Starts a server, registers the handlers, and returns the server with the address of its ingress.
async fn serving(published: &Path, home: &TempDir, handlers: SocketAddr) -> (ChildProcess, SocketAddr) {
    let addresses = free_ports(3).into_iter().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let [ingress, admin, fabric] = addresses.collect::<Vec<_>>()[..] else { unreachable!("three ports") };
    let file = home.path().join("restate.toml");
    fs::write(&file, configuration(home, ingress, admin, fabric)).expect("our own folder");
    // Start the program itself. The script that npm installs would start it as a child, which a kill would not
    // reach.
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let program = format!("node_modules/@restatedev/restate-server-linux-{machine}/bin/restate-server");
    let words = ["--config-file".to_owned(), file.display().to_string()];
    let server = ChildProcess::spawn(published.join(program), words).expect("setpriv");
    wait_until_successful(&server, admin, &TestRequest::get("/health")).await;
    let deployment = json!({"uri": format!("http://{handlers}")}).to_string();
    wait_until_successful(&server, admin, &post("/deployments", deployment)).await;
    wait_until_successful(&server, ingress, &post("/account/first/pay", "{}".to_owned())).await;
    (server, ingress)
}

/// One node with its default settings, which wait for the disk: <https://docs.restate.dev/references/server-config>.
/// It listens only on loopback and sends no telemetry.
fn configuration(home: &TempDir, ingress: SocketAddr, admin: SocketAddr, fabric: SocketAddr) -> String {
    let ip = fabric.ip();
    let ingress = ingress.port();
    let admin = admin.port();
    let fabric = fabric.port();
    format!(
        "listen-mode = \"tcp\"\nbind-ip = \"{ip}\"\nbind-port = {fabric}\ndisable-telemetry = true\n\
         base-dir = \"{}\"\nnode-name = \"duel\"\nlog-filter = \"error\"\n\
         [ingress]\nbind-port = {ingress}\n[admin]\nbind-port = {admin}\ndisable-web-ui = true\n",
        home.path().join("restate").display()
    )
}

fn post(path: &str, body: String) -> TestRequest {
    TestRequest::post(path).field("content-type", "application/json").body(body)
}

/// Waits until the server answers the request with success. Polls, because the server sends no event when it is
/// ready.
async fn wait_until_successful(server: &ChildProcess, address: SocketAddr, ask: &TestRequest) {
    let good = async {
        while !ask.send_to(address).await.is_ok_and(|answer| matches!(answer.status, 200..300)) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    wait_until(&format!("Restate to answer {}", ask.target()), good, || server.log()).await;
}

/// The faults happen to the process that runs the handler, because clients hold no locks.
impl LockProcesses for RestateProcesses {
    /// Only one process gets requests at a time.
    fn victims(&self) -> usize {
        1
    }

    fn names(&self, _victim: usize) -> Vec<String> {
        vec![Self::name(self.serving)]
    }

    async fn wait_before_request(&mut self, _victim: usize, account: &AccountService) {
        clients::freeze_and_wait(&self.running[self.serving], &Self::name(self.serving), account).await;
    }

    fn signal(&self, _victim: usize, signal: Signal) {
        self.running[self.serving].signal(signal).expect("our own child");
    }

    async fn on_missed(&mut self) {
        self.balancer.set_targets(&[self.address(self.spare_handler())]);
        self.balancer.break_all();
    }

    async fn on_thawed(&mut self) {
        self.serving = self.spare_handler();
    }

    async fn restart(&mut self, _victim: usize) {
        let killed = self.serving;
        self.serving = self.spare_handler();
        self.running[killed] = start_handler(&self.published, &self.service, self.ports[killed], killed);
        clients::wait_started(&self.running[killed]).await;
    }

    fn output(&self) -> String {
        self.clients.output() + &self.running.iter().map(|handler| handler.log()).collect::<String>()
    }
}
