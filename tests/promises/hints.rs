//! Every command that the program prints for an operator runs as it is printed: with the options of the command that
//! printed it, or where the file or the process was found by an environment variable.
//!
//! The printed commands are read from the sources, so one that is not run here is found.

mod sources;
mod terminal;

use std::{fs, net::SocketAddr};

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::TestRequest,
    gateway::Gateway,
    guard,
    guarded::GuardedSite,
    held_request::HeldRequest,
    leases::{ClientLease, LeaseTokens},
    origin::OriginAction,
    policy::TestPolicy,
    site::TestSite,
    zookeeper::fresh_root,
};
use serde_json::json;

use self::{
    sources::{HintCommand, printed_in_sources},
    terminal::{TargetArgument, TestTerminal},
};

/// Commands that the tests of other modules run as they are printed.
const ELSEWHERE: [(&str, &str); 2] = [
    ("guard migrate --from redb:{from} --to postgres", "guard_migrate::killed"),
    ("verify http://127.0.0.1:8000 ", "verify"),
];

/// Every command that the program prints runs as it is printed.
#[tokio::test]
async fn every_printed_command_runs() {
    let everywhere = async |argument| {
        let here = tokio::join!(
            installation_hints(argument),
            running_gateway_hints(argument),
            lease_hints(argument),
            operation_hints(argument),
            guard_hints(argument),
            store_hints(argument),
            rollback_hints(argument),
            open_acl_hints(argument),
            file_hints(argument),
        );
        [here.0, here.1, here.2, here.3, here.4, here.5, here.6, here.7, here.8].concat()
    };
    let mut typed = hints_without_installation().await;
    for argument in [TargetArgument::Option, TargetArgument::Variable] {
        typed.extend(everywhere(argument).await);
    }
    let printed = printed_in_sources();
    let others = |one: &&HintCommand| !ELSEWHERE.iter().any(|(begin, _)| one.template.starts_with(begin));
    let missing: Vec<_> =
        printed.iter().filter(others).filter(|one| !typed.iter().any(|line| one.matches(line))).collect();
    assert!(missing.is_empty(), "nobody has typed {missing:#?}; what was typed: {typed:#?}");
}

/// Runs the printed commands that need no installation.
async fn hints_without_installation() -> Vec<String> {
    let mut terminal = TestTerminal::new();
    terminal.write_file("openapi.yaml", "openapi: 3.1.0\npaths: {\"/orders/{id}\": {put: {}}}\n");
    terminal.define_placeholder("FILE", "openapi.yaml");
    let listed = terminal.run_line("fencegate init").await;
    terminal.run_printed_commands(&listed).await;
    for printed in printed_in_sources() {
        let HintCommand { template, .. } = &printed;
        if ["explain ", "verify --list", "keys "].iter().any(|begin| template.starts_with(begin)) {
            terminal.run_successfully(&format!("fencegate {template}")).await;
        }
    }
    for code in ["FG0203", "FG0404"] {
        let story = terminal.run_line(&format!("fencegate explain {code}")).await;
        let hint = story.lines().last().expect("a hint").to_owned();
        terminal.run_printed_commands(&hint).await;
    }
    terminal.typed
}

async fn installation_hints(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::fresh().await;
    let mut terminal = TestTerminal::for_policy(argument, &site.policy("operator"));
    let checked = terminal.run_verb("check --online").await;
    assert!(checked.contains("FG0506"), "{checked}");
    terminal.run_printed_commands(&checked).await;
    let found = terminal.run_verb("era init --at-least 5").await;
    terminal.run_printed_commands(&found).await;
    let misnamed = terminal.run_verb("era bump --installation nobody").await;
    terminal.run_printed_commands(&misnamed).await;

    let guard =
        TestPolicy::for_guard(site.origin.open_listener("guard"), &terminal.home().join("guard.redb"));
    terminal.write_file("guard.yaml", &guard.to_string());
    let shown = terminal.run_verb("era show").await;
    terminal.run_printed_commands(&shown).await;
    assert!(terminal.home().join("guard.redb").exists(), "the printed command makes the store: {shown}");
    terminal.typed
}

async fn lease_hints(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = tokens.policy(&site, "gw-1");
    let gateway = Gateway::start(&policy).await;
    let lease = ClientLease::acquire_exclusive(&gateway, "job/1").await;
    ClientLease::acquire_exclusive(&gateway, "job/2").await;
    let mut terminal = TestTerminal::for_policy(argument, &with_admin_address(&policy, gateway.admin));
    let first = terminal.run_verb("lease list --limit 1").await;
    terminal.run_printed_commands(&first).await;
    let unsure = terminal.run_verb(&format!("lease break {} --why moved", lease.reference)).await;
    assert!(unsure.contains("FG0603"), "{unsure}");
    terminal.run_printed_commands(&unsure).await;
    terminal.typed
}

