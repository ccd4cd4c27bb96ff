//! The commands of the runbook work as they are written. Only paths, keys, nodes, references and numbers are replaced
//! by those of the test.
//!
//! The installation has a key that is held, and operations of unknown outcome.

use std::time::Duration;

use fencegate_refusal::RefusalReason;
use fencegate_testkit::{scratch, wait::wait_until};
use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, PendingRequest, command, write_policy},
    guard::Guard,
    guarded::{GuardedSite, run_operator},
    held_request::HeldRequest,
    leases::{ClientLease, LeaseTokens},
    origin::{Latch, OriginAction},
    policy::TestPolicy,
    runbook::split_words,
    site::TestSite,
    zookeeper,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::printed::documented_commands;

/// The moment when a command can be run. Some commands end the process that others need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RunbookStage {
    /// The gateway holds a key, and some operations have an unknown outcome.
    AtWork,
    /// The command ends the gateway.
    Ends,
    /// No gateway is left.
    Afterwards,
    /// The installation was wiped.
    Wiped,
    /// The command runs until it is stopped, or needs a database.
    Starts,
}

/// A command as the runbook shows it, and its words after `fencegate`.
struct RunbookCommand {
    text: String,
    words: Vec<String>,
}

impl RunbookCommand {
    /// Parses a command. Text without an option, such as `fencegate check` within a sentence, is no complete command.
    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("fencegate ")?;
        rest.contains(" -").then(|| Self { text: text.to_owned(), words: split_words(rest) })
    }

    fn stage(&self) -> RunbookStage {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        match words[..] {
            ["drain", ..] => RunbookStage::Ends,
            ["era", "bump", ..] => RunbookStage::Afterwards,
            ["era", "init", ..] => RunbookStage::Wiped,
            ["guard", ..] if words.contains(&"--init") => RunbookStage::Starts,
            // The guard of this command has ended; `guard_backup` runs the command.
            ["guard", "restore", ..] => RunbookStage::Starts,
            ["guard", "migrate", ..] => RunbookStage::Starts,
            _ => RunbookStage::AtWork,
        }
    }
}

/// An installation in which several things have gone wrong, as the runbook expects.
struct RunbookFixture {
    guarded: GuardedSite,
    _guard: Guard,
    gateway: Gateway,
    /// A gateway of another installation, which records operations in ZooKeeper.
    _other: Gateway,
    held: Option<(PendingRequest, Latch)>,
    /// A lease that its client does not release.
    lease: ClientLease,
    _tokens: LeaseTokens,
    /// Files as an operator would have them, with the addresses of the processes.
    policy: String,
    guard_file: String,
    other_policy: String,
    wiped_policy: String,
    home: TempDir,
}

const KEY: &str = "account/held";

impl RunbookFixture {
    async fn start() -> Self {
        let home = scratch::temp_dir();
        let file = |name: &str, policy: &TestPolicy| {
            let folder = home.path().join(name);
            std::fs::create_dir(&folder).expect("our own folder");
            write_policy(&folder, &policy.to_string()).display().to_string()
        };
        let guarded = GuardedSite::fresh().await;
        let tokens = LeaseTokens::default();
        let guard = guarded.launch().await.with_admin_token().start().await;
        let once = json!({"store": "guard", "key": "{header.idempotency-key}"});
        // One route records its operations, so a held request is an operation, too.
        let policy = tokens.grant(guarded.policy("gw-1", &[guard.public])).with("/routes/0/fence/once", once);
        let gateway = Gateway::start(&policy).await;
        for (n, path) in ["/pay/7", "/pay/8"].into_iter().enumerate() {
            send_unknown_operation(&guarded.site, &gateway, path, n).await;
        }
        let lease = ClientLease::acquire(&gateway, json!({"keys": ["job/held"], "ttl_ms": 30_000})).await;
        let remembering = guarded
            .site
            .policy("gw-2")
            .with("/zookeeper/root", zookeeper::fresh_root())
            .with("/routes/0/fence/once", json!({"store": "zookeeper"}));
        let remembers = Gateway::start(&remembering).await;
        send_unknown_operation(&guarded.site, &remembers, "/pay/9", 9).await;

        let policy = policy.with("/admin/address", gateway.admin.to_string());
        Self {
            policy: file("gateway", &policy),
            guard_file: file(
                "guard",
                &guard.launch().file().clone().with("/admin/address", guard.admin.to_string()),
            ),
            other_policy: file("other", &remembering),
            wiped_policy: file("wiped", &policy.clone().with("/zookeeper/root", zookeeper::fresh_root())),
            held: None,
            lease,
            _tokens: tokens,
            _other: remembers,
            guarded,
            _guard: guard,
            gateway,
            home,
        }
    }

    /// Sends a request that holds [`KEY`]. The request before it ends, or the guard has given it up.
    async fn hold_key(&mut self, operation: usize) {
        self.release_key().await;
        let asked = TestRequest::post("/pay/held").field("idempotency-key", &format!("held-{operation}"));
        let HeldRequest { request, latch, .. } =
            self.guarded.site.origin.hold_request(&self.gateway, asked).await;
        self.held = Some((request, latch));
    }

    async fn release_key(&mut self) {
        if let Some((asked, latch)) = self.held.take() {
            latch.release();
            asked.result().await.ok();
        }
    }

