//! Every command that the program prints for an operator runs as it is printed: with the options of the command that
//! printed it, or where the file or the process was found by an environment variable.
//!
//! The printed commands are read from the sources, so one that is not run here is found.

mod sources;
mod terminal;

use std::{fs, net::SocketAddr};

use fencegate_tests::{
    client::TestRequest,
    gateway::Gateway,
    guard,
    guarded::GuardedSite,
    held_request::HeldRequest,
    leases::{ClientLease, LeaseTokens},
    origin::Act,
    policy::TestPolicy,
    site::TestSite,
    wait::wait_until,
    zookeeper::fresh_root,
};
use serde_json::json;

use self::{
    sources::{PrintedCommand, printed_in_sources},
    terminal::{TargetArgument, TestTerminal},
};

/// Commands that tests of other promises run as they are printed.
const ELSEWHERE: [(&str, &str); 2] = [
    ("guard migrate --from redb:{from} --to postgres", "guard_migrate::killed"),
    ("verify http://127.0.0.1:8000 ", "verify"),
];

/// Every command that the program prints runs as it is printed.
#[tokio::test]
async fn every_printed_command_runs() {
    let everywhere = async |argument| {
        let here = tokio::join!(
            of_an_installation(argument),
            of_a_gateway_at_work(argument),
            of_leases(argument),
            of_operations(argument),
            of_a_guard(argument),
            of_a_store(argument),
            of_a_zookeeper_that_went_back(argument),
            of_nodes_that_are_open(argument),
            of_files(argument),
        );
        [here.0, here.1, here.2, here.3, here.4, here.5, here.6, here.7, here.8].concat()
    };
    let mut typed = that_need_nothing().await;
    for argument in [TargetArgument::Option, TargetArgument::Variable] {
        typed.extend(everywhere(argument).await);
    }
    let printed = printed_in_sources();
    let others = |one: &&PrintedCommand| !ELSEWHERE.iter().any(|(begin, _)| one.template.starts_with(begin));
    let missing: Vec<_> =
        printed.iter().filter(others).filter(|one| !typed.iter().any(|line| one.is(line))).collect();
    assert!(missing.is_empty(), "nobody has typed {missing:#?}; what was typed: {typed:#?}");
}

/// The commands that name nothing of an installation.
async fn that_need_nothing() -> Vec<String> {
    let mut terminal = TestTerminal::bare();
    let listed = terminal.types("fencegate init").await;
    terminal.follows(&listed).await;
    for printed in printed_in_sources() {
        let PrintedCommand { template, .. } = &printed;
        if ["explain ", "verify --list", "keys "].iter().any(|begin| template.starts_with(begin)) {
            terminal.types_well(&format!("fencegate {template}")).await;
        }
    }
    for code in ["FG0203", "FG0404"] {
        let story = terminal.types(&format!("fencegate explain {code}")).await;
        let hint = story.lines().last().expect("a hint").to_owned();
        terminal.follows(&hint).await;
    }
    terminal.typed
}

async fn of_an_installation(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::fresh().await;
    let mut terminal = TestTerminal::of(argument, &site.policy("operator"));
    let checked = terminal.asks("check --online").await;
    assert!(checked.contains("FG0506"), "{checked}");
    terminal.follows(&checked).await;
    let found = terminal.asks("era init --at-least 5").await;
    terminal.follows(&found).await;
    let misnamed = terminal.asks("era bump --installation nobody").await;
    terminal.follows(&misnamed).await;

    let guard = TestPolicy::for_guard(site.origin.door("guard"), &terminal.home().join("guard.redb"));
    terminal.has("guard.yaml", &guard.to_string());
    let shown = terminal.asks("era show").await;
    terminal.follows(&shown).await;
    assert!(terminal.home().join("guard.redb").exists(), "the printed command makes the store: {shown}");
    terminal.typed
}

async fn of_leases(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = tokens.policy(&site, "gw-1");
    let gateway = Gateway::start(&policy).await;
    let lease = ClientLease::acquire_exclusive(&gateway, "job/1").await;
    ClientLease::acquire_exclusive(&gateway, "job/2").await;
    let mut terminal = TestTerminal::of(argument, &at(&policy, gateway.admin));
    let first = terminal.asks("lease list --limit 1").await;
    terminal.follows(&first).await;
    let unsure = terminal.asks(&format!("lease break {} --why moved", lease.reference)).await;
    assert!(unsure.contains("FG0603"), "{unsure}");
    terminal.follows(&unsure).await;
    terminal.typed
}

