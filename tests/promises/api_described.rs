//! The admin listeners and the lease API answer every request as the OpenAPI documents describe. schemathesis, which has
//! nothing but these documents, generates the requests and checks the answers.
//!
//! `drain` is left out, because it ends the process. No status of 500 and more is correct here, because every dependency
//! is available; only `ready` of a guard answers 503 for as long as its new store is in quarantine.
//!
//! The documents are `gateway/openapi/*.json`. They describe the admin listeners of a gateway and of a guard, the
//! announcement of a guard, and the lease API. Each answer is checked for its status, its type and its form. Without
//! a token no route answers.

use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command};

use fencegate_guard::identity::ANNOUNCEMENT;
use fencegate_testkit::scratch;
use fencegate_tests::{
    client::TestRequest,
    effort::effort,
    gateway::GatewayLaunch,
    guard::GuardFixture,
    leases::{CLIENT, ClientLease, LeaseTokens},
    site::TestSite,
};
use serde_json::json;
use tokio::{sync::OnceCell, task::spawn_blocking};

use super::clients::python_with_package;

const TOKEN: &str = "0123456789abcdef-admin";

/// Operations with rules that a document cannot express. Breaking a lock or a lease needs its name twice. A message
/// to a client is one line. A page of leases begins after a known lease. `fleet` needs a dry run.
const KNOWN: [&str; 5] = ["breakLock", "breakLease", "revokeLease", "leases", "reload"];

/// The schemathesis configuration that lets these operations refuse requests which the document allows.
fn known_deviations() -> String {
    let table = |operation: &str| {
        format!(
            "[[operations]]\ninclude-operation-id = \"{operation}\"\nchecks.positive_data_acceptance.enabled = false\n"
        )
    };
    KNOWN.map(table).concat()
}

fn document(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../gateway/openapi");
    folder.join(name).display().to_string()
}

/// Sends requests for everything that a document describes, except what `arguments` leave out.
async fn assert_answers_as_described(name: &str, address: SocketAddr, arguments: &[&str]) {
    assert_answers_with(name, address, &known_deviations(), arguments).await;
}

/// Sends requests for everything that a document describes, except what `arguments` leave out. `known` is the
/// schemathesis configuration for rules that a document cannot express.
async fn assert_answers_with(name: &str, address: SocketAddr, known: &str, arguments: &[&str]) {
    static MADE: OnceCell<String> = OnceCell::const_new();
    let python = MADE.get_or_init(|| python_with_package("schemathesis", "schemathesis==4.32.5")).await;
    let folder = scratch::temp_dir();
    fs::write(folder.path().join("schemathesis.toml"), known).expect("our own folder");
    let mut command = Command::new("timeout");
    command.arg("100").arg(python).args(["-m", "schemathesis.cli", "run", &document(name)]);
    command.args([
        "--url",
        &format!("http://{address}"),
        "--max-examples",
        &effort(8, 20).to_string(),
        "--seed",
        "1",
        "--phases",
        "examples,coverage,fuzzing",
    ]);
    command.args(["--continue-on-failure", "--no-color", "--output-truncate", "false", "--warnings", "off"]);
    // This health check fails when few generated examples fit, which is no fault of the answers.
    command.args(["--suppress-health-check", "filter_too_much"]);
    command.args(arguments).current_dir(folder.path());
    let output =
        spawn_blocking(move || command.output()).await.expect("no panic").expect("`timeout` is there");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name}: {stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{stdout}");
}