    /// The words of the command with the values of this installation in place of the examples.
    async fn filled_in_words(&self, told: &RunbookCommand) -> Vec<String> {
        let of_other = told.words[0] == "once";
        let policy = match told.stage() {
            RunbookStage::Wiped => &self.wiped_policy,
            _ if of_other => &self.other_policy,
            _ => &self.policy,
        };
        let mut typed = Vec::new();
        for word in &told.words {
            typed.push(match word.as_str() {
                "/etc/fencegate/policy.yaml" => policy.clone(),
                "/etc/fencegate/guard.yaml" => self.guard_file.clone(),
                "/var/backups/guard.backup" => self.home.path().join("guard.backup").display().to_string(),
                "KEY" => KEY.to_owned(),
                "NODE" => self.node().await,
                "REF" if told.words[0] == "lease" => self.lease.reference.clone(),
                "REF" if of_other => reference(&["once", "list", "-c", &self.other_policy]).await,
                "REF" => reference(&["guard", "show", "-c", &self.guard_file]).await,
                "E" | "123456789" => (self.floor().await + 1).to_string(),
                "UUID" | "0123456789abcdef" => self.guarded.ensemble.clone(),
                _ => word.clone(),
            });
        }
        // Such a command runs until it is stopped, or needs a database, so it is parsed with `--help` and not run.
        if told.stage() == RunbookStage::Starts {
            typed.push("--help".to_owned());
        }
        typed
    }

    async fn floor(&self) -> u64 {
        let told = json(&["era", "show", "-c", &self.policy]).await;
        told["floor"].as_u64().expect("a number")
    }

    async fn node(&self) -> String {
        let told = json(&["lock", "show", KEY, "-c", &self.policy]).await;
        let line = told["line"].as_array().expect("a line");
        let holder = line.iter().find(|one| one["holds"] == true).expect("somebody holds it");
        holder["node"].as_str().expect("a name").to_owned()
    }
}

/// The reference of the first unknown operation.
async fn reference(list: &[&str]) -> String {
    let told = json(list).await;
    let operations = told["operations"].as_array().or(told.as_array());
    let first = operations.and_then(|all| all.first());
    let first = first.and_then(|first| first["reference"].as_str());
    first.unwrap_or_else(|| panic!("nothing is unknown: {told}")).to_owned()
}

/// Sends an operation whose outcome stays unknown.
async fn send_unknown_operation(site: &TestSite, gateway: &Gateway, path: &str, n: usize) {
    site.origin.script(path, [OriginAction::Reset]);
    let ask = TestRequest::post(path).field("idempotency-key", &format!("op-{n}"));
    assert_eq!(gateway.send(&ask).await.status, 502);
}

async fn json(arguments: &[&str]) -> Value {
    let said = run_operator(&[arguments, &["--format", "json"]].concat()).await;
    serde_json::from_str(&said).expect("JSON")
}

/// Repeats the command until it succeeds. Some commands wait for the end of an operation or of a gateway's
/// registration.
async fn run_until_success(typed: &[String], told: &RunbookCommand) {
    let arguments: Vec<&str> = typed.iter().map(String::as_str).collect();
    let done = async {
        loop {
            let said = command(&arguments).await.expect("started");
            if said.status.success() {
                return;
            }
            eprintln!("`{}`, typed as {arguments:?}: {said:?}", told.text);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    wait_until(&format!("`{}` to work", told.text), done, || arguments.clone()).await;
}

/// Every command of the runbook works as it is written.
#[tokio::test]
async fn every_runbook_command_works() {
    let mut commands: Vec<RunbookCommand> = documented_commands("deploy/RUNBOOK.md")
        .iter()
        .filter_map(|text| RunbookCommand::parse(text))
        .collect();
    assert!(commands.len() > 12, "not all were found: {}", commands.len());
    commands.sort_by_key(RunbookCommand::stage);
    let mut night = RunbookFixture::start().await;
    for (index, told) in commands.iter().enumerate() {
        if told.stage() >= RunbookStage::Ends {
            night.release_key().await;
        } else if told.words.iter().any(|word| word == "KEY" || word == "NODE") {
            night.hold_key(index).await;
        }
        let typed = night.filled_in_words(told).await;
        run_until_success(&typed, told).await;
    }
    assert!(night.gateway.exit().await.success(), "the runbook has told how to end it");
}

/// The section with this anchor.
fn section<'t>(runbook: &'t str, anchor: &str) -> Option<&'t str> {
    let sections = runbook.split("\n## ").flat_map(|section| section.split("\n### "));
    let is_meant = |section: &&str| {
        let title = section.lines().next().unwrap_or_default().to_lowercase();
        title
            .replace(' ', "-")
            .chars()
            .filter(|char| char.is_alphanumeric() || *char == '-')
            .eq(anchor.chars())
    };
    sections.into_iter().find(is_meant)
}

/// A reason is explained in the section that the runbook links for it.
///
/// An operator who follows the link for a refusal then finds the explanation there.
#[test]
fn reason_is_explained_where_runbook_links() {
    let path = fencegate_tests::prometheus::deploy().join("RUNBOOK.md");
    let runbook = std::fs::read_to_string(path).expect("shipped");
    let lists = ["find-your-case", "contention"].map(|anchor| section(&runbook, anchor).expect("a section"));
    let mut sent = 0;
    for line in lists.iter().flat_map(|list| list.lines()) {
        let Some((before, links)) = line.split_once("[") else { continue };
        let anchors: Vec<&str> =
            links.split("(#").skip(1).filter_map(|link| link.split(')').next()).collect();
        let reasons =
            before.split('`').skip(1).step_by(2).filter(|word| RefusalReason::parse(word).is_some());
        for reason in reasons {
            let explained = anchors
                .iter()
                .filter_map(|anchor| section(&runbook, anchor))
                .any(|section| section.contains(&format!("`{reason}`")));
            assert!(explained, "`{reason}` is in none of {anchors:?}: {line}");
            sent += 1;
        }
    }
    assert!(sent > 15, "only {sent} reasons are looked up");
}