/// The policy, with the address that its admin listener got.
fn at(policy: &TestPolicy, admin: SocketAddr) -> TestPolicy {
    policy.clone().with("/admin/address", admin.to_string())
}

async fn of_a_gateway_at_work(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::fresh().await.with_comparison();
    let policy = site.policy("gw-1").with_cached_hold();
    let gateway = Gateway::start(&policy).await;
    let mut typed = Vec::new();
    let mut held = Vec::new();
    // Two keys are broken below. Of the other keys, the first in the list is not the last.
    for path in ["/pay/5", "/pay/6", "/pay/7", "/pay/8"] {
        held.push(site.origin.hold_request(&gateway, TestRequest::post(path)).await);
    }
    let policy = at(&policy, gateway.admin);
    for (key, mut terminal) in [
        ("account/7", TestTerminal::of(argument, &policy)),
        ("account/8", TestTerminal::at(argument, gateway.admin)),
    ] {
        let first = terminal.asks("locks --limit 1").await;
        terminal.follows(&first).await;
        let unsaid = terminal.asks(&format!("lock break {key}")).await;
        assert!(unsaid.contains("FG0603"), "{unsaid}");
        terminal.follows(&unsaid).await;
        typed.extend(terminal.typed);
    }
    for HeldRequest { request, latch, .. } in held {
        latch.release();
        request.result().await.ok();
    }
    let mut terminal = TestTerminal::of(TargetArgument::Variable, &policy);
    let registered = terminal.asks("era bump").await;
    assert!(registered.contains("`fencegate drain`"), "{registered}");
    terminal.follows(&registered).await;
    assert!(gateway.exit().await.success());
    typed.extend(terminal.typed);
    typed
}

/// Sends an operation whose outcome is unknown.
async fn lost(site: &TestSite, gateway: &Gateway, n: usize) {
    let path = format!("/pay/{n}");
    site.origin.script(&path, [Act::Reset]);
    let request = TestRequest::post(&path).field("idempotency-key", &format!("op-{n}"));
    assert_eq!(gateway.send(&request).await.status, 502);
}

/// The text that refuses an operator's decision that comes too early.
const NOT_YET: &str = "may still be";

/// The commands that are printed for `count` operations, once all of them can be resolved. Each operation has two
/// commands, of which the operator picks one.
async fn resolvable(terminal: &mut TestTerminal, list: &str, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    let all = async {
        while found.len() < 2 * count {
            found = terminal::commands(&terminal.asks(list).await);
        }
    };
    wait_until("the operations to be over", all, || "they are not").await;
    found
}

async fn of_operations(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/routes/0/fence/once", json!({"store": "zookeeper"}));
    // What is not done is final after this time.
    let policy = policy.with("/upstreams/ledger/response_timeout", "500ms");
    let gateway = Gateway::start(&policy).await;
    for n in [7, 8] {
        lost(&site, &gateway, n).await;
    }
    let mut terminal = TestTerminal::of(argument, &at(&policy, gateway.admin));
    let found = resolvable(&mut terminal, "once list", 2).await;
    terminal.types_well(&found[0]).await;
    terminal.types_well_in_time(&found[3], NOT_YET).await;
    let unknown = terminal.asks("once resolve nothing --as done").await;
    terminal.follows(&unknown).await;
    terminal.typed
}

async fn of_a_guard(argument: TargetArgument) -> Vec<String> {
    let guarded = GuardedSite::fresh().await;
    let guard =
        guarded.launch().await.with("/upstream/response_timeout", "400ms").with("/send_within", "400ms");
    let guard = guard.with("/max_execution", "1s").start().await;
    let once = json!({"store": "guard", "key": "{header.idempotency-key}"});
    let policy = guarded.policy("gw-1", &[guard.public]).with("/routes/0/fence/once", once);
    let gateway = Gateway::start(&policy).await;
    for n in [7, 8, 9, 10] {
        lost(&guarded.site, &gateway, n).await;
    }
    let mut typed = Vec::new();
    let file = at(guard.launch().file(), guard.admin);
    for (left, mut terminal) in
        [(4, TestTerminal::of(argument, &file)), (2, TestTerminal::at(argument, guard.admin))]
    {
        let found = resolvable(&mut terminal, "guard show", left).await;
        terminal.types_well(&found[0]).await;
        terminal.types_well_in_time(&found[3], NOT_YET).await;
        let unknown = terminal.asks("guard resolve nothing --as done").await;
        terminal.follows(&unknown).await;
        typed.extend(terminal.typed);
    }
    typed
}

