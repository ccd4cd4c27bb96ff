//! Prints the story: line by line for people, and as one object for programs.

use std::cmp::Ordering;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;

use fencegate_policies::token::FencingToken;

use super::{
    audit::{AccountStatement, PaymentAudit},
    clients::{PaymentOutcome, PaymentResult},
    cluster::DemoCluster,
    late_write::LateWriteOutcome,
    options::{DemoFenceLevel, DemoReportFormat},
};

/// Prints the story while it happens.
pub(super) struct DemoReporter {
    format: DemoReportFormat,
    /// Whether the whole story is printed, and not only its result.
    verbose: bool,
    began: Instant,
    /// A spinner that turns on stderr during a wait, if stderr is a terminal.
    waiting: ProgressBar,
}

/// The claims, and the facts that were found.
#[derive(Debug, Serialize)]
pub(super) struct DemoSummary {
    pub(super) level: DemoFenceLevel,
    #[serde(flatten)]
    pub(super) findings: PaymentAudit,
    /// Every account, to the cent.
    pub(super) accounts: Vec<AccountStatement>,
    /// The number of sessions of gateways that were lost. The accident costs one of them.
    pub(super) sessions_lost: u64,
    /// Late requests that were refused.
    pub(super) stale_refused: u64,
    /// Some tokens of the account of the accident, in the order of execution.
    pub(super) tokens: Vec<String>,
    /// The version of ZooKeeper.
    pub(super) zookeeper: String,
}

/// A statement about the run, and whether it is true.
pub(super) struct DemoClaim {
    pub(super) text: String,
    pub(super) holds: bool,
}

impl DemoSummary {
    /// True if every claim held; without a fence, if the accident was shown.
    pub(super) fn all_claims_hold(&self) -> bool {
        self.claims().iter().all(|claim| claim.holds)
    }

    pub(super) fn claims(&self) -> Vec<DemoClaim> {
        let found = &self.findings;
        let claim = |text: String, holds| DemoClaim { text, holds };
        match self.level {
            DemoFenceLevel::Guard | DemoFenceLevel::Upstream => vec![
                claim(
                    format!("{} payments acknowledged (expected: >= 200)", found.payments),
                    found.payments >= 200,
                ),
                claim(
                    format!("{} operations executed twice (expected: 0)", found.executed_twice),
                    found.executed_twice == 0,
                ),
                claim(
                    format!("{} executions of one account overlap (expected: 0)", found.overlaps),
                    found.overlaps == 0,
                ),
                claim(
                    format!("{} stale requests executed (expected: 0)", found.stale_executed),
                    found.stale_executed == 0,
                ),
                claim(
                    format!("{} stale requests refused (expected: >= 1)", self.stale_refused),
                    self.stale_refused > 0,
                ),
                claim("every balance is exact to the cent".to_owned(), found.balance_ok),
                claim(
                    "tokens of an account grow".to_owned(),
                    self.tokens.len() > 1 && self.tokens.is_sorted_by(|a, b| a < b),
                ),
            ],
            DemoFenceLevel::None | DemoFenceLevel::Unfenced => {
                let accidents = found.executed_twice + found.stale_executed;
                let shown = claim(
                    format!(
                        "the accident is shown: {} operations executed twice, {} stale requests executed",
                        found.executed_twice, found.stale_executed
                    ),
                    accidents > 0,
                );
                // Executions of one account do not overlap while sessions live and the service answers in time.
                // The accident costs one session. If more were lost, or an outcome is unknown, an overlap breaks
                // no promise.
                let turns = claim(
                    format!("{} executions of one account overlap (expected: 0)", found.overlaps),
                    found.overlaps == 0 || self.sessions_lost > 1 || found.unknown > 0,
                );
                if self.level == DemoFenceLevel::None { vec![shown, turns] } else { vec![shown] }
            }
        }
    }

    /// The cents that are missing or too many, over all accounts.
    pub(super) fn total_difference(&self) -> u64 {
        self.accounts.iter().map(AccountStatement::balance_difference).sum()
    }
}

/// Cents in the form in which people write money.
pub(super) fn format_money(cents: u64) -> String {
    let whole = (cents / 100).to_string();
    let part = cents % 100;
    let digits: Vec<char> = whole.chars().collect();
    let groups: Vec<String> = digits.rchunks(3).rev().map(|group| group.iter().collect()).collect();
    format!("{}.{part:02}", groups.join(","))
}

/// The balance of an account, and the sum that it should be.
fn balance_text(statement: &AccountStatement) -> String {
    let AccountStatement { account, began, has, should_have } = statement;
    let change = should_have - began;
    let sign = if change < 0 { '-' } else { '+' };
    let cents = |cents: i64| format_money(cents.unsigned_abs());
    let sum = format!("{} {sign} {}", cents(*began), cents(change));
    match has.cmp(should_have) {
        Ordering::Equal => format!("{account:<6}{:>10} = {sum}", cents(*has)),
        Ordering::Less => {
            format!(
                "{account:<6}{:>10}, which is {} less than {sum}",
                cents(*has),
                format_money(statement.balance_difference())
            )
        }
        Ordering::Greater => {
            format!(
                "{account:<6}{:>10}, which is {} more than {sum}",
                cents(*has),
                format_money(statement.balance_difference())
            )
        }
    }
}

