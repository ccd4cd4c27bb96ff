//! How the story is told: line by line to people, and in one object to machines.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;

use super::{
    audit::Audit,
    cluster::Cluster,
    late::Late,
    options::{Level, ReportFormat},
    payer::{Receipt, Told},
};

/// Tells what happens while it happens.
pub(super) struct Narrator {
    format: ReportFormat,
    began: Instant,
    /// Turns on stderr while something is waited for, where that is a terminal; elsewhere it is not there.
    waiting: ProgressBar,
}

/// What was claimed and what was found.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) level: Level,
    #[serde(flatten)]
    pub(super) findings: Audit,
    /// Late requests that the ledger turned away.
    pub(super) stale_refused: u64,
    /// Some tokens of the account of the accident, in the order of execution.
    pub(super) tokens: Vec<String>,
    /// Its version.
    pub(super) zookeeper: String,
}

/// A statement about the run, and whether it is true.
struct Claim {
    text: String,
    holds: bool,
}

impl Summary {
    /// Every claim held; without a fence: the accident could be shown.
    pub(super) fn holds(&self) -> bool {
        self.claims().iter().all(|claim| claim.holds)
    }

    fn claims(&self) -> Vec<Claim> {
        let found = &self.findings;
        let claim = |text: String, holds| Claim { text, holds };
        match self.level {
            Level::Guard | Level::Upstream => vec![
                claim(
                    format!("{} payments acknowledged, at least 200", found.payments),
                    found.payments >= 200,
                ),
                claim(
                    format!("{} operations executed twice", found.executed_twice),
                    found.executed_twice == 0,
                ),
                claim(format!("{} executions of one account overlap", found.overlaps), found.overlaps == 0),
                claim(format!("{} stale requests executed", found.stale_executed), found.stale_executed == 0),
                claim(
                    format!("{} stale requests refused, at least 1", self.stale_refused),
                    self.stale_refused > 0,
                ),
                claim("every balance is exact to the cent".to_owned(), found.balance_ok),
                claim(
                    "tokens of an account grow".to_owned(),
                    self.tokens.len() > 1 && self.tokens.is_sorted_by(|a, b| a < b),
                ),
            ],
            Level::None => {
                let accidents = found.executed_twice + found.stale_executed;
                let text = format!(
                    "the accident is shown: {} operations executed twice, {} stale requests executed",
                    found.executed_twice, found.stale_executed
                );
                vec![claim(text, accidents > 0)]
            }
        }
    }
}

impl Narrator {
    pub(super) fn of(format: ReportFormat) -> Self {
        let waiting = ProgressBar::new_spinner();
        waiting.enable_steady_tick(TURN);
        Self { format, began: Instant::now(), waiting }
    }

    pub(super) fn title(&self, level: Level) {
        self.waiting.set_message("starting ZooKeeper, the ledger and the gateways");
        self.raw(match level {
            Level::Guard => {
                "One frozen gateway, one late debit, and a guard before a service that knows nothing of fencing."
            }
            Level::Upstream => {
                "One frozen gateway, one late debit, and a service that compares fencing tokens."
            }
            Level::None => {
                "One frozen gateway, one late debit, and nobody who compares: the lock is all there is."
            }
        });
    }

    pub(super) fn introduce(&self, cluster: &Cluster) {
        self.raw("");
        self.line(&format!("ZooKeeper {} at {}", cluster.version, cluster.zookeeper.address()));
        let ledger = &cluster.ledger;
        self.line(&format!("ledger at http://{} (process {})", ledger.address, ledger.process.pid()));
        if let Some(guard) = &cluster.guard {
            let (public, admin, pid) = (guard.public, guard.admin, guard.process.pid());
            self.line(&format!(
                "guard at http://{public}, page at http://{admin}/, metrics at http://{admin}/metrics (process {pid})"
            ));
        }
        for gateway in &cluster.gateways {
            let (name, public, admin) = (gateway.name, gateway.public, gateway.admin);
            let pid = gateway.process.pid();
            self.line(&format!(
                "{name} at http://{public}, page at http://{admin}/, metrics at http://{admin}/metrics (process {pid})"
            ));
        }
    }

    pub(super) fn chapter(&self, title: &str) {
        self.raw(&format!("\n{title}"));
        self.waiting.set_message(title.to_owned());
    }

    pub(super) fn line(&self, text: &str) {
        self.raw(&format!("  {:5.1} s  {text}", self.began.elapsed().as_secs_f64()));
    }

