//! The commands for operators list locks, break a lock, follow locks in a terminal, report readiness and members, and
//! drain a process; their exit codes report the result.
//!
//! The commands are `locks`, `lock show`, `lock break`, `top` in a terminal of its own, and `drain`.

use std::{fs, os::unix::fs::PermissionsExt};

use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, GatewayLaunch, command},
    guard::GuardFixture,
    held_request::HeldRequest,
    site::TestSite,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::tls::TlsFiles;

/// The exit code, stdout and stderr of a command.
type CommandOutput = (Option<i32>, String, String);

async fn run_verb(arguments: &[&str]) -> CommandOutput {
    let output = command(arguments).await.expect("started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// `locks`, `top`, `lock show` and `lock break` list, show and break locks; `break` needs `--yes` and the current
/// holder.
#[tokio::test]
async fn commands_list_show_and_break_locks() {
    let site = TestSite::fresh().await.with_comparison();
    let gateway = Gateway::start(&site.policy("gw-1").with_cached_hold()).await;
    let admin = gateway.admin.to_string();
    let HeldRequest { request: holder, latch, record } =
        site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let token = record.expect_token();
    for verb in [&["locks"][..], &["top", "--once"]] {
        let (code, stdout, stderr) = run_verb(&[verb, &["--admin", &admin]].concat()).await;
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{verb:?}");
        for wanted in ["gw-1: 1 key held", "account/7", "pay", "exclusive", &token.to_string()] {
            assert!(stdout.contains(wanted), "{verb:?}: no `{wanted}` in\n{stdout}");
        }
    }
    let (code, stdout, _) = run_verb(&["locks", "--admin", &admin, "--format", "json"]).await;
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &document["locks"][0]["key"]), (Some(0), &json!("account/7")));

    let (code, stdout, _) = run_verb(&["lock", "show", "account/7", "--admin", &admin]).await;
    assert!(code == Some(0) && stdout.contains("gw-1 holds it") && stdout.contains("holds\n"), "{stdout}");
    let (code, _, stderr) = run_verb(&["lock", "show", "account/8", "--admin", &admin]).await;
    assert!(code == Some(1) && stderr.contains("nobody holds or wants"), "{stderr}");

    let (code, _, stderr) = run_verb(&["lock", "break", "account/7", "--admin", &admin]).await;
    assert!(code == Some(2) && stderr.contains("FG0603") && stderr.contains("--yes"), "{stderr}");
    let wrong_node = ["lock", "break", "account/7", "--yes", "--holder", "nobody", "--admin", &admin];
    assert_eq!(run_verb(&wrong_node).await.0, Some(1));
    let (code, stdout, stderr) = run_verb(&["lock", "break", "account/7", "--yes", "--admin", &admin]).await;
    assert!(code == Some(0) && stdout.contains("broken") && stdout.contains("gw-1"), "{stdout}{stderr}");
    latch.release();
    holder.result().await.ok();
}

/// Commands take the admin address and the token file from flags or from the policy file, and never print the token.
#[tokio::test]
async fn commands_take_address_and_token() {
    let site = TestSite::fresh().await;
    let folder = TempDir::new_in(fencegate_testkit::scratch::folder()).expect("a folder");
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef\n").expect("our own folder");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("our own file");
    let token = token.display().to_string();
    let gateway =
        Gateway::start(&site.policy("gw-1").with("/admin/auth", json!({"bearer_file": token}))).await;
    let admin = format!("http://{}/", gateway.admin);
    let (code, stdout, stderr) = run_verb(&["locks", "--admin", &admin, "--token-file", &token]).await;
    assert!(code == Some(0) && stdout.starts_with("gw-1: 0 keys held"), "{stdout}{stderr}");
    let (code, _, stderr) = run_verb(&["locks", "--admin", &admin]).await;
    assert!(code == Some(1) && stderr.contains("FG0602") && stderr.contains("--token-file"), "{stderr}");
    let (code, _, stderr) = run_verb(&["top", "--once", "--admin", "127.0.0.1:1"]).await;
    assert!(code == Some(1) && stderr.contains("FG0601"), "{stderr}");
    // The policy file has port 0, so nothing listens there. The token is read from the file that the policy names.
    let file = gateway.file().display().to_string();
    let (code, _, stderr) = run_verb(&["locks", "-c", &file]).await;
    assert!(code == Some(1) && stderr.contains("FG0601"), "{stderr}");
    assert!(!stderr.contains("0123456789abcdef"), "{stderr}");
}

