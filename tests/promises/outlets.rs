//! No process panics because its output cannot be written, on a stdout or stderr that is full or has no reader any
//! more.
//!
//! A gateway whose log loses its reader goes on.

use std::{
    fs::OpenOptions,
    io,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use fencegate_testkit::{scratch, wait::wait_until};
use fencegate_tests::{
    client::TestRequest, ensemble::free_ports, gateway::write_policy, guarded::GuardedSite, site::TestSite,
};
use tokio::task::spawn_blocking;

/// `EX_IOERR` of sysexits.h.
const UNWRITTEN: i32 = 74;

/// The destination of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputTarget {
    Read,
    /// `| true`
    Gone,
    /// `> /dev/full`
    Full,
}

impl OutputTarget {
    fn open(self) -> Stdio {
        match self {
            Self::Read => Stdio::piped(),
            Self::Gone => {
                let (reader, writer) = io::pipe().expect("a pipe");
                drop(reader);
                writer.into()
            }
            Self::Full => OpenOptions::new().write(true).open("/dev/full").expect("a device of Linux").into(),
        }
    }
}

async fn run(arguments: &[String], stdout: OutputTarget, stderr: OutputTarget) -> Output {
    let mut command = Command::new("timeout");
    command.arg("60").arg(scratch::binaries().join("fencegate")).args(arguments);
    spawn_blocking(move || {
        let child = command.stdin(Stdio::null()).stdout(stdout.open()).stderr(stderr.open()).spawn();
        child.and_then(Child::wait_with_output)
    })
    .await
    .expect("no panic")
    .expect("started")
}

/// Commands that end by themselves and can be repeated, with their arguments.
fn finite_verbs(policy: &str, gateway: &str, guard: &str, key: &str) -> Vec<Vec<String>> {
    let asked = ["--admin", gateway];
    let guarded = ["--admin", guard];
    let lines: Vec<Vec<&str>> = vec![
        vec!["--help"],
        vec!["--version"],
        vec!["version"],
        vec!["help"],
        vec!["check", policy],
        vec!["check", policy, "--online"],
        vec!["check", policy, "--format", "json"],
        vec!["explain", "FG0203"],
        vec!["explain", "-c", policy, "POST", "/pay/7"],
        vec!["init"],
        vec!["init", "minimal"],
        vec!["init", "minimal", "-o", "json"],
        vec!["schema"],
        vec!["completions", "bash"],
        vec!["man"],
        vec!["verify", "--list"],
        vec!["era", "init", "-c", policy],
        vec!["era", "show", "-c", policy],
        vec!["era", "bump", "-c", policy],
        vec!["acl", "show", "-c", policy],
        vec!["acl", "set", "-c", policy],
        vec!["once", "list", "-c", policy],
        vec!["once", "resolve", "abab", "--as", "done", "-c", policy],
        vec!["keys", "new", "/dev/null"],
        vec!["keys", "public", key],
        [&["ready"][..], &asked].concat(),
        [&["guard", "ready"][..], &guarded].concat(),
        [&["members"][..], &asked].concat(),
        [&["locks"][..], &asked].concat(),
        [&["lock", "show", "account/7"][..], &asked].concat(),
        [&["lock", "break", "account/7"][..], &asked].concat(),
        [&["lock", "break", "account/7", "--yes"][..], &asked].concat(),
        [&["lease", "list"][..], &asked].concat(),
        [&["lease", "show", "0123456789abcdef"][..], &asked].concat(),
        [&["lease", "revoke", "0123456789abcdef", "--why", "moved"][..], &asked].concat(),
        [&["lease", "break", "0123456789abcdef", "--why", "moved"][..], &asked].concat(),
        vec!["elect", "outlets", "-c", policy, "--", "true"],
        [&["top", "--once"][..], &asked].concat(),
        [&["top", "-o", "json"][..], &asked].concat(),
        [&["reload", "--dry-run"][..], &asked].concat(),
        [&["guard", "show"][..], &guarded].concat(),
        [&["guard", "resolve", "abab", "--as", "done"][..], &guarded].concat(),
        [&["guard", "forget", "abab"][..], &guarded].concat(),
    ];
    lines.into_iter().map(|line| line.into_iter().map(str::to_owned).collect()).collect()
}

