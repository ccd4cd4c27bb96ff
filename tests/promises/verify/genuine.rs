//! The sample service passes in full as it is shipped: two processes with one database, killed and started again.

use std::{fs, path::PathBuf};

use fencegate_testkit::{child::ChildProcess, scratch, wait::PATIENCE};
use fencegate_tests::{effort::effort, ensemble::free_ports};
use tempfile::TempDir;

use super::VerifyResult;

/// Two processes of the sample service, each of which is started again when it ends.
struct LedgerPair {
    home: TempDir,
    urls: [String; 2],
    _processes: [ChildProcess; 2],
}

impl LedgerPair {
    /// `more`: further arguments of the command line.
    fn start(compare: &str, more: &str) -> Self {
        let home = TempDir::new_in(scratch::folder()).expect("a folder");
        let program = scratch::binaries().join("fencegate-ledger");
        let ports = free_ports(2);
        let start = |number: usize| {
            let folder = home.path().display();
            let port = ports[number];
            // The service is killed with the shell, and the shell with the test.
            let script = format!(
                "while :; do setpriv --pdeathsig KILL -- {} --listen 127.0.0.1:{port} --compare {compare} {more} \
                 --database {folder}/ledger.sqlite --work-time 3ms & echo $! > {folder}/{number}.pid; wait $!; done",
                program.display()
            );
            let child = ChildProcess::spawn("sh", ["-c", &script]).expect("setpriv and sh");
            child.wait_line(|line| line.contains("listening"), PATIENCE).expect("it listens");
            child
        };
        // The first process makes the tables before the second one looks for them.
        let processes = [start(0), start(1)];
        Self {
            home,
            urls: [0, 1].map(|one| format!("http://127.0.0.1:{}", ports[one])),
            _processes: processes,
        }
    }

    fn restart_command(&self) -> String {
        let pid = |number: usize| -> PathBuf { self.home.path().join(format!("{number}.pid")) };
        assert!(fs::exists(pid(0)).expect("our own folder"));
        format!("kill -9 $(cat {} {})", pid(0).display(), pid(1).display())
    }

    async fn run_verify(&self, rounds: usize, more: &[&str]) -> VerifyResult {
        let restart = self.restart_command();
        let rounds = rounds.to_string();
        let usual = [&*self.urls[0], &self.urls[1], "--fencing-key", "account/{key}", "--shared"];
        let sight =
            ["--read", "GET /v1/accounts/{key}", "--observe", "GET /v1/accounts/{key}", "--pick", "/balance"];
        VerifyResult::run(&[&usual[..], &sight, &["--restart", &restart, "--rounds", &rounds], more].concat())
            .await
    }
}

const DEBIT: [&str; 4] =
    ["--request", "POST /v1/accounts/{key}/debit", "--body", r#"{"operation":"{operation}","amount":7}"#];
const MORE: [&str; 6] = [
    "--slow-request",
    "POST /v1/accounts/{key}/debit",
    "--also",
    "POST /v1/accounts/{key}/credit",
    "--remember",
    "1s",
];
const TRANSFER: [&str; 4] = [
    "--request",
    "POST /v1/transfers",
    "--body",
    r#"{"operation":"{operation}","from":"{key}","to":"{other}","amount":7}"#,
];

/// The number of rounds of each race, enough for a sound service to refuse stale requests in some of them.
fn rounds() -> usize {
    effort(6, 12)
}

/// Cases for services that answer the probes of a guard. The ledger does not.
const OF_PROBES: [&str; 4] = ["no-elsewhere", "no-is-final", "no-is-kept", "repeat-runs"];

#[tokio::test(flavor = "multi_thread")]
async fn ledger_passes_by_token() {
    let ledgers = LedgerPair::start("token", "--clock-error 500ms");
    let verified = ledgers.run_verify(rounds(), &[&DEBIT[..], &MORE, &["--not-after"]].concat()).await;
    assert_eq!(verified.code, Some(0), "{:#}", verified.report);
    let several = ["all-or-none", "crossed", "number-suffices", "one-is-stale"];
    assert_eq!(verified.cases_with("skipped"), several.into_iter().chain(OF_PROBES).collect());

    let verified = ledgers.run_verify(rounds(), &TRANSFER).await;
    assert_eq!(verified.code, Some(0), "{:#}", verified.report);
    let alone = ["number-suffices", "other-request", "remembered", "slow-effect"];
    let unasked = ["late", "not-after-malformed", "not-after-twice"];
    assert_eq!(verified.cases_with("skipped"), alone.into_iter().chain(unasked).chain(OF_PROBES).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_passes_by_number() {
    let ledgers = LedgerPair::start("number", "");
    let verified = ledgers.run_verify(rounds(), &[&DEBIT[..], &MORE, &["--token", "number"]].concat()).await;
    assert_eq!(verified.code, Some(0), "{:#}", verified.report);
    let by_token =
        ["dispatch-width", "duplicate", "number-alone", "same-token", "same-token-apart", "sequence"];
    let several =
        ["all-or-none", "crossed", "late", "not-after-malformed", "not-after-twice", "one-is-stale"];
    assert_eq!(
        verified.cases_with("skipped"),
        by_token.into_iter().chain(several).chain(OF_PROBES).collect()
    );
}

/// A service that reads, works and writes without comparing fails, as most services would.
#[tokio::test(flavor = "multi_thread")]
async fn ledger_without_comparison_fails() {
    let ledgers = LedgerPair::start("off", "");
    let verified = ledgers.run_verify(12, &DEBIT).await;
    assert_eq!(verified.code, Some(3), "{:#}", verified.report);
    for case in
        ["older", "equal", "no-token", "malformed", "held-body", "writers", "stale-reader", "after-restart"]
    {
        assert!(verified.cases_with("failed").contains(case), "{case}: {:?}", verified.cases_with("failed"));
    }
}
