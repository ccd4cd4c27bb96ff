//! Third-party HTTP clients: each sends a fenced POST, and receives the outcome and the token.
//!
//! Clients that are not installed are fetched once, from PyPI and npm, into the build folder.
//!
//! The clients are curl, nghttp, h2load, Python's httpx and Node's undici.

use std::{
    collections::HashMap,
    path::PathBuf,
    process::{Command, Output},
    sync::{Arc, LazyLock, Mutex},
};

use fencegate_tests::{gateway::Gateway, site::TestSite};
use serde_json::json;
use tokio::{
    sync::{OnceCell, OwnedMutexGuard},
    task::spawn_blocking,
};

use super::tls::TlsFiles;

/// Runs a command to its end, a minute at most.
pub(super) async fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args(arguments);
    let output =
        spawn_blocking(move || command.output()).await.expect("no panic").expect("`timeout` is there");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {:?}\n{stdout}\n{stderr}", output.status);
    output
}

pub(super) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).to_lowercase()
}

/// A folder that outlives the test, so that fetched packages are there the next time.
pub(super) fn persistent_folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// Waits until no other test fetches a package into the folder of this name. The tests of one process run side by side,
/// and on a new machine several of them find that the same package is missing.
async fn lock_folder(name: &str) -> OwnedMutexGuard<()> {
    static FOLDERS: LazyLock<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>> =
        LazyLock::new(Mutex::default);
    let folder = FOLDERS.lock().expect("no test panics here").entry(name.to_owned()).or_default().clone();
    folder.lock_owned().await
}

/// A Python with `package` from PyPI.
pub(super) async fn python_with_package(name: &str, package: &str) -> String {
    let folder = persistent_folder(name);
    let _locked = lock_folder(name).await;
    let python = folder.join("bin/python").display().to_string();
    let at = folder.display().to_string();
    // Written last, so that an incomplete folder is made again.
    let made = folder.join(package.replace('/', "_"));
    if !made.exists() {
        run("python3", &["-m", "venv", &at]).await;
        run(&python, &["-m", "pip", "install", "-q", package]).await;
        std::fs::write(made, "").expect("our own folder");
    }
    python
}

/// The environment variable with which Node finds `package` from npm.
pub(super) async fn node_with_package(name: &str, package: &str) -> String {
    let folder = persistent_folder(name);
    let _locked = lock_folder(name).await;
    if !folder.join("node_modules").join(name).join("package.json").exists() {
        let at = folder.display().to_string();
        let quiet = ["--silent", "--no-audit", "--no-fund", "--prefix"];
        run("npm", &[&["install"][..], &quiet, &[&at, package]].concat()).await;
    }
    format!("NODE_PATH={}", folder.join("node_modules").display())
}

/// A gateway without TLS, and another one with TLS.
async fn start_with_and_without_tls(site: &TestSite, keys: &TlsFiles) -> (Gateway, Gateway) {
    let certificates = json!([keys.write("a", "localhost")]);
    let secured = site.policy("gw-2").with("/listeners/public/tls", json!({"certificates": certificates}));
    let plain = site.policy("gw-1");
    Gateway::start_both(&plain, &secured).await
}

/// Asserts that the output of a client contains outcome and token.
fn assert_done(case: &str, output: &str) {
    for wanted in ["fencing-outcome", "done", "fencing-token", "v1-"] {
        assert!(output.contains(wanted), "{case}: no `{wanted}` in\n{output}");
    }
}

/// Runs a program with a URL and a CA file, once in plain text and once over TLS.
async fn assert_answered_plain_and_tls(program: &str, arguments: &[&str], first: &str) {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    let (plain, secured) = start_with_and_without_tls(&site, &keys).await;
    keys.authority.write(&keys.path("ca.pem"));
    let authority = keys.path("ca.pem").display().to_string();
    for (scheme, gateway) in [("http", &plain), ("https", &secured)] {
        let url = format!("{scheme}://localhost:{}/pay/7", gateway.public.port());
        let output = text(&run(program, &[arguments, &[&url, &authority]].concat()).await);
        assert_done(scheme, &output);
        assert!(output.starts_with(first), "{scheme}: {output}");
    }
}

