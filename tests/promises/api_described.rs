//! The admin listeners answer as the OpenAPI documents say, whatever they are asked: schemathesis, which knows nothing of us
//! but these documents, makes requests of them and judges the answers.
//!
//! `drain` is left out: it ends the process that is asked. No answer of 500 and more is a right one here, because everything
//! that could be away is there; only a guard's `ready` says 503 for as long as its new store rests.

use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command};

use fencegate_guard::announce::ANNOUNCEMENT;
use fencegate_tests::{client::Ask, gateway::Launch, guard::Beside, scratch, site::Site};
use serde_json::json;
use tokio::{sync::OnceCell, task::spawn_blocking};

use super::clients::venv;

const TOKEN: &str = "0123456789abcdef-admin";

/// What a document cannot say: a key is said twice to break its lock, and `fleet` is told of a dry run only.
const KNOWN: &str = r#"
[[operations]]
include-operation-id = "breakLock"
checks.positive_data_acceptance.enabled = false

[[operations]]
include-operation-id = "reload"
checks.positive_data_acceptance.enabled = false
"#;

fn document(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../gateway/openapi");
    folder.join(name).display().to_string()
}

/// Asks for everything that a document describes, but for what `arguments` leave out.
async fn answers_as(name: &str, address: SocketAddr, arguments: &[&str]) {
    static MADE: OnceCell<String> = OnceCell::const_new();
    let python = MADE.get_or_init(|| venv("schemathesis", "schemathesis==4.32.5")).await;
    let folder = scratch::place();
    fs::write(folder.path().join("schemathesis.toml"), KNOWN).expect("our own folder");
    let mut command = Command::new("timeout");
    command.arg("100").arg(python).args(["-m", "schemathesis.cli", "run", &document(name)]);
    command.args([
        "--url",
        &format!("http://{address}"),
        "--max-examples",
        "20",
        "--seed",
        "1",
        "--phases",
        "coverage,fuzzing",
    ]);
    command.args(["--continue-on-failure", "--no-color", "--output-truncate", "false", "--warnings", "off"]);
    command.args(arguments).current_dir(folder.path());
    let output =
        spawn_blocking(move || command.output()).await.expect("no panic").expect("`timeout` is there");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name}: {said}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{said}");
}

#[tokio::test]
async fn a_gateways_admin_listener_answers_as_described() {
    let (site, secret) = (Site::fresh().await, scratch::place());
    let token = secret.path().join("token");
    fs::write(&token, TOKEN).expect("our own folder");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("our own file");
    let policy = site.policy("gw-1").cached().with("/admin/auth", json!({"bearer_file": token}));
    let gateway = Launch::new(&policy).start().await;
    gateway.becomes_ready().await;
    // So that there is something to be told.
    for key in ["7", "8"] {
        assert_eq!(gateway.send(&Ask::post(&format!("/pay/{key}"))).await.status, 200);
    }
    let bearer = format!("Authorization: Bearer {TOKEN}");
    answers_as("gateway-admin.json", gateway.admin, &["-H", &bearer, "--exclude-path", "/api/v1/drain"])
        .await;
}

#[tokio::test]
async fn a_guards_admin_listener_answers_as_described() {
    let beside = Beside::fresh().await;
    let guard = beside.launch().await.asking_for_a_token().start().await;
    let bearer = "Authorization: Bearer a-token-that-nobody-guesses";
    let left_out = ["--exclude-path", "/api/v1/drain", "--exclude-path", ANNOUNCEMENT];
    answers_as("guard-admin.json", guard.admin, &[&["-H", bearer][..], &left_out].concat()).await;
    // By another method it is a request for the service, and refused as one that has no token.
    let announced = ["--include-path", ANNOUNCEMENT, "--exclude-checks", "unsupported_method"];
    answers_as("guard-admin.json", guard.public, &announced).await;
}
