//! The content of a file of secrets appears nowhere else: in no log at any level, no response, page, metric or error.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use fencegate_config::bearer::ExpectedBearerToken;
use fencegate_testkit::scratch;
use fencegate_tests::{
    client::TestRequest,
    gateway::{GatewayLaunch, command},
    guarded::{GuardedSite, run_operator},
    process::TestProcess,
};
use fencegate_ticket::{TicketSigner, TicketVerifier};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::tls::TlsFiles;

/// Files of secrets, and the words that must not be seen.
struct PlantedSecrets {
    home: TempDir,
    words: Vec<String>,
}

impl PlantedSecrets {
    fn new() -> Self {
        Self { home: scratch::temp_dir(), words: Vec::new() }
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    /// A file that only its owner can read.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("our own folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("our own file");
        path
    }

    /// Makes a signing key by the command, and adds its private part to the words that must not be seen.
    async fn ticket_key(&mut self, name: &str) -> String {
        let path = self.path(name);
        run_operator(&["keys", "new", &path]).await;
        let key: Value = serde_json::from_slice(&fs::read(&path).expect("made")).expect("JSON");
        self.words.push(key["d"].as_str().expect("a private part").to_owned());
        path
    }

    /// Adds each line of a PEM file, except the first and the last, to the words that must not be seen.
    fn add_pem_lines(&mut self, pem: &Path) {
        let text = fs::read_to_string(pem).expect("made");
        let lines = text.lines().filter(|line| !line.starts_with("-----"));
        self.words.extend(lines.map(str::to_owned));
    }

    #[track_caller]
    fn assert_not_in(&self, place: &str, text: &str) {
        assert!(!text.is_empty(), "{place}: nothing to look at");
        for word in &self.words {
            assert!(word.len() >= 16, "too short to be told from chance: {word}");
            assert!(!text.contains(word.as_str()), "{place} tells `{word}`:\n{text}");
        }
    }
}

/// Asserts that no page, metric or log of a process contains a secret.
async fn assert_nothing_shown(process: &TestProcess, token: &str, pages: &[&str], secrets: &PlantedSecrets) {
    for page in pages {
        for ask in [
            TestRequest::get(page),
            TestRequest::get(page).field("authorization", &format!("Bearer {token}")),
        ] {
            let answer = ask.send_to(process.admin).await.expect("it answers");
            secrets.assert_not_in(page, &format!("{} {:?}", answer.status, answer.fields));
            secrets.assert_not_in(page, &format!("> {}", String::from_utf8_lossy(&answer.body)));
        }
    }
    secrets.assert_not_in("the log", &process.log());
}

const GATEWAYS: [&str; 8] = [
    "/",
    "/metrics",
    "/jwks.json",
    "/api/v1/config",
    "/api/v1/locks",
    "/api/v1/contention",
    "/api/v1/members",
    "/api/v1/operations",
];
const GUARDS: [&str; 4] = ["/metrics", "/api/v1/operations", "/api/v1/keys/account/7", "/api/v1/refusals"];