/// A token, followed by the number in it that grows.
fn token_with_number(token: &str) -> String {
    match FencingToken::parse(token) {
        Ok(parsed) => format!("{token} (number {})", parsed.number()),
        Err(_) => token.to_owned(),
    }
}

impl DemoReporter {
    pub(super) fn new(format: DemoReportFormat) -> Self {
        Self::with_verbosity(true, format)
    }

    /// Prints only the result.
    pub(super) fn summary_only(format: DemoReportFormat) -> Self {
        Self::with_verbosity(false, format)
    }

    fn with_verbosity(tells: bool, format: DemoReportFormat) -> Self {
        let waiting = ProgressBar::new_spinner();
        waiting.enable_steady_tick(TURN);
        Self { format, verbose: tells, began: Instant::now(), waiting }
    }

    pub(super) fn print_title(&self, level: DemoFenceLevel) {
        self.waiting.set_message("starting ZooKeeper, the ledger and the gateways");
        if !self.verbose {
            return;
        }
        self.print_line("A lock alone does not stop a late write.");
        self.print_line("Watch what becomes of a debit that arrives after its lock was lost.");
        self.print_line(match level {
            DemoFenceLevel::Unfenced => "One frozen gateway, one late debit, and no lock at all.",
            DemoFenceLevel::Guard => {
                "One frozen gateway, one late debit, and a guard before a service that knows nothing of fencing."
            }
            DemoFenceLevel::Upstream => {
                "One frozen gateway, one late debit, and a service that compares fencing tokens."
            }
            DemoFenceLevel::None => {
                "One frozen gateway, one late debit, and nobody who compares: the lock is all there is."
            }
        });
    }

    pub(super) fn print_processes(&self, cluster: &DemoCluster) {
        if !self.verbose {
            return;
        }
        self.print_line("");
        self.print_step(&format!("ZooKeeper {} at {}", cluster.version, cluster.zookeeper.address()));
        let ledger = &cluster.ledger;
        self.print_step(&format!("ledger at http://{} (process {})", ledger.address, ledger.process.pid()));
        if let Some(guard) = &cluster.guard {
            let public = guard.public;
            let admin = guard.admin;
            let pid = guard.process.pid();
            self.print_step(&format!(
                "guard at http://{public}, page at http://{admin}/, metrics at http://{admin}/metrics (process {pid})"
            ));
        }
        for gateway in &cluster.gateways {
            let name = gateway.name;
            let public = gateway.public;
            let admin = gateway.admin;
            let pid = gateway.process.pid();
            self.print_step(&format!(
                "{name} at http://{public}, page at http://{admin}/, metrics at http://{admin}/metrics (process {pid})"
            ));
        }
    }

    pub(super) fn print_chapter(&self, title: &str) {
        if self.verbose {
            self.print_line(&format!("\n{title}"));
        }
        self.waiting.set_message(title.to_owned());
    }

    pub(super) fn print_step(&self, text: &str) {
        if !self.verbose {
            return;
        }
        self.print_line(&format!("  {:5.1} s  {text}", self.began.elapsed().as_secs_f64()));
    }

    pub(super) fn report_payments(&self, receipts: &[PaymentResult], how: &str) {
        let done =
            receipts.iter().filter(|receipt| matches!(receipt.outcome, PaymentOutcome::Done { .. })).count();
        self.print_step(&format!("{done} of {} payments done {how}", receipts.len()));
        for PaymentResult { payment, outcome } in
            receipts.iter().filter(|receipt| !matches!(receipt.outcome, PaymentOutcome::Done { .. }))
        {
            self.print_step(&format!("not done: {} of {}: {outcome:?}", payment.operation, payment.account));
        }
    }

    /// Reports the debit at the other gateway. `after`: the time since the freeze.
    pub(super) fn report_takeover(&self, level: DemoFenceLevel, receipt: &PaymentResult, after: Duration) {
        match &receipt.outcome {
            PaymentOutcome::Done { token } => {
                let after = after.as_secs_f64();
                let free = if level == DemoFenceLevel::Unfenced {
                    ""
                } else {
                    " the lock is free: gateway-2 gets it,"
                };
                self.print_step(&format!("{after:.1} s after the freeze{free} the debit is done"));
                if let Some(token) = token {
                    self.print_step(&format!("         with token {}", token_with_number(token)));
                }
            }
            other => self.print_step(&format!("gateway-2 could not do it: {other:?}")),
        }
    }