/// The admin listener of a gateway answers requests of schemathesis as `gateway-admin.json` describes.
#[tokio::test]
async fn gateway_admin_conforms_to_openapi() {
    let site = TestSite::fresh().await;
    let secret = scratch::temp_dir();
    let tokens = LeaseTokens::default();
    let token = secret.path().join("token");
    fs::write(&token, TOKEN).expect("our own folder");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("our own file");
    let policy = site.policy("gw-1").with_cached_hold().with("/admin/auth", json!({"bearer_file": token}));
    let gateway = GatewayLaunch::new(&tokens.grant(policy)).start().await;
    gateway.wait_ready().await;
    ClientLease::acquire(&gateway, json!({"keys": ["job/night"], "ttl_ms": 30_000})).await;
    // Two requests, so that the locks and their history are not empty.
    for key in ["7", "8"] {
        assert_eq!(gateway.send(&TestRequest::post(&format!("/pay/{key}"))).await.status, 200);
    }
    let bearer = format!("Authorization: Bearer {TOKEN}");
    assert_answers_as_described(
        "gateway-admin.json",
        gateway.admin,
        &["-H", &bearer, "--exclude-path", "/api/v1/drain"],
    )
    .await;
}

/// The admin listener of a guard answers requests of schemathesis as `guard-admin.json` describes.
#[tokio::test]
async fn guard_admin_conforms_to_openapi() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with_admin_token().start().await;
    let bearer = "Authorization: Bearer a-token-that-nobody-guesses";
    let left_out = ["--exclude-path", "/api/v1/drain", "--exclude-path", ANNOUNCEMENT];
    assert_answers_as_described("guard-admin.json", guard.admin, &[&["-H", bearer][..], &left_out].concat())
        .await;
    // With another method, the path is a request for the service. The guard refuses such a request because it has no
    // token.
    let announced = ["--include-path", ANNOUNCEMENT, "--exclude-checks", "unsupported_method"];
    assert_answers_as_described("guard-admin.json", guard.public, &announced).await;
}

/// The schemathesis configuration for rules of the lease API that a document cannot express: times have bounds that the
/// policy sets, a lease is named in the path and again in a field and may have ended by then, and a missing field is
/// answered with 428.
fn known_lease_deviations(lease: &ClientLease) -> String {
    let reference = &lease.reference;
    let id = &lease.id;
    let mut known = String::new();
    for (operation, watch) in [("showLease", ", watch = 0"), ("renewLease", ""), ("releaseLease", "")] {
        // The release names a lease that does not exist, so that the other operations still find theirs.
        let named = if operation == "releaseLease" { "0000000000000000" } else { reference };
        known += &format!(
            "[[operations]]\ninclude-operation-id = \"{operation}\"\n\
             parameters = {{ reference = \"{named}\", \"Fencing-Lease\" = \"{id}\"{watch} }}\n\
             checks.positive_data_acceptance.enabled = false\n\
             checks.negative_data_rejection.enabled = false\n\
             checks.missing_required_header.expected-statuses = [403, 428]\n"
        );
    }
    for operation in ["acquireLease", "revokeLease"] {
        known += &format!(
            "[[operations]]\ninclude-operation-id = \"{operation}\"\nchecks.positive_data_acceptance.enabled = false\n"
        );
    }
    known
}

/// The lease API answers requests of schemathesis as `leases.json` describes.
#[tokio::test]
async fn lease_api_conforms_to_openapi() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = tokens.policy(&site, "gw-1").with("/leases/max_wait", "500ms");
    let policy =
        policy.with("/leases/principals/0/operator", true).with("/leases/principals/0/keys", json!(["*"]));
    let gateway = GatewayLaunch::new(&policy).start().await;
    gateway.wait_ready().await;
    let lease = ClientLease::acquire(&gateway, json!({"keys": ["election/night"], "ttl_ms": 30_000})).await;
    let bearer = format!("Authorization: Bearer {CLIENT}");
    assert_answers_with("leases.json", gateway.public, &known_lease_deviations(&lease), &["-H", &bearer])
        .await;
    // At least one generated request has been granted besides `lease`: the example of the document.
    let metrics = gateway.metrics().await;
    let ended = ["released", "expired", "broken"]
        .map(|why| metrics.sum("fencegate_leases_ended_total", &[&format!("why=\"{why}\"")]));
    let held = metrics.sum("fencegate_leases", &["state=\"held\""]);
    assert!(held + ended.iter().sum::<f64>() > 1.0, "{held} {ended:?}");
}