/// No secret appears in any log, page, metric or response.
#[tokio::test]
async fn secrets_appear_in_no_output() {
    const TOKEN: &str = "canary-admin-token-4f1c9a7e";
    const OF_A_CLIENT: &str = "canary-of-a-client-8d27b3";
    const OF_ZOOKEEPER: &str = "canary-of-zookeeper-5b0e2d94";
    let guarded = GuardedSite::fresh().await;
    let keys = TlsFiles::new();
    let mut secrets = PlantedSecrets::new();
    let signing = secrets.ticket_key("signing.json").await;
    let public = secrets.path("public.json");
    fs::write(&public, run_operator(&["keys", "public", &signing]).await).expect("our own folder");
    let bearer = secrets.write("bearer", TOKEN);
    let password = secrets.write("zookeeper", OF_ZOOKEEPER);
    secrets.words.extend([TOKEN, OF_A_CLIENT, OF_ZOOKEEPER].map(str::to_owned));
    let certificate = keys.write("a", "pay.example");
    secrets.add_pem_lines(Path::new(certificate["key_file"].as_str().expect("a path")));

    let launch =
        guarded.launch().await.with("/tickets", json!({"public_keys_file": public})).with_debug_log();
    let guard = launch.with("/admin/auth", json!({"bearer_file": bearer})).start().await;
    let policy = guarded
        .policy("gw-1", &[guard.public])
        .with("/tickets", json!({"signing_key_file": signing}))
        .with("/zookeeper/digest", json!({"user": "fencegate", "password_file": password}))
        .with("/admin/auth", json!({"bearer_file": bearer}));
    let gateway = GatewayLaunch::new(&policy).with_debug_log().start().await;
    let secured = policy
        .clone()
        .with("/name", "gw-2")
        .with("/listeners/public/tls", json!({"certificates": [certificate]}));
    let secured = GatewayLaunch::new(&secured).with_debug_log().start().await;
    gateway.wait_ready().await;

    for path in ["/pay/7", "/pay/7", "/none"] {
        let ask = TestRequest::post(path)
            .field("authorization", &format!("Bearer {OF_A_CLIENT}"))
            .field("cookie", &format!("session={OF_A_CLIENT}"));
        let answer = gateway.send(&ask).await;
        secrets
            .assert_not_in(path, &format!("{:?} {}", answer.fields, String::from_utf8_lossy(&answer.body)));
    }
    // These requests cause errors: plain text on a TLS port, and a forged token at the guard.
    drop(TestRequest::get("/x").send_to(secured.public).await);
    let forged =
        TestRequest::post("/pay/7").field("fencing-token", "v1-0").field("authorization", OF_A_CLIENT);
    assert_ne!(guard.send(&forged).await.status, 200);
    for gateway in [&gateway, &secured] {
        assert_nothing_shown(gateway, TOKEN, &GATEWAYS, &secrets).await;
    }
    assert_nothing_shown(&guard, TOKEN, &GUARDS, &secrets).await;
    let file = gateway.file().display().to_string();
    for arguments in [&["check", &file][..], &["explain", "-c", &file, "POST /pay/7"]] {
        let said = command(arguments).await.expect("started");
        let said = [said.stdout, said.stderr].concat();
        secrets.assert_not_in(arguments[0], &String::from_utf8_lossy(&said));
    }
}

/// The debug output of types with secrets contains none of them, because a later version might log it.
#[tokio::test]
async fn debug_output_hides_secrets() {
    let mut secrets = PlantedSecrets::new();
    let signing = secrets.ticket_key("signing.json").await;
    let shared = secrets.path("shared");
    run_operator(&["keys", "new", &shared, "--hs256"]).await;
    let bearer = secrets.write("bearer", "canary-admin-token-4f1c9a7e");
    for file in [&shared, &bearer] {
        secrets.words.push(fs::read_to_string(file).expect("made").trim().to_owned());
    }
    let [signing, shared, bearer] = [signing, shared, bearer].map(std::path::PathBuf::from);
    for shown in [
        format!("{:?}", TicketSigner::from_key_file(&signing).expect("a key")),
        format!("{:?}", TicketSigner::from_secret_file(&shared).expect("a secret")),
        format!("{:?}", TicketVerifier::from_secret_file(&shared).expect("a secret")),
        format!("{:?}", ExpectedBearerToken::open(&bearer).expect("a token")),
    ] {
        secrets.assert_not_in("Debug", &shown);
    }
}

/// The error about a secret file with the wrong content repeats no word of the content.
#[tokio::test]
async fn unusable_secret_file_is_not_quoted() {
    const LINES: [&str; 3] =
        ["canary of a wrong file 51d0c2aa", "and a second line of it", "Q2FuYXJ5T2ZBQmFkS2V5MDEyMzQ1"];
    let guarded = GuardedSite::fresh().await;
    let mut secrets = PlantedSecrets::new();
    let [first, second, key] = LINES;
    secrets.words.extend(LINES.map(str::to_owned));
    let bad = secrets.write("bad", &format!("{first}\n{second}\n"));
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
    let pem = secrets.write("pem", &pem);
    let address = "127.0.0.1:1".parse().expect("an address");
    let policy = guarded.policy("gw-1", &[address]);
    for (pointer, value) in [
        ("/tickets", json!({"signing_key_file": bad})),
        ("/tickets", json!({"signing_key_file": pem})),
        ("/tickets", json!({"secret_file": bad})),
        ("/admin/auth", json!({"bearer_file": bad})),
        ("/listeners/public/tls", json!({"certificates": [{"certificate_file": bad, "key_file": pem}]})),
    ] {
        let said =
            GatewayLaunch::new(&policy.clone().with(pointer, value.clone())).expect_start_failure().await;
        secrets.assert_not_in(&format!("{pointer} {value}"), &said);
    }
    let said = command(&["keys", "public", &bad]).await.expect("started");
    assert!(!said.status.success());
    secrets.assert_not_in("keys public", &String::from_utf8_lossy(&said.stderr));
}