    pub(super) fn paid(&self, receipts: &[Receipt], how: &str) {
        let done = receipts.iter().filter(|receipt| matches!(receipt.told, Told::Done { .. })).count();
        self.line(&format!("{done} of {} payments done {how}", receipts.len()));
        for Receipt { payment, told } in
            receipts.iter().filter(|receipt| !matches!(receipt.told, Told::Done { .. }))
        {
            self.line(&format!("not done: {} of {}: {told:?}", payment.operation, payment.account));
        }
    }

    /// `after` the freeze.
    pub(super) fn taken_over(&self, receipt: &Receipt, after: Duration) {
        match &receipt.told {
            Told::Done { token } => {
                let (token, after) = (token.as_deref().unwrap_or("none"), after.as_secs_f64());
                self.line(&format!(
                    "{after:.1} s after the freeze the lock is free: gateway-2 gets it, the debit is done"
                ));
                self.line(&format!("         with token {token}"));
            }
            other => self.line(&format!("gateway-2 could not do it: {other:?}")),
        }
    }

    pub(super) fn arrived(&self, level: Level, late: &Late) {
        self.line("the network delivers the old bytes of gateway-1");
        match late {
            Late::Refused { presented, newest } => {
                self.line(&format!("     their token {presented} is older than"));
                self.line(&format!("          the last {newest}: REFUSED, nothing was debited"));
            }
            Late::Executed { token } => {
                self.line(&format!("         with token {token}: EXECUTED, the account is debited twice"));
            }
            Late::Nowhere if level != Level::None => self.line("nobody saw anything of them"),
            Late::Nowhere => self.line("the ledger did not execute them"),
        }
    }

    pub(super) fn woken(&self, told: &Told) {
        let told = match told {
            Told::Done { .. } => "done".to_owned(),
            Told::Refused(why) => format!("refused ({why})"),
            Told::Unknown(why) => format!("outcome unknown ({why})"),
        };
        self.line(&format!("gateway-1 wakes up and tells the client of long ago: {told}"));
    }

    pub(super) fn sum_up(&self, summary: &Summary) {
        self.waiting.finish_and_clear();
        for Claim { text, holds } in summary.claims() {
            self.raw(&format!("  {} {text}", if holds { "yes" } else { "NO " }));
        }
        for token in &summary.tokens {
            self.raw(&format!("      {token}"));
        }
        if self.format == ReportFormat::Json {
            let line = serde_json::to_string(summary).expect("numbers and text");
            write(&mut io::stdout(), &line);
        }
    }

    /// What the processes said last, when a claim did not hold.
    pub(super) fn show_logs(&self, cluster: &Cluster) {
        let gateways = cluster.gateways.iter().map(|gateway| (gateway.name, &gateway.process));
        for (name, process) in gateways.chain([("ledger", &cluster.ledger.process)]) {
            let log = process.log();
            let lines: Vec<&str> = log.lines().collect();
            write(
                &mut io::stderr(),
                &format!("--- {name}, last lines\n{}", lines[lines.len().saturating_sub(20)..].join("\n")),
            );
        }
    }

    pub(super) fn invite(&self, cluster: &Cluster) {
        self.raw("\nEverything keeps running until Ctrl-C. Try:");
        let [first, second] = &cluster.gateways;
        self.raw(&format!(
            "  curl -i http://{}/v1/accounts/alice/debit -d '{{\"operation\":\"mine-1\",\"amount\":500}}'",
            first.public
        ));
        self.raw(&format!("  curl http://{}/v1/accounts/alice", second.public));
        self.raw(&format!("  curl http://{}/v1/executions", cluster.ledger.address));
        for gateway in [first, second] {
            self.raw(&format!("  open http://{}/ in a browser      {}", gateway.admin, gateway.name));
        }
        self.raw(&format!("  kill -STOP {}; sleep 3; kill -CONT {0}", first.process.pid()));
    }

    fn raw(&self, line: &str) {
        self.waiting.suspend(|| match self.format {
            ReportFormat::Text => write(&mut io::stdout(), line),
            ReportFormat::Json => write(&mut io::stderr(), line),
        });
    }
}

/// Interrupted, too, the line of the terminal is left empty.
impl Drop for Narrator {
    fn drop(&mut self) {
        self.waiting.finish_and_clear();
    }
}

/// Between two pictures of what turns.
const TURN: Duration = Duration::from_millis(120);

/// Whoever has stopped reading has seen enough; the exit code still tells.
fn write(out: &mut dyn Write, line: &str) {
    let _unread = writeln!(out, "{line}").and_then(|()| out.flush());
}