/// With an `https` address commands verify the certificate of the gateway, here against `--ca-file`.
#[tokio::test]
async fn commands_verify_gateway_over_tls() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    let authority = keys.path("ca.pem");
    keys.authority.write(&authority);
    let tls = json!({"certificates": [keys.write("a", "localhost")]});
    let gateway = GatewayLaunch::new(&site.policy("gw-1").with("/admin/tls", tls)).start().await;
    let url = format!("https://localhost:{}", gateway.admin.port());
    let ca = authority.display().to_string();
    let (code, stdout, stderr) = run_verb(&["locks", "--admin", &url, "--ca-file", &ca]).await;
    assert!(code == Some(0) && stdout.starts_with("gw-1"), "{stdout}{stderr}");
    let (code, _, stderr) = run_verb(&["locks", "--admin", &url]).await;
    assert!(code == Some(1) && stderr.contains("FG0601"), "{stderr}");
}

/// `fencegate drain --wait` ends with success after the gateway has ended.
#[tokio::test]
async fn drain_command_waits_for_exit() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let admin = gateway.admin.to_string();
    let (code, stdout, stderr) = run_verb(&["drain", "--wait", "--admin", &admin]).await;
    assert!(code == Some(0) && stdout.starts_with("draining"), "{stdout}{stderr}");
    assert!(gateway.exit().await.success());
}

/// `fencegate ready` exits with 0 when the process is ready, with 1 when it is not, and with 69 without an answer.
#[tokio::test]
async fn ready_command_reports_by_exit_code() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let unmade = site.policy("gw-2").with("/zookeeper/root", fencegate_tests::zookeeper::fresh_root());
    let unmade = GatewayLaunch::new(&unmade).without_init().start().await;
    unmade.wait_line("why", |line| line.message() == "no ZooKeeper session").await;
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    let frozen = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let frozen = frozen.local_addr().expect("bound").to_string();
    let ready = gateway.admin.to_string();
    let not = unmade.admin.to_string();
    let guards = guard.admin.to_string();
    let service = site.origin.open_listener("gw-1").to_string();
    for (verb, admin, code, says) in [
        (&["ready"][..], &ready, 0, "ready\n"),
        (&["guard", "ready"], &guards, 0, "ready"),
        (&["ready"], &not, 1, "not ready: FG0506: "),
        (&["ready"], &service, 69, "FG0601"),
        (&["ready"], &"127.0.0.1:1".to_owned(), 69, "FG0601"),
        (&["ready", "--within", "300ms"], &frozen, 69, "no answer within 300ms"),
    ] {
        let (exit, stdout, stderr) = run_verb(&[verb, &["--admin", admin]].concat()).await;
        assert_eq!(exit, Some(code), "{verb:?} {admin}: {stdout}{stderr}");
        assert!([&stdout, &stderr].iter().any(|text| text.contains(says)), "{verb:?}: {stdout}{stderr}");
        assert_eq!(stdout.is_empty(), code == 69, "{stdout}");
    }
    let (code, stdout, _) = run_verb(&["ready", "--admin", &not, "--format", "json"]).await;
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &document["ready"]), (Some(1), &json!(false)), "{document}");
    assert!(document["says"].as_str().is_some_and(|says| says.contains("FG0506")), "{document}");
}

/// Waits until the line of a gateway in the output of `members` contains `wanted`, and returns the line.
async fn wait_member_line(gateway: &Gateway, name: &str, wanted: &str) -> String {
    let admin = gateway.admin.to_string();
    let mut line = String::new();
    let reached = async {
        while !line.contains(wanted) {
            let (code, stdout, stderr) = run_verb(&["members", "--admin", &admin]).await;
            assert_eq!(code, Some(0), "{stderr}");
            let found = stdout.lines().find(|line| line.starts_with(&format!("{name} ")));
            line = found.unwrap_or_else(|| panic!("no {name}: {stdout}")).to_owned();
        }
    };
    wait_until(&format!("{name} to be {wanted}"), reached, || gateway.log()).await;
    line
}