/// The commands that `--help` lists.
async fn known_verbs() -> Vec<String> {
    let help = run(&["--help".to_owned()], OutputTarget::Read, OutputTarget::Read).await;
    let help = String::from_utf8(help.stdout).expect("text");
    // The help has several lists, in which each line is indented.
    let lists = help.split("\nOptions:\n").next().expect("lists");
    let lines = lists.lines().filter_map(|line| line.strip_prefix("  "));
    let verbs: Vec<String> =
        lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(verbs.len() > 20, "{help}");
    verbs
}

/// No verb panics where stdout or stderr is closed or full.
#[tokio::test]
async fn verbs_never_panic_on_unwritable_output() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let gateway = guarded.gateway("gw-1", &guard).await;
    let home = scratch::temp_dir();
    let key = home.path().join("key.json").display().to_string();
    run(&["keys".into(), "new".into(), key.clone()], OutputTarget::Read, OutputTarget::Read).await;
    let policy = gateway.file().display().to_string();
    let admin = gateway.admin.to_string();
    let verbs = finite_verbs(&policy, &admin, &guard.admin.to_string(), &key);
    // `run` and `demo` end only by a signal, and `drain` works only once.
    let others = ["run", "demo", "drain"];
    for verb in known_verbs().await {
        let tried = verbs.iter().any(|line| line[0] == verb) || others.contains(&&*verb);
        assert!(tried, "`{verb}` is not tried");
    }
    for line in &verbs {
        let plain = run(line, OutputTarget::Read, OutputTarget::Read).await;
        assert!(matches!(plain.status.code(), Some(0..=2)), "{line:?}: {plain:?}");
        for (stdout, stderr) in [
            (OutputTarget::Gone, OutputTarget::Read),
            (OutputTarget::Full, OutputTarget::Read),
            (OutputTarget::Gone, OutputTarget::Gone),
            (OutputTarget::Full, OutputTarget::Full),
        ] {
            let output = run(line, stdout, stderr).await;
            let code = output.status.code();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let context = format!("{line:?} {stdout:?} {stderr:?}: {code:?}\n{said}");
            assert!(!said.contains("panicked"), "{context}");
            // A verb that prints its own help does not report the failed write.
            let help = line[0].starts_with("--") || line[0] == "help";
            match stdout {
                OutputTarget::Full if !help && !plain.stdout.is_empty() && plain.status.success() => {
                    assert_eq!(code, Some(UNWRITTEN), "{context}");
                    assert!(stderr != OutputTarget::Read || said.contains("write to stdout"), "{context}");
                }
                _ => assert_eq!(code, plain.status.code(), "{context}"),
            }
        }
    }
}

/// A drain completes although its result cannot be printed.
#[tokio::test]
async fn drain_completes_with_unwritable_stdout() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let asked = ["drain", "--wait", "--admin", &gateway.admin.to_string()].map(str::to_owned);
    let output = run(&asked, OutputTarget::Full, OutputTarget::Read).await;
    assert_eq!(output.status.code(), Some(UNWRITTEN), "{output:?}");
    assert!(gateway.exit().await.success());
}

/// A process that is killed at the end of the test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A gateway continues when its log cannot be written or has no reader any more.
///
/// A log collector that is restarted breaks the pipe.
#[tokio::test]
async fn gateway_survives_closed_log_pipe() {
    let site = TestSite::fresh().await;
    for outlet in [OutputTarget::Gone, OutputTarget::Full] {
        let ports = free_ports(2);
        let [public, admin] =
            [ports[0], ports[1]].map(|port| std::net::SocketAddr::from(([127, 0, 0, 1], port)));
        let policy = site
            .policy("gw-1")
            .with("/listeners/public/address", public.to_string())
            .with("/admin/address", admin.to_string());
        let home = scratch::temp_dir();
        let file = write_policy(home.path(), &policy.to_string());
        let mut command = Command::new(scratch::binaries().join("fencegate"));
        command.args(["run", "--init", "--workers", "1", "-c"]).arg(file);
        let gateway =
            KillOnDrop(command.stdout(outlet.open()).stderr(outlet.open()).spawn().expect("started"));
        let ready = async {
            while !TestRequest::get("/ready").send_to(admin).await.is_ok_and(|answer| answer.status == 200) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        wait_until("/ready to answer 200", ready, || format!("nobody reads it ({outlet:?})")).await;
        for _ in 0..3 {
            // Each refusal is a line of the log.
            let refused = TestRequest::post("/nowhere").send_to(public).await.expect("an answer");
            assert_eq!(refused.status, 404, "{outlet:?}");
            let answer = TestRequest::post("/pay/7").send_to(public).await.expect("an answer");
            assert_eq!(answer.status, 200, "{outlet:?}");
        }
        drop(gateway);
    }
}