/// A guard's store that is not there, and one that is a backup.
async fn of_a_store(argument: TargetArgument) -> Vec<String> {
    let guarded = GuardedSite::fresh().await;
    let store = |terminal: &TestTerminal| terminal.home().join("guard.redb");
    let file = TestPolicy::for_guard(guarded.site.origin.door("guard"), std::path::Path::new("guard.redb"));
    let mut terminal = TestTerminal::of(argument, &file);
    let file = file.with("/store/redb", store(&terminal).display().to_string());
    terminal.rewrites(&file);
    terminal.has("gateway.yaml", &guarded.site.policy("operator").to_string());
    terminal.means("POLICY", "gateway.yaml");
    terminal.means("E", &guarded.floor.to_string());
    terminal.means("UUID", &guarded.ensemble);
    let missing = terminal.asks("guard").await;
    assert!(missing.contains("--init --floor E --ensemble UUID"), "{missing}");
    terminal.follows(&missing).await;

    terminal.asks("guard backup night.backup --offline").await;
    fs::rename(terminal.home().join("night.backup"), store(&terminal)).expect("the backup was made");
    let no_store = terminal.asks("guard").await;
    assert!(no_store.contains("is a backup, and no store"), "{no_store}");
    terminal.follows(&no_store).await;
    terminal.typed
}

async fn of_a_zookeeper_that_went_back(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::fresh().await;
    let state = fencegate_tests::scratch::temp_dir();
    let policy = site.policy("gw-1").with("/state_dir", state.path().display().to_string());
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    gateway.signal(fencegate::demo::child::Signal::TERM);
    assert!(gateway.exit().await.success());
    let mut terminal = TestTerminal::of(argument, &policy.clone().with("/zookeeper/root", fresh_root()));
    let gone = terminal.asks("check --online").await;
    terminal.follows(&gone).await;
    let another = terminal.asks("check --online").await;
    assert!(another.contains("FG0503") && another.contains("--at-least"), "{another}");
    terminal.follows(&another).await;

    let record = fs::read_dir(state.path()).expect("ours").map(|entry| entry.expect("ours").path());
    let record = record.filter(|file| file.extension().is_some_and(|kind| kind == "json"));
    for file in record {
        fs::write(file, "no record").expect("ours");
    }
    terminal.means("E", &guard::FLOOR.to_string());
    let damaged = terminal.asks("run").await;
    assert!(damaged.contains("FG0519"), "{damaged}");
    terminal.follows(&damaged).await;
    terminal.typed
}

async fn of_nodes_that_are_open(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::secured().await;
    let servers = fencegate_tests::ensemble::over_tls::shared();
    let open = site.policy("gw-1").with("/zookeeper/tls", servers.known_as("hints"));
    drop(Gateway::start(&open).await);
    let mut terminal = TestTerminal::of(argument, &open.with("/zookeeper/acl", "closed"));
    let shown = terminal.asks("acl show").await;
    assert!(shown.contains("acl set"), "{shown}");
    terminal.follows(&shown).await;
    terminal.typed
}

/// The commands from two messages about files: a file belongs to the other process, and a file should be left out.
async fn of_files(argument: TargetArgument) -> Vec<String> {
    let guarded = GuardedSite::fresh().await;
    let launch = guarded.launch().await;
    let mut terminal = TestTerminal::of(argument, launch.file());
    let a_guards = terminal.asks("run").await;
    assert!(a_guards.contains("FG0120"), "{a_guards}");
    terminal.follows(&a_guards).await;
    let mut typed = terminal.typed;

    let policy = guarded.site.policy("gw-1").with("/allow_mixed", true);
    let mut terminal = TestTerminal::of(argument, &policy);
    let a_gateways = terminal.asks("guard").await;
    assert!(a_gateways.contains("FG0120"), "{a_gateways}");
    terminal.follows(&a_gateways).await;
    let gateway = Gateway::start(&policy).await;
    terminal.rewrites(&at(&policy, gateway.admin));
    let mixed = terminal.asks("check").await;
    assert!(mixed.contains("FG0254"), "{mixed}");
    terminal.follows(&mixed).await;
    typed.extend(terminal.typed);
    typed
}