    pub(super) fn report_late_write(&self, level: DemoFenceLevel, late: &LateWriteOutcome) {
        self.print_step("the network delivers the old bytes of gateway-1");
        match late {
            LateWriteOutcome::Refused { presented, newest } => {
                self.print_step(&format!("     their token {} is older than", token_with_number(presented)));
                self.print_step(&format!(
                    "          the last {}: REFUSED, nothing was debited",
                    token_with_number(newest)
                ));
            }
            LateWriteOutcome::Executed { token } if token.is_empty() => {
                self.print_step("         without a token: EXECUTED, the account is debited twice");
            }
            LateWriteOutcome::Executed { token } => {
                self.print_step(&format!(
                    "         with token {}: EXECUTED, the account is debited twice",
                    token_with_number(token)
                ));
            }
            LateWriteOutcome::NotFound if level.compares_tokens() => {
                self.print_step("nobody saw anything of them")
            }
            LateWriteOutcome::NotFound => self.print_step("the ledger did not execute them"),
        }
    }

    pub(super) fn report_wakeup(&self, outcome: &PaymentOutcome) {
        let text = match outcome {
            PaymentOutcome::Done { .. } => "done".to_owned(),
            PaymentOutcome::Refused(why) => format!("refused ({why})"),
            PaymentOutcome::Unknown(why) => format!("outcome unknown ({why})"),
        };
        self.print_step(&format!("gateway-1 wakes up and tells the client of long ago: {text}"));
    }

    pub(super) fn print_summary(&self, summary: &DemoSummary) {
        self.waiting.finish_and_clear();
        for DemoClaim { text, holds } in summary.claims() {
            self.print_line(&format!("  {} {text}", if holds { "yes" } else { "NO " }));
        }
        for token in &summary.tokens {
            self.print_line(&format!("      {}", token_with_number(token)));
        }
        for statement in &summary.accounts {
            self.print_line(&format!("      {}", balance_text(statement)));
        }
        if self.format == DemoReportFormat::Json {
            let line = serde_json::to_string(summary).expect("numbers and text");
            write(&mut io::stdout(), &line);
        }
    }

    /// Shows the last output of the processes, if a claim did not hold.
    pub(super) fn show_logs(&self, cluster: &DemoCluster) {
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

    pub(super) fn show_next_steps(&self, cluster: &DemoCluster) {
        self.print_line("\nEverything keeps running until Ctrl-C. Try:");
        let [first, second] = &cluster.gateways;
        self.print_line(&format!(
            "  curl -i http://{}/v1/accounts/alice/debit -d '{{\"operation\":\"mine-1\",\"amount\":500}}'",
            first.public
        ));
        self.print_line(&format!("  curl http://{}/v1/accounts/alice", second.public));
        self.print_line(&format!("  curl http://{}/v1/executions", cluster.ledger.address));
        for gateway in [first, second] {
            self.print_line(&format!("  open http://{}/ in a browser      {}", gateway.admin, gateway.name));
        }
        self.print_line(&format!("  kill -STOP {}; sleep 3; kill -CONT {0}", first.process.pid()));
        self.print_line(&format!("  {} top --admin {}", program(), first.admin));
        self.print_line(&format!("  {} lock show account/alice --admin {}", program(), second.admin));
        self.print_line(&format!(
            "  ls {}      policies and databases of all, until Ctrl-C",
            cluster.folder().display()
        ));
    }

    /// Shows the table of all levels.
    pub(super) fn show_comparison(&self, table: &[String], summaries: &[DemoSummary]) {
        self.waiting.finish_and_clear();
        for line in table {
            self.print_line(line);
        }
        for summary in summaries {
            for DemoClaim { text, .. } in summary.claims().iter().filter(|claim| !claim.holds) {
                self.print_line(&format!("  {}: NO  {text}", summary.level.as_str()));
            }
        }
        if self.format == DemoReportFormat::Json {
            let line = serde_json::to_string(&serde_json::json!({ "levels": summaries }));
            write(&mut io::stdout(), &line.expect("numbers and text"));
        }
    }

    pub(super) fn print_line(&self, line: &str) {
        self.waiting.suspend(|| match self.format {
            DemoReportFormat::Text => write(&mut io::stdout(), line),
            DemoReportFormat::Json => write(&mut io::stderr(), line),
        });
    }
}

/// Clears the line of the terminal, also after an interruption.
impl Drop for DemoReporter {
    fn drop(&mut self) {
        self.waiting.finish_and_clear();
    }
}

/// The name of the program as it has to be typed: the player has built it and not installed it.
fn program() -> String {
    let own = std::env::current_exe().ok();
    own.map_or_else(|| "fencegate".to_owned(), |own| own.display().to_string())
}

/// The time between two pictures of the spinner.
const TURN: Duration = Duration::from_millis(120);

/// Prints a line. A reader that is gone is no error; the exit code still reports the result.
fn write(out: &mut dyn Write, line: &str) {
    let _unread = writeln!(out, "{line}").and_then(|()| out.flush());
}