/// curl gets outcome and token over HTTP/1.1 and HTTP/2, each in plain text and over TLS.
#[tokio::test]
async fn curl_over_both_protocols_and_tls() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    let (plain, secured) = start_with_and_without_tls(&site, &keys).await;
    keys.authority.write(&keys.path("ca.pem"));
    let authority = keys.path("ca.pem").display().to_string();
    let url =
        |scheme: &str, gateway: &Gateway| format!("{scheme}://localhost:{}/pay/7", gateway.public.port());
    let http = url("http", &plain);
    let https = url("https", &secured);
    let post = ["-sS", "-i", "-4", "-d", "hi"];
    for (case, more) in [
        ("HTTP/1.1", ["--http1.1", &http].as_slice()),
        ("HTTP/2", &["--http2-prior-knowledge", &http]),
        ("TLS, HTTP/1.1", &["--cacert", &authority, "--http1.1", &https]),
        ("TLS, HTTP/2", &["--cacert", &authority, "--http2", &https]),
    ] {
        let output = text(&run("curl", &[&post[..], more].concat()).await);
        assert_done(case, &output);
        let version = if case.ends_with("HTTP/2") { "http/2 200" } else { "http/1.1 200" };
        assert!(output.starts_with(version), "{case}: {output}");
    }
    assert_eq!(site.origin.count("/pay/7"), 4);
}

#[tokio::test]
async fn nghttp_and_h2load() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    let gateway = Gateway::start(&site.policy("gw-1").with_cached_hold()).await;
    let body = keys.path("body");
    std::fs::write(&body, "hi").expect("our own folder");
    let body = body.display().to_string();
    let url = format!("http://127.0.0.1:{}/pay/7", gateway.public.port());
    assert_done("nghttp", &text(&run("nghttp", &["-v", "-d", &body, &url]).await));
    let output = text(&run("h2load", &["-n", "200", "-c", "2", "-m", "20", "-d", &body, &url]).await);
    assert!(output.contains("200 2xx, 0 3xx, 0 4xx, 0 5xx"), "{output}");
    assert_eq!(site.origin.count("/pay/7"), 201);
}

const HTTPX: &str = r#"
import httpx, ssl, sys
url, authority = sys.argv[1:]
with httpx.Client(http1=False, http2=True, verify=ssl.create_default_context(cafile=authority)) as client:
    answer = client.post(url, content=b"hi")
    print(answer.http_version, answer.status_code, dict(answer.headers))
"#;

/// A Python with httpx, made once.
pub(super) async fn python_with_httpx() -> &'static str {
    static MADE: OnceCell<String> = OnceCell::const_new();
    MADE.get_or_init(|| python_with_package("httpx", "httpx[http2,cli]==0.28.1")).await
}

#[tokio::test]
async fn httpx_over_http2() {
    assert_answered_plain_and_tls(python_with_httpx().await, &["-c", HTTPX], "http/2 200").await;
}

const UNDICI: &str = r#"
const [url, authority] = process.argv.slice(1);
const { Client } = require("undici");
const { origin, pathname } = new URL(url);
const connect = { ca: require("fs").readFileSync(authority) };
const client = new Client(origin, { allowH2: origin.startsWith("https"), connect });
client.request({ path: pathname, method: "POST", body: "hi" }).then(async (answer) => {
    await answer.body.text();
    console.log(answer.statusCode, JSON.stringify(answer.headers));
    await client.close();
});
"#;

#[tokio::test]
async fn undici_over_both_protocols() {
    static MADE: OnceCell<String> = OnceCell::const_new();
    let modules = MADE.get_or_init(|| node_with_package("undici", "undici@6.29.1")).await;
    assert_answered_plain_and_tls("env", &[modules, "node", "-e", UNDICI], "200 ").await;
}
