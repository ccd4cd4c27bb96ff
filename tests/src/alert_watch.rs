//! Watches alerts of the shipped rules for many tests at once: each test has its own jobs in one Prometheus.

use std::{
    fs, io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

use crate::prometheus::Prometheus;

/// A Prometheus whose targets are set while it runs. Its rules are [hurried](crate::prometheus::speed_up).
pub struct AlertWatch(Prometheus);

/// The gateways and guards of one test, by their Prometheus labels. They are scraped until this is dropped.
pub struct WatchedInstallation<'w> {
    watch: &'w AlertWatch,
    job: String,
}

/// An alert that fires, or has fired.
#[derive(Debug, Clone)]
pub struct FiringAlert {
    pub alert: String,
    /// The annotations with the labels filled in.
    pub annotations: Value,
}

/// The time limit for an alert to fire: the longest `for` of a rule, which is sixty times shorter here, and time for
/// a busy machine.
const COMES: Duration = Duration::from_secs(45);
/// The time limit for an alert to be resolved: the longest range of a rule, which is sixty times shorter here, and
/// time for a busy machine.
const GOES: Duration = Duration::from_secs(60);

impl AlertWatch {
    /// The instance that the tests of this process share. It ends with the last test that has it, because Prometheus
    /// evaluates the rules for as long as it runs.
    pub async fn shared() -> Arc<Self> {
        static WATCH: Mutex<Weak<AlertWatch>> = Mutex::const_new(Weak::new());
        let mut running = WATCH.lock().await;
        if let Some(watch) = running.upgrade() {
            return watch;
        }
        let watch = Arc::new(Self::own().await);
        *running = Arc::downgrade(&watch);
        watch
    }

    /// An instance of its own, for a test of alerts about everything that a Prometheus scrapes.
    pub async fn own() -> Self {
        Self(Prometheus::start_hurried().await)
    }

    /// An installation with jobs of its own.
    pub fn installation(&self, name: &str) -> WatchedInstallation<'_> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let job = format!("fencegate-{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        WatchedInstallation { watch: self, job }
    }

    /// All alerts that are firing or pending.
    async fn alerts(&self) -> Vec<Value> {
        let mut told = self.0.query_api("/api/v1/alerts", &[]).await;
        match told["data"]["alerts"].take() {
            Value::Array(alerts) => alerts,
            other => panic!("no alerts: {other}"),
        }
    }
}

impl WatchedInstallation<'_> {
    /// Scrapes these targets from now on. Returns when each was scraped twice, so that counters that begin at zero
    /// were seen at zero.
    ///
    /// # Panics
    /// If a target is not scraped in time.
    pub async fn set_targets(&self, targets: &[SocketAddr]) {
        for target in targets {
            let file = self.watch.0.targets().join(format!("{}-{}.json", self.job, target.port()));
            let told = json!([{"targets": [target.to_string()], "labels": {"job": self.job}}]);
            // Rename the complete file, because Prometheus reads it as soon as it appears.
            let beside = file.with_extension("new");
            fs::write(&beside, told.to_string()).expect("our own folder");
            fs::rename(&beside, &file).expect("our own folder");
        }
        for target in targets {
            self.wait_for_value(&format!(
                "count_over_time(up{{job=\"{}\", instance=\"{target}\"}}[1m]) > 1",
                self.job
            ))
            .await;
        }
    }

    pub fn job(&self) -> &str {
        &self.job
    }

    /// Polls until an expression has a result: Prometheus sends no event.
    ///
    /// # Panics
    /// If there is no result in time.
    pub async fn wait_for_value(&self, expression: &str) {
        let seen = async {
            while self.watch.0.query(expression).await.is_empty() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let log = || self.watch.0.log();
        timeout(COMES, seen).await.unwrap_or_else(|_| panic!("never seen: {expression}\n{}", log()));
    }

    /// Polls until an alert of this installation fires.
    ///
    /// # Panics
    /// If the alert does not fire in time, or if its annotations are incomplete.
    pub async fn wait_firing(&self, alert: &str) -> FiringAlert {
        let fires = async {
            loop {
                if let Some(found) = self.find_alert(alert).await {
                    return found;
                }
                sleep(Duration::from_millis(100)).await;
            }
        };
        let found = match timeout(COMES, fires).await {
            Ok(found) => found,
            Err(_) => panic!("{alert} does not fire; what does: {:#?}", self.watch.alerts().await),
        };
        let annotations = found["annotations"].clone();
        let text = annotations.to_string();
        assert!(!text.contains("{{") && !text.contains("<no value>"), "{found}");
        println!("{alert}: {}", annotations["summary"]);
        FiringAlert { alert: alert.to_owned(), annotations }
    }

    /// Polls until the alert does not fire any more.
    ///
    /// # Panics
    /// If the alert still fires after the time limit.
    pub async fn wait_resolved(&self, firing: &FiringAlert) {
        let ends = async {
            while self.find_alert(&firing.alert).await.is_some() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(GOES, ends).await.unwrap_or_else(|_| panic!("{} does not end", firing.alert));
    }

    /// Finds a firing alert of this installation. An alert without job and instance is about all targets.
    async fn find_alert(&self, alert: &str) -> Option<Value> {
        let own = self.target_files().expect("our own folder");
        let ours = |labels: &Value| match (labels["job"].as_str(), labels["instance"].as_str()) {
            (Some(job), _) => job == self.job,
            (None, Some(instance)) => own.iter().any(|(_, known)| known == instance),
            (None, None) => true,
        };
        let fires = |told: &Value| told["state"] == "firing" && told["labels"]["alertname"] == alert;
        self.watch.alerts().await.into_iter().find(|told| fires(told) && ours(&told["labels"]))
    }

    /// The files of this installation's targets, each with the target's address.
    fn target_files(&self) -> io::Result<Vec<(PathBuf, String)>> {
        let own = fs::read_dir(self.watch.0.targets())?.flatten().filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            let port = name.strip_prefix(&self.job)?.strip_prefix('-')?.strip_suffix(".json")?;
            Some((file.path(), format!("127.0.0.1:{port}")))
        });
        Ok(own.collect())
    }
}

impl Drop for WatchedInstallation<'_> {
    /// Removes the targets, which end with the test. Otherwise they would be scraped in vain while other tests run.
    fn drop(&mut self) {
        for (file, _) in self.target_files().unwrap_or_default() {
            // An error is ignored: if the folder is gone, Prometheus has ended.
            drop(fs::remove_file(file));
        }
    }
}
