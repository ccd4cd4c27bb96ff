//! The commands of the chart's README, typed line by line, make an installation that works and that outlives its pods.
//! What Helm renders for them runs as plain processes, with the files, arguments, ports, probes and names of the
//! manifests, a real ZooKeeper, and a service that records.

use std::{fs, path::Path, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use fencegate_testkit::{postgres, scratch, wait::wait_until};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    pods::{FakeCluster, PodProcess},
    site::TestSite,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use super::{
    super::{artefacts::read, clients::run},
    chart::{rendered, resources},
};

/// An installation that is being set up, and the folder in which its operator works.
struct KubernetesInstallation {
    site: TestSite,
    pods: FakeCluster,
    home: TempDir,
    /// The kind of the guard's resource, and the number of guards.
    guards: (&'static str, u8),
    gateways: Vec<PodProcess>,
    guard: Vec<PodProcess>,
    /// The values for the chart that `era show` has printed.
    shown: String,
}

/// The commands below one heading.
fn documented_commands(heading: &str) -> Vec<String> {
    let text = read("helm/README.md");
    let section = text.split("\n## ").find_map(|section| section.strip_prefix(heading)).expect("a heading");
    section.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

impl KubernetesInstallation {
    /// Writes `my.yaml`: the shipped example with the addresses of a test, and times that a test can wait for.
    async fn fresh(guards: (&'static str, u8), more: &[&str]) -> Self {
        let site = TestSite::fresh().await;
        let home = scratch::temp_dir();
        let own = json!({
            "zookeeper": {"servers": [site.zookeeper.to_string()], "root": site.root, "session_timeout": "2s", "tick": "200ms"},
            "guard": {
                "service": {"endpoint": format!("http://{}", site.origin.open_listener("guard"))},
                "policy": {
                    "settle": "1s", "send_within": "200ms", "max_execution": "500ms", "upstream": {"response_timeout": "300ms"},
                },
            },
        });
        fs::write(home.path().join("own.json"), own.to_string()).expect("our own folder");
        let files = ["examples/one-guard.yaml"].iter().chain(more).map(|file| format!("-f {file} "));
        let mine = files.collect::<String>() + &format!("-f {}/own.json", home.path().display());
        fs::write(home.path().join("my.yaml"), mine).expect("our own folder");
        let gateways = Vec::new();
        let guard = Vec::new();
        let shown = String::new();
        Self { site, pods: FakeCluster::empty(), home, guards, gateways, guard, shown }
    }

    async fn run_line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["helm", "install" | "upgrade", "fencegate", "deploy/helm", ref values @ ..] => {
                self.helm(values).await
            }
            ["kubectl", "create", ..] => {
                let made = self.shell(&format!("{line} --dry-run=client -o yaml")).await;
                self.pods.apply(resources(&made));
            }
            ["kubectl", "exec", "fencegate-0", "--", "/usr/bin/fencegate", ref arguments @ ..] => {
                let shown = self.pods.exec("StatefulSet", "fencegate", arguments).await;
                let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
                let ensemble = shown["ensemble"].as_str().expect("a name");
                self.shown = format!("guard.init.floor={},guard.init.ensemble={ensemble}", shown["floor"]);
            }
            _ => drop(self.shell(line).await),
        }
    }

    async fn shell(&self, line: &str) -> String {
        let binaries = scratch::binaries();
        let script =
            format!("cd {} && PATH={}:$PATH && {line}", self.home.path().display(), binaries.display());
        String::from_utf8(run("bash", &["-euc", &script]).await.stdout).expect("text")
    }

    /// Applies the rendered chart as a cluster does: runs the Job, starts pods, and replaces earlier pods.
    async fn helm(&mut self, values: &[&str]) {
        let own = fs::read_to_string(self.home.path().join("my.yaml")).expect("our own file");
        let given = values.join(" ").replace("-f my.yaml", &own).replace("--wait", "");
        let given = given.replace("guard.init.floor=E,guard.init.ensemble=UUID", &self.shown);
        self.pods.apply(rendered(&given.split_whitespace().collect::<Vec<_>>()).await);
        if given.contains("era.init=true") {
            let made = self.pods.run_job("fencegate-era-init").await;
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
        if self.gateways.is_empty() {
            for number in 0..2 {
                let pod = self.pods.start_ready("StatefulSet", "fencegate", number).await;
                self.gateways.push(pod);
            }
        }
        self.end_guards().await;
        let (kind, wanted) = self.guards;
        let replicas =
            self.pods.resource(kind, "fencegate-guard")["spec"]["replicas"].as_u64().expect("a number");
        for number in 0..wanted.min(u8::try_from(replicas).expect("few")) {
            let pod = self.pods.start_ready(kind, "fencegate-guard", number).await;
            self.guard.push(pod);
        }
    }

    /// Sends a request of a client, through the Kubernetes service, to this gateway.
    async fn send_capture(&self, order: &str, gateway: u8) {
        let at = self.pods.service_address("fencegate", 80, gateway);
        let answer = async {
            loop {
                let answer = TestRequest::post(&format!("/v1/orders/{order}/capture"))
                    .send_to(at)
                    .await
                    .expect("an answer");
                // A refused request is repeated, as a client does. A new guard is not trusted yet, and a shared store
                // admits requests only one heartbeat after its first guard is ready.
                if (answer.status, answer.outcome()) == (503, Some(FencingOutcome::NotDispatched)) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                } else {
                    return answer;
                }
            }
        };
        let answer = wait_until("a capture", answer, || gateway).await;
        assert_eq!(
            (answer.status, answer.outcome()),
            (200, Some(FencingOutcome::Done)),
            "{}",
            answer.reason()
        );
    }

    fn capture_count(&self, order: &str) -> usize {
        self.site.origin.count(&format!("/v1/orders/{order}/capture"))
    }

    async fn end_guards(&mut self) {
        for guard in self.guard.drain(..) {
            self.pods.end(guard).await;
        }
    }

    async fn end(&mut self) {
        for gateway in self.gateways.drain(..) {
            self.pods.end(gateway).await;
        }
        self.end_guards().await;
    }
}

/// The commands of the README make an installation that outlives its pods.
#[tokio::test]
async fn readme_installation_outlives_its_pods() {
    let mut installation = KubernetesInstallation::fresh(("StatefulSet", 1), &[]).await;
    for line in documented_commands("Install\n").iter().filter(|line| !line.contains("database")) {
        installation.run_line(line).await;
    }
    installation.send_capture("7", 0).await;
    installation.send_capture("7", 1).await;
    assert_eq!(installation.capture_count("7"), 2);

    // A fenced request past the gateways is refused. A request that needs no lock goes through.
    let guard = installation.pods.service_address("fencegate-guard", 8080, 0);
    let refused = TestRequest::post("/v1/orders/7/capture").send_to(guard).await.expect("an answer");
    assert_eq!(refused.field("fencing-refusal"), Some("token-missing"), "{}", refused.status);
    assert_eq!(installation.capture_count("7"), 2);
    let read =
        TestRequest::get("/v1/orders/7").send_to(installation.pods.service_address("fencegate", 80, 0)).await;
    assert_eq!(read.expect("an answer").status, 200);
    // The metrics ports require the admin token.
    let token = fs::read_to_string(installation.home.path().join("admin-token")).expect("made by the README");
    for (service, port) in [("fencegate-pods", 9901), ("fencegate-guard-pods", 9902)] {
        let scraped = installation.pods.service_address(service, port, 0);
        let metrics = TestRequest::get("/metrics");
        assert_eq!(metrics.send_to(scraped).await.expect("an answer").status, 401);
        let shown = metrics.field("Authorization", &format!("Bearer {token}")).send_to(scraped).await;
        assert_eq!(shown.expect("an answer").status, 200);
    }

    // All pods are replaced at once, and the new pods get the volumes of the old ones.
    installation.end().await;
    assert_eq!(installation.pods.claimed_files("store", "fencegate-guard-0"), ["guard.redb"]);
    assert!(
        !installation.pods.claimed_files("state", "fencegate-0").is_empty(),
        "nothing outlives the gateway"
    );
    installation.run_line("helm upgrade fencegate deploy/helm -f my.yaml").await;
    installation.send_capture("8", 0).await;
    installation.end().await;

    // ZooKeeper was wiped meanwhile and initialised anew. The gateway's volume remembers the larger tokens.
    let wiped = format!("--set era.init=true,zookeeper.root={}/wiped", installation.site.root);
    let given =
        format!("-f examples/one-guard.yaml -f {}/own.json {wiped}", installation.home.path().display());
    installation.pods.apply(rendered(&given.split_whitespace().collect::<Vec<_>>()).await);
    assert!(installation.pods.run_job("fencegate-era-init").await.status.success());
    let gateway = installation.pods.start("StatefulSet", "fencegate", 0).await;
    gateway.check_probe("livenessProbe").await;
    let at = installation.pods.service_address("fencegate", 80, 0);
    let refused = async {
        loop {
            let refused = TestRequest::post("/v1/orders/9/capture").send_to(at).await.expect("an answer");
            // `lock-service` is the answer until the session of this key has learned the newest transaction of
            // ZooKeeper.
            if refused.reason() != "lock-service" {
                return refused;
            }
        }
    };
    let refused = wait_until("a word on it", refused, || gateway.log()).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "rolled-back"));
    assert_eq!(installation.capture_count("9"), 0);
}