/// The policy with the address on which the admin listener listens.
fn with_admin_address(policy: &TestPolicy, admin: SocketAddr) -> TestPolicy {
    policy.clone().with("/admin/address", admin.to_string())
}

async fn running_gateway_hints(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::fresh().await.with_comparison();
    let policy = site.policy("gw-1").with_cached_hold();
    let gateway = Gateway::start(&policy).await;
    let mut typed = Vec::new();
    let mut held = Vec::new();
    // Two of these keys are broken below. Two others remain, so that a list of one key per page has a second page.
    for path in ["/pay/5", "/pay/6", "/pay/7", "/pay/8"] {
        held.push(site.origin.hold_request(&gateway, TestRequest::post(path)).await);
    }
    let policy = with_admin_address(&policy, gateway.admin);
    for (key, mut terminal) in [
        ("account/7", TestTerminal::for_policy(argument, &policy)),
        ("account/8", TestTerminal::for_admin(argument, gateway.admin)),
    ] {
        let first = terminal.run_verb("locks --limit 1").await;
        terminal.run_printed_commands(&first).await;
        let unsaid = terminal.run_verb(&format!("lock break {key}")).await;
        assert!(unsaid.contains("FG0603"), "{unsaid}");
        terminal.run_printed_commands(&unsaid).await;
        typed.extend(terminal.typed);
    }
    for HeldRequest { request, latch, .. } in held {
        latch.release();
        request.result().await.ok();
    }
    let mut terminal = TestTerminal::for_policy(TargetArgument::Variable, &policy);
    let registered = terminal.run_verb("era bump").await;
    assert!(registered.contains("`fencegate drain`"), "{registered}");
    terminal.run_printed_commands(&registered).await;
    assert!(gateway.exit().await.success());
    typed.extend(terminal.typed);
    typed
}

/// Sends an operation whose outcome is unknown.
async fn send_unknown_operation(site: &TestSite, gateway: &Gateway, n: usize) {
    let path = format!("/pay/{n}");
    site.origin.script(&path, [OriginAction::Reset]);
    let request = TestRequest::post(&path).field("idempotency-key", &format!("op-{n}"));
    assert_eq!(gateway.send(&request).await.status, 502);
}

/// The text that refuses an operator's decision that comes too early.
const NOT_YET: &str = "may still be";

/// The commands that are printed for `count` operations, once all of them can be resolved. Each operation has two
/// commands, of which the operator picks one.
async fn wait_resolve_commands(terminal: &mut TestTerminal, list: &str, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    let all = async {
        while found.len() < 2 * count {
            found = terminal::commands_in(&terminal.run_verb(list).await);
        }
    };
    wait_until("the operations to be over", all, || "they are not").await;
    found
}

async fn operation_hints(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/routes/0/fence/once", json!({"store": "zookeeper"}));
    // After this time an operator may record an operation as not done.
    let policy = policy.with("/upstreams/ledger/response_timeout", "500ms");
    let gateway = Gateway::start(&policy).await;
    for n in [7, 8] {
        send_unknown_operation(&site, &gateway, n).await;
    }
    let mut terminal = TestTerminal::for_policy(argument, &with_admin_address(&policy, gateway.admin));
    let found = wait_resolve_commands(&mut terminal, "once list", 2).await;
    terminal.run_successfully(&found[0]).await;
    terminal.retry_refused(&found[3], NOT_YET).await;
    let unknown = terminal.run_verb("once resolve nothing --as done").await;
    terminal.run_printed_commands(&unknown).await;
    terminal.typed
}

async fn guard_hints(argument: TargetArgument) -> Vec<String> {
    let guarded = GuardedSite::fresh().await;
    let guard =
        guarded.launch().await.with("/upstream/response_timeout", "400ms").with("/send_within", "400ms");
    let guard = guard.with("/max_execution", "1s").start().await;
    let once = json!({"store": "guard", "key": "{header.idempotency-key}"});
    let policy = guarded.policy("gw-1", &[guard.public]).with("/routes/0/fence/once", once);
    let gateway = Gateway::start(&policy).await;
    for n in [7, 8, 9, 10] {
        send_unknown_operation(&guarded.site, &gateway, n).await;
    }
    let mut typed = Vec::new();
    let file = with_admin_address(guard.launch().file(), guard.admin);
    for (left, mut terminal) in
        [(4, TestTerminal::for_policy(argument, &file)), (2, TestTerminal::for_admin(argument, guard.admin))]
    {
        let found = wait_resolve_commands(&mut terminal, "guard show", left).await;
        terminal.run_successfully(&found[0]).await;
        terminal.retry_refused(&found[3], NOT_YET).await;
        let unknown = terminal.run_verb("guard resolve nothing --as done").await;
        terminal.run_printed_commands(&unknown).await;
        typed.extend(terminal.typed);
    }
    typed
}