/// `fencegate members` lists all gateways of the installation, and whether each one is ready, drains or is silent.
#[tokio::test]
async fn members_command_lists_gateways_with_readiness() {
    let site = TestSite::fresh().await;
    let peer = json!({"address": "127.0.0.1:0", "advertise": "gw-1.internal:9910"});
    let one = Gateway::start(&site.policy("gw-1")).await;
    let reached = Gateway::start(&site.policy("gw-2").with("/peer", peer)).await;
    // The session timeout is long enough that a silent gateway is still registered.
    let pauses = Gateway::start(&site.policy("gw-3").with("/zookeeper/session_timeout", "4s")).await;
    for name in ["gw-1", "gw-2", "gw-3"] {
        let line = wait_member_line(&one, name, " yes ").await;
        assert!(line.contains(env!("CARGO_PKG_VERSION")) && line.contains(" ago)"), "{line}");
        assert_eq!(line.contains("gw-1.internal:"), name == "gw-2", "{line}");
    }
    let (_, stdout, _) = run_verb(&["members", "--admin", &one.admin.to_string(), "--format", "json"]).await;
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    let members = document["members"].as_array().expect("a list");
    assert!(
        members.iter().all(|one| one["ready"] == true && one["since"].as_u64() > Some(1)),
        "{document:#}"
    );

    let held = site.origin.hold_request(&reached, TestRequest::post("/pay/7")).await;
    reached.signal(Signal::TERM);
    wait_member_line(&one, "gw-2", "no: drains").await;
    held.finish().await;
    pauses.signal(Signal::STOP);
    wait_member_line(&one, "gw-3", "no: silent for").await;
    pauses.signal(Signal::CONT);
}

/// A command for a frozen gateway fails after its `--timeout`, and its message says whether the gateway is still
/// registered in ZooKeeper.
#[tokio::test]
async fn frozen_gateway_is_told_by_its_heartbeat() {
    let site = TestSite::fresh().await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let admin = free.local_addr().expect("bound").to_string();
    drop(free);
    let policy = site.policy("gw-1").with("/admin/address", admin).with("/zookeeper/session_timeout", "4s");
    let gateway = Gateway::start(&policy).await;
    let file = gateway.file().display().to_string();
    gateway.signal(Signal::STOP);
    let begun = std::time::Instant::now();
    for (verb, told) in [
        (&["locks"][..], "`gw-1`"),
        (&["lock", "show", "account/7"], "is not registered"),
        (&["ready"], "is not registered"),
    ] {
        let (code, stdout, stderr) = run_verb(&[verb, &["-c", &file, "--timeout", "4s"]].concat()).await;
        assert!(code.is_some_and(|code| code != 0) && stdout.is_empty(), "{verb:?}: {code:?} {stdout}");
        assert!(stderr.contains(told) && stderr.contains("no answer within 4s"), "{verb:?}: {stderr}");
    }
    gateway.signal(Signal::CONT);
    assert!(begun.elapsed().as_secs() < 40, "{:?}", begun.elapsed());
    gateway.wait_ready().await;
}

/// `top` runs in a terminal of its own, and restores the terminal whether it is ended by `q` or by an interrupt.
#[tokio::test]
async fn top_restores_terminal() {
    const SCRIPT: &str = r#"
import fcntl, os, pty, select, struct, sys, termios, time
binary, admin, how = sys.argv[1:]
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    os.execv(binary, [binary, "top", "--every", "1", "--admin", admin])
seen = b""
def read(until, seconds):
    global seen
    deadline = time.monotonic() + seconds
    while until not in seen and time.monotonic() < deadline:
        if select.select([fd], [], [], 0.1)[0]:
            try: seen += os.read(fd, 65536)
            except OSError: break
read(b"0 keys held", 15)
assert b"0 keys held" in seen, seen
os.write(fd, b"q" if how == "q" else b"\x03")
read(b"\x1b[?1049l", 15)
assert b"\x1b[?1049l" in seen, "the other screen is left behind"
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
print("clean")
"#;
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let binary = fencegate_testkit::scratch::binaries().join("fencegate").display().to_string();
    for how in ["q", "interrupt"] {
        let admin = gateway.admin.to_string();
        let output = super::clients::run("python3", &["-c", SCRIPT, &binary, &admin, how]).await;
        assert_eq!(super::clients::text(&output).trim(), "clean", "{how}");
    }
}