/// Two guards share a database, and the installation serves with either of them alone.
#[tokio::test]
async fn either_shared_guard_may_stop() {
    let database = spawn_blocking(postgres::fresh_database).await.expect("no panic");
    let mut installation =
        KubernetesInstallation::fresh(("Deployment", 2), &["examples/two-guards.yaml"]).await;
    let own = installation.home.path().join("own.json");
    // The database of these tests speaks no TLS.
    let mut values: Value = serde_json::from_str(&fs::read_to_string(&own).expect("ours")).expect("JSON");
    values["guard"]["store"] = json!({"tls": false});
    fs::write(own, values.to_string()).expect("our own folder");
    write_database(installation.home.path(), &database.url());
    let lines = documented_commands("Install\n");
    let (secret, others): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.contains("database"));
    for line in secret.into_iter().chain(others) {
        installation.run_line(line).await;
    }
    let [first, second] = [installation.guard.remove(0), installation.guard.remove(0)];
    installation.pods.end(first).await;
    installation.send_capture("7", 0).await;
    let again = installation.pods.start_ready("Deployment", "fencegate-guard", 0).await;
    installation.pods.end(second).await;
    installation.send_capture("7", 1).await;
    assert_eq!(installation.capture_count("7"), 2);
    installation.pods.end(again).await;
}

fn write_database(folder: &Path, url: &str) {
    fs::write(folder.join("database-url"), url).expect("our own folder");
    fs::write(folder.join("ca.pem"), BASE64_STANDARD.encode("nobody")).expect("our own folder");
}