/// Runs the commands for a missing store of a guard, and for a store that is a backup.
async fn store_hints(argument: TargetArgument) -> Vec<String> {
    let guarded = GuardedSite::fresh().await;
    let store = |terminal: &TestTerminal| terminal.home().join("guard.redb");
    let file =
        TestPolicy::for_guard(guarded.site.origin.open_listener("guard"), std::path::Path::new("guard.redb"));
    let mut terminal = TestTerminal::for_policy(argument, &file);
    let file = file.with("/store/redb", store(&terminal).display().to_string());
    terminal.rewrite_policy(&file);
    terminal.write_file("gateway.yaml", &guarded.site.policy("operator").to_string());
    terminal.define_placeholder("POLICY", "gateway.yaml");
    terminal.define_placeholder("E", &guarded.floor.to_string());
    terminal.define_placeholder("UUID", &guarded.ensemble);
    let missing = terminal.run_verb("guard").await;
    assert!(missing.contains("--init --floor E --ensemble UUID"), "{missing}");
    terminal.run_printed_commands(&missing).await;

    terminal.run_verb("guard backup night.backup --offline").await;
    fs::rename(terminal.home().join("night.backup"), store(&terminal)).expect("the backup was made");
    let no_store = terminal.run_verb("guard").await;
    assert!(no_store.contains("is a backup, and no store"), "{no_store}");
    terminal.run_printed_commands(&no_store).await;
    terminal.typed
}

async fn rollback_hints(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::fresh().await;
    let state = fencegate_testkit::scratch::temp_dir();
    let policy = site.policy("gw-1").with("/state_dir", state.path().display().to_string());
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    gateway.signal(fencegate_testkit::child::Signal::TERM);
    assert!(gateway.exit().await.success());
    let mut terminal =
        TestTerminal::for_policy(argument, &policy.clone().with("/zookeeper/root", fresh_root()));
    let gone = terminal.run_verb("check --online").await;
    terminal.run_printed_commands(&gone).await;
    let another = terminal.run_verb("check --online").await;
    assert!(another.contains("FG0503") && another.contains("--at-least"), "{another}");
    terminal.run_printed_commands(&another).await;

    let record = fs::read_dir(state.path()).expect("ours").map(|entry| entry.expect("ours").path());
    let record = record.filter(|file| file.extension().is_some_and(|kind| kind == "json"));
    for file in record {
        fs::write(file, "no record").expect("ours");
    }
    terminal.define_placeholder("E", &guard::FLOOR.to_string());
    let damaged = terminal.run_verb("run").await;
    assert!(damaged.contains("FG0519"), "{damaged}");
    terminal.run_printed_commands(&damaged).await;
    terminal.typed
}

async fn open_acl_hints(argument: TargetArgument) -> Vec<String> {
    let site = TestSite::secured().await;
    let servers = fencegate_tests::ensemble::over_tls::shared();
    let open = site.policy("gw-1").with("/zookeeper/tls", servers.tls_for_client("hints"));
    drop(Gateway::start(&open).await);
    let mut terminal = TestTerminal::for_policy(argument, &open.with("/zookeeper/acl", "closed"));
    let shown = terminal.run_verb("acl show").await;
    assert!(shown.contains("acl set"), "{shown}");
    terminal.run_printed_commands(&shown).await;
    terminal.typed
}

/// Runs the commands from two messages: a file belongs to the other kind of process, and a file must not be named.
async fn file_hints(argument: TargetArgument) -> Vec<String> {
    let guarded = GuardedSite::fresh().await;
    let launch = guarded.launch().await;
    let mut terminal = TestTerminal::for_policy(argument, launch.file());
    let a_guards = terminal.run_verb("run").await;
    assert!(a_guards.contains("FG0120"), "{a_guards}");
    terminal.run_printed_commands(&a_guards).await;
    let mut typed = terminal.typed;

    let policy = guarded.site.policy("gw-1").with("/allow_mixed", true);
    let mut terminal = TestTerminal::for_policy(argument, &policy);
    let a_gateways = terminal.run_verb("guard").await;
    assert!(a_gateways.contains("FG0120"), "{a_gateways}");
    terminal.run_printed_commands(&a_gateways).await;
    let gateway = Gateway::start(&policy).await;
    terminal.rewrite_policy(&with_admin_address(&policy, gateway.admin));
    let mixed = terminal.run_verb("check").await;
    assert!(mixed.contains("FG0254"), "{mixed}");
    terminal.run_printed_commands(&mixed).await;
    typed.extend(terminal.typed);
    typed
}
