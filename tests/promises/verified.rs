//! Two instances of a sample service on one database, and what `fencegate verify` says of them.

use std::{fs, net::TcpListener, process::Command};

use fencegate::demo::child::Child;
use fencegate_tests::{patience::PATIENCE, prometheus::deploy, scratch};
use serde_json::Value;
use tempfile::TempDir;

/// An instance that is killed is started again.
pub(super) struct Verified {
    home: TempDir,
    instances: Vec<(u16, Child)>,
}

/// What a service is asked that has none of it: another kind of request, and an end of what it remembers.
const UNASKED: [&str; 2] = ["other-request", "remembered"];
/// What is asked of the other form only.
const BY_NUMBER: [&str; 1] = ["number-suffices"];
const BY_TOKEN: [&str; 6] =
    ["duplicate", "sequence", "number-alone", "dispatch-width", "same-token", "same-token-apart"];

/// Keeps one process running: `$0` gets its number, the rest is its command line.
const KEEP: &str = r#"
while :; do
    setpriv --pdeathsig KILL -- "$@" &
    echo $! > "$0"
    wait $!
    sleep 0.1
done
"#;

/// The tables of a recipe.
pub(super) fn tables(database: &str, form: &str) -> String {
    let file = deploy().join("upstream").join(database).join(format!("{form}.sql"));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let tables = text.split("-- ").find_map(|section| section.strip_prefix("table\n"));
    tables.expect("a section of tables").to_owned()
}

impl Verified {
    /// `command`: program and arguments that listen at this port of 127.0.0.1, and say `listening` then.
    ///
    /// # Panics
    /// If it does not listen in time.
    pub(super) fn start(command: impl Fn(u16) -> Vec<String>) -> Self {
        let home = TempDir::new_in(scratch::folder()).expect("a folder");
        let instances = [free_port(), free_port()].map(|port| {
            let number = home.path().join(port.to_string()).display().to_string();
            let words = ["-c".to_owned(), KEEP.to_owned(), number].into_iter().chain(command(port));
            (port, Child::spawn("sh", words).expect("setpriv"))
        });
        for (_, child) in &instances {
            let listens = |line: &str| line.contains("listening");
            child.wait_line(listens, PATIENCE).unwrap_or_else(|error| panic!("{error}"));
        }
        Self { home, instances: instances.into() }
    }

    /// Every case passes that such a service is asked, also while its instances are killed.
    ///
    /// # Panics
    /// If one does not.
    pub(super) fn passes(&self, form: &str) {
        let report = self.report(form);
        let other_form = if form == "token" { &BY_NUMBER[..] } else { &BY_TOKEN };
        let mut passed = 0;
        for case in report["cases"].as_array().expect("a list") {
            let name = case["name"].as_str().expect("a name");
            match case["verdict"].as_str() {
                Some("passed") => passed += 1,
                Some("skipped") if UNASKED.contains(&name) || other_form.contains(&name) => {}
                _ => panic!("{case:#}\n{}", self.log()),
            }
        }
        assert!(passed > 30, "{report:#}");
    }

    fn report(&self, form: &str) -> Value {
        let mut command = Command::new("timeout");
        // Seconds; a machine that is busy takes some minutes.
        command.arg("300").arg(scratch::binaries().join("fencegate")).arg("verify");
        command.args(self.instances.iter().map(|(port, _)| format!("http://127.0.0.1:{port}")));
        command.args(["--token", if form == "token" { "field" } else { "number" }]);
        let body = r#"{"amount":1,"to":"{other}"}"#;
        command.args(["--request", "POST /v1/accounts/{key}/debit", "--body", body]);
        command.args(["--slow-request", "POST /v1/accounts/{key}/debit?work_ms=100"]);
        command.args(["--observe", "GET /v1/accounts/{key}", "--pick", "/balance"]);
        command.args(["--fencing-key", "account/{key}", "--shared", "--read", "GET /v1/accounts/{key}"]);
        let killed = format!("kill -9 $(cat {}/*)", self.home.path().display());
        command.args(["--restart", &killed, "--rounds", "2", "--format", "json"]);
        let output = command.output().expect("`timeout` is there");
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}\n{}", self.log()))
    }

    fn log(&self) -> String {
        self.instances.iter().map(|(_, child)| child.log()).collect()
    }
}

/// Nobody else's at this moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}
