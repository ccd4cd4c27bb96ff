//! Every command that the program prints for an operator to type runs exactly as it is printed.
//!
//! The environment may name the file and the process.

use std::process::Output;

use fencegate_testkit::scratch;
use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, command, command_with_env, write_policy},
    guard::{GuardFixture, StampedRequest},
    guarded::GuardedSite,
    held_request::HeldRequest,
    origin::OriginAction,
    site::TestSite,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::spawn_blocking;

/// Runs a line in a shell whose path contains the program.
async fn run_in_shell(line: &str) -> Output {
    let folder = scratch::binaries().display().to_string();
    let line = line.to_owned();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = std::process::Command::new("timeout");
    shell.args(["60", "sh", "-c", &line]).env("PATH", path).current_dir(scratch::folder());
    spawn_blocking(move || shell.output()).await.expect("no panic").expect("a shell")
}

async fn run_successfully(line: &str) -> String {
    let output = run_in_shell(line).await;
    assert!(output.status.success(), "`{line}`: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The commands in a message: whole lines, and texts in backticks.
fn commands_in(said: &str) -> Vec<String> {
    let lines = said.lines().map(str::trim).filter(|line| line.starts_with("fencegate "));
    let quoted = said.split('`').skip(1).step_by(2).filter(|part| part.starts_with("fencegate "));
    lines.chain(quoted).map(str::to_owned).collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[tokio::test]
async fn guard_commands_run_as_printed() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    let admin = guard.admin.to_string();
    for (number, outcome) in [(1, "--as done"), (2, "--as not-done")] {
        let key = format!("account/{number}");
        let path = format!("/pay/{number}");
        beside.origin.script(&path, [OriginAction::Reset]);
        guard.send(&StampedRequest::new(&key, 0x20).once(number).post(&path)).await;
        let said = run_successfully(&format!("fencegate guard show --admin {admin}")).await;
        let commands = commands_in(&said);
        assert_eq!(commands.len(), 2, "{said}");
        let one = commands.iter().find(|line| line.contains(outcome)).expect("both are told");
        // The request was sent just now, so the service may still begin it.
        let forced = one.replace("--as not-done", "--as not-done --force");
        assert!(run_successfully(&forced).await.contains("taken as"), "{one}");
    }
    let missing = run_in_shell(&format!("fencegate guard resolve abab --as done --admin {admin}")).await;
    for line in commands_in(&text(&missing)) {
        run_successfully(&line).await;
    }
    assert_eq!(commands_in(&text(&missing)).len(), 1, "{missing:?}");
}

#[tokio::test]
async fn gateway_commands_run_as_printed() {
    let site = TestSite::fresh().await.with_comparison();
    let policy = site.policy("gw-1").with_cached_hold().with("/log", json!({"keys": "hash"}));
    let gateway = Gateway::start(&policy).await;
    let admin = gateway.admin.to_string();
    let held =
        ["/pay/7", "/pay/8"].map(|path| (site.origin.hold(path), gateway.begin(TestRequest::post(path))));
    for path in ["/pay/7", "/pay/8"] {
        site.origin.wait_for_request(path, 1).await;
    }
    // A hash sign begins the name of a hidden key. A shell would read it as a comment.
    let first = run_successfully(&format!("fencegate locks --limit 1 --admin {admin}")).await;
    let [more] = &commands_in(first.rsplit("There are more: ").next().expect("it says so"))[..] else {
        panic!("{first}")
    };
    let rest = run_successfully(more).await;
    let key = rest.lines().last().and_then(|line| line.split_whitespace().next()).expect("a row").to_owned();
    assert!(key.starts_with('#'), "{rest}");
    let refused = run_in_shell(&format!("fencegate lock break '{key}' --admin {admin}")).await;
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let commands = commands_in(&text(&refused));
    let [show, break_it] = &commands[..] else { panic!("{refused:?}") };
    assert!(run_successfully(show).await.contains("gw-1 holds it"));
    assert!(run_successfully(break_it).await.contains("broken"));
    for (latch, request) in held {
        latch.release();
        request.result().await.ok();
    }
}

/// The message names the options of the command line, and not the fields of the HTTP interface.
#[tokio::test]
async fn force_hint_uses_command_line_words() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/upstreams/ledger/fencing", "none");
    let gateway = Gateway::start(&policy).await;
    let HeldRequest { request: holder, latch, .. } =
        site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let line = format!("fencegate lock break account/7 --yes --admin {}", gateway.admin);
    let refused = run_in_shell(&line).await;
    let said = text(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("add `--force`") && !said.contains("409"), "{said}");
    run_successfully(&format!("{line} --force")).await;
    latch.release();
    holder.result().await.ok();
}

/// The commands that are printed about an installation and its operations run as they are.
#[tokio::test]
async fn installation_commands_run_as_printed() {
    let site = TestSite::fresh().await;
    let home = TempDir::with_prefix_in("a folder ", scratch::folder()).expect("a folder");
    let policy = site.policy("gw-1").with("/routes/0/fence/once", json!({"store": "zookeeper"}));
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    for asked in ["check --online", "era show", "once list"] {
        let said = text(&run_in_shell(&format!("fencegate {asked} -c '{file}'")).await);
        let [init] = &commands_in(&said)[..] else { panic!("{asked}: {said}") };
        run_successfully(init).await;
        let root = site.tree().await;
        root.delete("/meta").await.expect("it was made");
    }
    run_successfully(&format!("fencegate era init -c '{file}'")).await;

    // The message names the guard's file as the reference does, so the command runs in the folder of that file.
    let shown = run_successfully(&format!("fencegate era show -c '{file}'")).await;
    let [guard] = &commands_in(&shown)[..] else { panic!("{shown}") };
    let store = home.path().join("guard.redb");
    let listener = site.origin.open_listener("guard");
    let of_guard = fencegate_tests::policy::TestPolicy::for_guard(listener, &store);
    std::fs::write(home.path().join("guard.yaml"), of_guard.to_string()).expect("our own folder");
    let started = run_in_shell(&format!("cd '{}' && timeout 3 {guard}", home.path().display())).await;
    assert!(text(&started).contains("guard.opened") && store.exists(), "{started:?}");

    let gateway = Gateway::start(&policy).await;
    for (name, outcome) in [("op-1", "--as done"), ("op-2", "--as not-done")] {
        site.origin.script("/pay/7", [OriginAction::Reset]);
        gateway.send(&TestRequest::post("/pay/7").field("idempotency-key", name).body("{}")).await;
        let said = run_successfully(&format!("fencegate once list -c '{file}'")).await;
        let line = commands_in(&said).into_iter().find(|line| line.contains(outcome));
        let line = line.unwrap_or_else(|| panic!("{said}"));
        run_successfully(&line.replace("--as not-done", "--as not-done --force")).await;
    }
}

/// `FENCEGATE_CONFIG` and `FENCEGATE_ADMIN` name file and process where no argument does.
#[tokio::test]
async fn environment_names_file_and_process() {
    let guarded = GuardedSite::fresh().await;
    let gateway = Gateway::start(&guarded.site.policy("gw-1")).await;
    let file = gateway.file().display().to_string();
    let admin = gateway.admin.to_string();
    let by_address = command_with_env(&[("FENCEGATE_ADMIN", &admin)], &["locks"]).await.expect("started");
    assert!(by_address.status.success() && text(&by_address).starts_with("gw-1:"), "{by_address:?}");
    let by_file = command_with_env(&[("FENCEGATE_CONFIG", &file)], &["era", "show"]).await.expect("started");
    assert!(by_file.status.success(), "{by_file:?}");
    assert_eq!(commands_in(&text(&by_file)).len(), 1, "{by_file:?}");
    let checked = command_with_env(&[("FENCEGATE_CONFIG", &file)], &["check"]).await.expect("started");
    assert_eq!(text(&checked), format!("{file}: good\n"));
    // The file says port 0, where no process listens, so the command has used the address.
    let both = [("FENCEGATE_ADMIN", &*admin), ("FENCEGATE_CONFIG", &*file)];
    let both = command_with_env(&both, &["lock", "show", "account/7"]).await.expect("started");
    assert!(text(&both).contains("nobody holds or wants"), "{both:?}");
    let named = command_with_env(&[("FENCEGATE_ADMIN", "127.0.0.1:1")], &["locks", "--admin", &admin]).await;
    assert!(named.expect("started").status.success());
    // No file is named, and no package has installed one.
    let nothing = command(&["era", "show"]).await.expect("started");
    let said = text(&nothing);
    assert_eq!(nothing.status.code(), Some(2), "{said}");
    assert!(said.contains("FENCEGATE_CONFIG") && said.contains("/etc/fencegate/policy.yaml"), "{said}");
}
