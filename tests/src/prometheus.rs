//! A real Prometheus with the shipped configuration. A test changes only addresses and intervals.

mod hurried;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use fencegate_testkit::{child::ChildProcess, scratch, wait::wait_until};
use serde_json::Value;
use tempfile::TempDir;

pub use self::hurried::speed_up;
use crate::{client::TestRequest, ensemble::free_ports};

pub struct Prometheus {
    pub address: SocketAddr,
    child: ChildProcess,
    home: TempDir,
}

/// The durations of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleTimes {
    /// The shipped durations.
    Shipped,
    /// The durations of [`hurried`].
    Hurried,
}

/// The interval in place of the shipped 15 s.
const INTERVAL: &str = "1s";
/// The interval for hurried rules. The shortest of these rules look back for two seconds.
const HURRIED: &str = "500ms";

/// The folder `deploy` of the repository, which is shipped.
pub fn deploy() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

impl Prometheus {
    /// Starts a Prometheus that scrapes these gateways and guards every second.
    ///
    /// # Panics
    /// If Prometheus does not start. The Debian package is `prometheus`.
    pub async fn start(gateways: &[SocketAddr], guards: &[SocketAddr]) -> Self {
        Self::begin(gateways, guards, RuleTimes::Shipped).await
    }

    /// Starts a Prometheus that scrapes the targets in [`Prometheus::targets`], with [`hurried`] rules.
    ///
    /// # Panics
    /// If Prometheus does not start. The Debian package is `prometheus`.
    pub async fn start_hurried() -> Self {
        Self::begin(&[], &[], RuleTimes::Hurried).await
    }

    async fn begin(gateways: &[SocketAddr], guards: &[SocketAddr], times: RuleTimes) -> Self {
        let home = scratch::temp_dir();
        let file = write_files(home.path(), gateways, guards, times);
        let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)[0]));
        let arguments = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", home.path().join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let child = ChildProcess::spawn("prometheus", arguments).expect("setpriv");
        let started = Self { address, child, home };
        let ready = async {
            while TestRequest::get("/-/ready")
                .send_to(address)
                .await
                .map_or(true, |answer| answer.status != 200)
            {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        wait_until("Prometheus", ready, || started.child.log()).await;
        started
    }

    /// The current result of an expression.
    pub async fn query(&self, expression: &str) -> Vec<Value> {
        self.result("/api/v1/query", &[("query", expression)]).await
    }

    /// The number of values other than NaN that an expression has, evaluated at every second of the last five
    /// minutes.
    pub async fn count_values(&self, expression: &str) -> usize {
        let now = self.query("time()").await;
        // The result is a scalar, which consists of a time and a value.
        let end = now.first().and_then(Value::as_f64).expect("Prometheus knows the time");
        let start = (end - 300.0).to_string();
        let end = end.to_string();
        let asked = [("query", expression), ("start", &*start), ("end", &*end), ("step", "1")];
        let series = self.result("/api/v1/query_range", &asked).await;
        let values = series.iter().filter_map(|series| series["values"].as_array()).flatten();
        values.filter(|value| value[1] != "NaN").count()
    }

    async fn result(&self, path: &str, asked: &[(&str, &str)]) -> Vec<Value> {
        let mut answer = self.query_api(path, asked).await;
        match answer["data"]["result"].take() {
            Value::Array(result) => result,
            other => panic!("{asked:?}: {other}"),
        }
    }

    /// The answer of Prometheus's HTTP API.
    ///
    /// # Panics
    /// If Prometheus refuses the request.
    pub async fn query_api(&self, path: &str, asked: &[(&str, &str)]) -> Value {
        let form: Vec<String> =
            asked.iter().map(|(name, value)| format!("{name}={}", encode_query(value))).collect();
        let target = format!("{path}?{}", form.join("&"));
        let answer = TestRequest::get(&target).send_to(self.address).await.expect("Prometheus answers");
        let told: Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(told["status"], "success", "{asked:?}: {told}");
        told
    }

    pub fn log(&self) -> String {
        self.child.log()
    }

    /// A folder for files with further targets. Prometheus reads them at any time.
    pub fn targets(&self) -> PathBuf {
        self.home.path().join(TARGETS)
    }
}

const TARGETS: &str = "targets";

/// Writes the shipped files with the changes of this test, and returns the path of the configuration.
fn write_files(home: &Path, gateways: &[SocketAddr], guards: &[SocketAddr], times: RuleTimes) -> PathBuf {
    let shipped = |file: &str| fs::read_to_string(deploy().join("prometheus").join(file)).expect("shipped");
    for file in ["recording.rules.yml", "alerts.rules.yml"] {
        let rules = match times {
            RuleTimes::Shipped => shipped(file),
            RuleTimes::Hurried => speed_up(&shipped(file)),
        };
        fs::write(home.join(file), rules).expect("our own folder");
    }
    let mut text = shipped("prometheus.yml");
    for (written, ours) in [("127.0.0.1:9901", gateways), ("127.0.0.1:9902", guards)] {
        let ours: Vec<String> = ours.iter().map(ToString::to_string).collect();
        assert!(text.contains(written), "{text}");
        text = text.replace(written, &ours.join(", "));
    }
    let targets = home.join(TARGETS);
    fs::create_dir(&targets).expect("our own folder");
    let found = targets.join("*.json");
    let found = found.display();
    // The last list of the shipped file is the list of its jobs, so the new job is appended to it.
    text.push_str(&format!(
        "  - job_name: fencegate-found\n    file_sd_configs: [{{files: ['{found}'], refresh_interval: 1s}}]\n"
    ));
    let interval = match times {
        RuleTimes::Shipped => INTERVAL,
        RuleTimes::Hurried => HURRIED,
    };
    let file = home.join("prometheus.yml");
    // Prometheus sends its alerts nowhere: the test queries them.
    fs::write(&file, text.replace("15s", interval).replace("127.0.0.1:9093", "")).expect("our own folder");
    file
}

fn encode_query(value: &str) -> String {
    value.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
