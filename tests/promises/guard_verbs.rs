//! An operator who has only a terminal can list the unknown operations of a guard, and record their outcome.
//!
//! The commands are `guard show`, `resolve` and `forget`. Each unknown operation is reported with its request, its
//! time and the remedy. The exit code is 1 for an operation that the guard does not know.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use fencegate_testkit::{
    child::ChildProcess,
    scratch,
    wait::{PATIENCE, wait_until},
};
use fencegate_tests::{
    client::{ClientResponse, TestRequest},
    gateway::command,
    origin::{Origin, OriginAction},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

/// A guard whose store was made for the test.
struct RunningGuard {
    public: SocketAddr,
    admin: SocketAddr,
    file: PathBuf,
    child: ChildProcess,
    _home: TempDir,
}

/// The exit code, stdout and stderr of a command.
type CommandOutput = (Option<i32>, String, String);

impl RunningGuard {
    async fn start(origin: &Origin) -> Self {
        Self::start_with_keys(origin, "plain").await
    }

    async fn start_with_keys(origin: &Origin, keys: &str) -> Self {
        let home = scratch::temp_dir();
        let file = home.path().join("guard.yaml");
        let text = json!({
            "version": 1,
            "listener": {"address": "127.0.0.1:0"},
            "admin": {"address": "127.0.0.1:0"},
            "upstream": {
                "endpoint": format!("http://{}", origin.open_listener("guard")),
                "response_timeout": "300ms",
            },
            "store": {"redb": home.path().join("guard.redb")},
            "max_execution": "1s",
            "send_within": "500ms",
            "log": {"keys": keys},
        });
        std::fs::write(&file, text.to_string()).expect("the folder can be written");
        let arguments = format!("guard -c {} --log-format json", file.display())
            + " --init --floor 1 --ensemble 0123456789abcdef0123456789abcdef";
        let binary = scratch::binaries().join("fencegate");
        let child = ChildProcess::spawn(binary, arguments.split(' ')).expect("setpriv");
        let (child, public, admin) = spawn_blocking(move || {
            let admin = address(&child, r#""listener":"admin""#);
            (address(&child, r#""listener":"guard""#), admin, child)
        })
        .await
        .map(|(public, admin, child)| (child, public, admin))
        .expect("it listens");
        let guard = Self { public, admin, file, child, _home: home };
        let ready = async {
            while TestRequest::get("/ready").send_to(guard.admin).await.map_or(0, |answer| answer.status)
                != 200
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        wait_until("the end of the quarantine", ready, || guard.child.log()).await;
        guard
    }

    /// A dispatch of the operation `name`, as a gateway would stamp it.
    async fn dispatch(&self, epoch: u64, name: u8) -> ClientResponse {
        let operation =
            format!("{};fp={};keep=60;by=idempotency-key", format!("{name:02x}").repeat(32), "cd".repeat(32));
        let request = TestRequest::post("/pay/7")
            .field("Fencing-Token", &format!("v1-{epoch:016x}-00000000-00000001"))
            .field("Fencing-Key", "account/7")
            .field("Fencing-Mode", "exclusive")
            .field("Fencing-Operation", &operation)
            .field("Idempotency-Key", &format!("op-{name}"));
        request.send_to(self.public).await.expect("an answer")
    }

    async fn run_operator_verb(&self, arguments: &[&str]) -> CommandOutput {
        let admin = self.admin.to_string();
        let all = [&["guard"], arguments, &["--admin", &admin]].concat();
        run_verb(&all).await
    }

    async fn unknown(&self) -> Vec<Value> {
        let (code, stdout, log) = self.run_operator_verb(&["show", "--format", "json"]).await;
        assert_eq!(code, Some(0), "{log}");
        let shown: Value = serde_json::from_str(&stdout).expect("JSON");
        shown["operations"].as_array().expect("a list").clone()
    }
}

fn address(child: &ChildProcess, listener: &str) -> SocketAddr {
    let line = child.wait_line(|line| line.contains("listening") && line.contains(listener), PATIENCE);
    let line: Value = serde_json::from_str(&line.expect("it listens")).expect("JSON");
    line["fields"]["address"].as_str().expect("an address").parse().expect("an address")
}

async fn run_verb(arguments: &[&str]) -> CommandOutput {
    let output = command(arguments).await.expect("started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// An unknown operation is shown by `guard show`, recorded by `guard resolve`, and removed by `guard forget`.
#[tokio::test]
async fn operator_shows_resolves_and_forgets() {
    let origin = Origin::start();
    let guard = RunningGuard::start(&origin).await;
    let (code, text, log) = guard.run_operator_verb(&["show"]).await;
    assert_eq!(code, Some(0), "{log}");
    assert!(text.starts_with("Nothing is unknown"), "{text}");

    origin.script("/pay/7", [OriginAction::Reset]);
    let broken = guard.dispatch(0x10, 0xab).await;
    assert_eq!(broken.reason(), "outcome-unknown");
    let unknown = guard.unknown().await;
    let [open] = &unknown[..] else { panic!("one operation: {unknown:?}") };
    let reference = open["reference"].as_str().expect("a reference").to_owned();
    assert_eq!(reference, "ab".repeat(8));

    // Each output contains everything that an operator needs to decide.
    for about in [&["show"][..], &["show", &reference], &["show", "account/7"]] {
        let (code, text, log) = guard.run_operator_verb(about).await;
        assert_eq!(code, Some(0), "{log}");
        for word in [&reference, "POST /pay/7", "op-171", "account/7", "ago)", "--as not-done"] {
            assert!(text.contains(word), "`{word}` is missing in {about:?}:\n{text}");
        }
    }

    // The service has no trace of the operation now, and may still receive it.
    let (code, _, log) = guard.run_operator_verb(&["resolve", &reference, "--as", "not-done"]).await;
    assert!(code == Some(1) && log.contains("may still be begun") && log.contains("--force"), "{log}");
    assert_eq!(guard.unknown().await.len(), 1);
    // The operator records that the operation was not done, so it may run.
    let (code, text, log) =
        guard.run_operator_verb(&["resolve", &reference, "--as", "not-done", "--force"]).await;
    assert_eq!(code, Some(0), "{log}");
    assert!(text.contains("a repeat runs it") && text.contains("POST /pay/7"), "{text}");
    assert_eq!(guard.dispatch(0x11, 0xab).await.status, 200);
    assert_eq!(origin.count("/pay/7"), 2);
    // The outcome is known now, and stays known until the operation is forgotten.
    assert_eq!(guard.dispatch(0x12, 0xab).await.status, 200);
    assert_eq!(origin.count("/pay/7"), 2);
    let (code, _, log) = guard.run_operator_verb(&["forget", &reference]).await;
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(guard.dispatch(0x13, 0xab).await.status, 200);
    assert_eq!(origin.count("/pay/7"), 3);
}

/// The admin listener and `guard show` show a key as the log may show it.
#[tokio::test]
async fn keys_are_redacted_like_log() {
    for (keys, shown) in [("plain", "account/7"), ("hash", "#"), ("off", "(hidden)")] {
        let origin = Origin::start();
        let guard = RunningGuard::start_with_keys(&origin, keys).await;
        origin.script("/pay/7", [OriginAction::Reset]);
        assert_eq!(guard.dispatch(0x12, 0xab).await.reason(), "outcome-unknown");
        assert_eq!(guard.dispatch(0x11, 0xac).await.reason(), "stale");
        for path in ["/api/v1/operations", "/api/v1/keys/account%2F7", "/api/v1/refusals", "/"] {
            let answer = TestRequest::get(path).send_to(guard.admin).await.expect("an answer");
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(answer.status, 200, "{path}: {text}");
            assert!(text.contains(shown), "{keys} {path}: {text}");
            assert_eq!(
                text.contains("account/7") || text.contains("/pay/7"),
                keys == "plain",
                "{keys} {path}: {text}"
            );
        }
        let (code, text, log) = guard.run_operator_verb(&["show", "account/7"]).await;
        assert_eq!(code, Some(0), "{log}");
        assert_eq!(text.contains("op-171"), keys == "plain", "{keys}: {text}");
        assert!(text.contains(shown) && text.contains(&"ab".repeat(8)), "{keys}: {text}");
    }
}

/// An operation that an operator records as done is not executed again.
#[tokio::test]
async fn resolved_operation_is_not_repeated() {
    let origin = Origin::start();
    let guard = RunningGuard::start(&origin).await;
    origin.script("/pay/7", [OriginAction::Reset]);
    guard.dispatch(0x10, 0xab).await;
    let (code, stdout, log) =
        guard.run_operator_verb(&["resolve", &"ab".repeat(8), "--as", "done", "--format", "json"]).await;
    assert_eq!(code, Some(0), "{log}");
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((report["resolved"].as_str(), report["as"].as_str()), (Some(&*"ab".repeat(8)), Some("done")));
    assert_eq!(guard.unknown().await, [Value::Null; 0]);
    let repeated = guard.dispatch(0x11, 0xab).await;
    assert_eq!((repeated.status, origin.count("/pay/7")), (409, 1), "{repeated:?}");
}

/// A reference, a key or an address that is not known is reported, with how to find the known ones.
#[tokio::test]
async fn unknown_reference_is_reported() {
    let origin = Origin::start();
    let guard = RunningGuard::start(&origin).await;
    for wrong in [
        &["resolve", "abababababababab", "--as", "done"][..],
        &["resolve", "v1-0000000000000010-00000000-00000001", "--as", "done"],
        &["resolve", "../keys", "--as", "not-done"],
        &["forget", "abababababababab"],
        &["show", "account/8"],
    ] {
        let (code, stdout, log) = guard.run_operator_verb(wrong).await;
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{wrong:?}");
        assert!(log.starts_with("error: ") && log.contains("guard show"), "{wrong:?}: {log}");
    }
    // The address is open, and no guard listens there.
    let door = origin.open_listener("not a guard").to_string();
    let (code, _, log) = run_verb(&["guard", "show", "--admin", &door]).await;
    assert_eq!(code, Some(1));
    assert!(log.contains("not the admin address of a guard"), "{log}");
}

/// `guard show -c FILE` takes the admin address from the guard's own file.
#[tokio::test]
async fn admin_address_comes_from_file() {
    let origin = Origin::start();
    let guard = RunningGuard::start(&origin).await;
    // The file with the real admin address in place of port 0.
    let text = std::fs::read_to_string(&guard.file).expect("our own file");
    let admin = format!(r#""admin":{{"address":"{}"}}"#, guard.admin);
    let policy = guard.file.with_file_name("told.yaml");
    std::fs::write(&policy, text.replace(r#""admin":{"address":"127.0.0.1:0"}"#, &admin)).expect("written");
    let policy = policy.display().to_string();
    let (code, text, log) = run_verb(&["guard", "show", "-c", &policy]).await;
    assert_eq!(code, Some(0), "{log}");
    assert!(text.starts_with("Nothing is unknown"), "{text}");
    for usage in [&["guard"][..], &["guard", "resolve", "x", "--admin", "a:1"]] {
        assert_eq!(run_verb(usage).await.0, Some(2), "{usage:?}");
    }
}
