//! The environment of a command, its input and output, and the exit code of each way to end.

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

use fencegate_policies::token::FencingToken;
use fencegate_testkit::scratch;
use fencegate_tests::{
    charged::{LockedCommand, install},
    gateway::PolicyFile,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;
use tokio::task::spawn_blocking;

/// Runs `fencegate` to its end with these arguments, and writes `input` to its standard input.
async fn run(arguments: Vec<String>, input: &'static str, environment: &[(&str, &str)]) -> Output {
    let binary = scratch::binaries().join("fencegate");
    let mut command = Command::new("timeout");
    command.arg("20").arg(binary).args(arguments).envs(environment.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = spawn_blocking(move || {
        let mut running = command.spawn().expect("coreutils");
        let given = running.stdin.take().expect("piped").write_all(input.as_bytes());
        // A program that does not read its input may have ended already.
        given.ok();
        running.wait_with_output().expect("our own child")
    });
    run.await.expect("no panic")
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

async fn install_policy() -> (TestSite, TestPolicy, PolicyFile) {
    let site = TestSite::fresh().await;
    let policy = site.policy("jobs");
    install(&policy).await;
    let file = PolicyFile::new(&policy);
    (site, policy, file)
}

fn output_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The command has its key and token in its environment, and its stdin, stdout and stderr pass unchanged.
#[tokio::test]
async fn command_gets_token_key_and_stdio() {
    let (_site, _, file) = install_policy().await;
    let mut line = words(&format!("lock job/1 -c {file} -- sh -c"));
    line.push(
        "echo \"$FENCING_KEY $FENCING_NUMBER $FENCING_TOKEN [$FENCING_LEASE$FENCING_PERMIT] $KEPT\"; cat"
            .to_owned(),
    );
    let outer = [("FENCING_LEASE", "of another"), ("FENCING_PERMIT", "7"), ("KEPT", "yes")];
    let output = run(line, "what it reads", &outer).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output_text(&output.stderr), "", "stderr is the command's");
    let told = output_text(&output.stdout);
    let (first, read) = told.split_once('\n').expect("two lines");
    assert_eq!(read, "what it reads");
    let [key, number, token, none, kept] = first.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{first}")
    };
    assert_eq!((key, none, kept), ("job/1", "[]", "yes"));
    assert_eq!(FencingToken::parse(token).expect("a token").number().to_string(), number);
}

/// Every way to end has an exit code of its own, and stdout belongs to the command alone.
#[tokio::test]
async fn every_end_has_exit_code() {
    let (_site, policy, file) = install_policy().await;
    let holder = LockedCommand::spawn_shell(&policy, &["lock", "held"], "echo up; sleep 60");
    holder.wait_output("up").await;
    let lines = [
        ("lock job/2 -- true", 0, ""),
        ("lock job/2 -- sh -c exit\u{a0}7", 7, ""),
        ("lock job/2 -- sh -c kill\u{a0}-9\u{a0}$$", 137, ""),
        ("lock job/2 -- /no/such/command", 127, "FG0625"),
        ("lock job/2 -- /etc/passwd", 126, "FG0625"),
        ("lock held --wait 0s -- true", 124, "FG0621"),
        ("lock held --wait 300ms -- true", 124, "FG0621"),
        ("lock held --wait 0s --shared -- true", 124, "FG0621"),
        ("lock held --wait 0s --conflict-exit-code 0 -- true", 0, ""),
        ("lock held --wait 0s -E 77 -- true", 77, "FG0621"),
        ("lock job/2 -E 77 -- sh -c exit\u{a0}124", 124, ""),
        ("lock job/2 -E 77 --grace 5s -- true", 125, "FG0624"),
        ("lock job/2 --grace 5s -- true", 125, "FG0624"),
        ("lock job\u{a0}2 -- true", 125, "FG0626: no request has a key that is written so; write `job%202`"),
        ("lock job/a%2fb -- true", 125, "write `job/a%2Fb`"),
        ("lock job/%37 -- true", 125, "write `job/7`"),
        ("lock job/% -- true", 125, "write `job/%25`"),
        ("lock job/caf\u{e9} -- true", 125, "write `job/caf%C3%A9`"),
        ("lock job/x%40y -- true", 0, ""),
        ("lock account/x@y -- true", 125, "write `account/x%40y`"),
        ("lock account/x%40y -- true", 0, ""),
        ("lock account/7/report@9 -- true", 0, ""),
        ("lock account/7#2 -- true", 125, "FG0626: `#` stands before the number of a permit"),
        ("lock job/2 --wait soon -- true", 125, "forever"),
        ("lock --wait 1s show -- true", 0, ""),
        ("elect job\u{a0}2 -- true", 125, "FG0623"),
        ("elect job%2f2 -- true", 125, "write `election/job%2F2`"),
        ("elect job#2 -- true", 125, "FG0626"),
        ("elect billing -- sh -c exit\u{a0}9", 9, ""),
    ];
    for (line, code, complaint) in lines {
        let (verb, command) = line.split_once(" -- ").expect("a command");
        let arguments = words(&format!("{verb} -c {file} -- {command}"));
        let arguments = arguments.into_iter().map(|word| word.replace('\u{a0}', " ")).collect();
        let output = run(arguments, "", &[]).await;
        let told = output_text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {told}");
        assert!(told.contains(complaint) && told.is_empty() == complaint.is_empty(), "{line}: {told}");
        assert_eq!(output_text(&output.stdout), "", "{line}: stdout is the command's alone");
    }
}

/// A command under the shortest session deadline is not ended while heartbeats come in time.
///
/// With this tick the proof of the session lasts for two heartbeats, which is the least that a gateway accepts.
#[tokio::test]
async fn command_survives_under_shortest_session_deadline() {
    let site = TestSite::fresh().await;
    let policy = site.policy("jobs").with("/zookeeper/session_timeout", "4s").with("/zookeeper/tick", "2s");
    install(&policy).await;
    let keys = ["job/1", "job/2", "job/3", "job/4"];
    let commands = keys.map(|key| LockedCommand::spawn_shell(&policy, &["lock", key], "exec sleep 4"));
    for command in commands {
        assert_eq!(command.exit().await, 0, "{}", command.log());
    }
    let file = PolicyFile::new(&policy);
    for (line, refused) in [("--grace 400ms", "at most"), ("--ttl 3s", "no time to end a command")] {
        let output = run(words(&format!("lock job/1 {line} -c {file} -- true")), "", &[]).await;
        let told = output_text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{told}");
        assert!(told.contains("FG0624") && told.contains(refused), "{told}");
    }
}

/// Without an installation, ZooKeeper or a policy there is no lock, and the command is not run.
#[tokio::test]
async fn command_without_lock_never_runs() {
    let (site, policy, _) = install_policy().await;
    let marker = scratch::temp_dir();
    let touched = marker.path().join("ran").display().to_string();
    let unmade = policy.clone().with("/zookeeper/root", format!("{}/not-made", site.root));
    let away = policy.with("/zookeeper/servers", serde_json::json!(["127.0.0.1:9"]));
    for (policy, complaint) in [(unmade, "era init"), (away, "FG0623")] {
        let file = PolicyFile::new(&policy);
        let output = run(words(&format!("lock job --wait 1s -c {file} -- touch {touched}")), "", &[]).await;
        let told = output_text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{told}");
        assert!(told.contains(complaint), "{told}");
    }
    let output = run(words(&format!("lock job -c /no/such/policy -- touch {touched}")), "", &[]).await;
    assert_eq!(output.status.code(), Some(125));
    assert!(fs::metadata(&touched).is_err(), "it was run");
}

/// Commands with `--shared` run at the same time and keep an exclusive one out.
#[tokio::test]
async fn shared_commands_run_concurrently() {
    let (_site, policy, file) = install_policy().await;
    let reader = LockedCommand::spawn_shell(&policy, &["lock", "book", "--shared"], "echo up; sleep 60");
    reader.wait_output("up").await;
    let beside = run(words(&format!("lock book --shared --wait 5s -c {file} -- true")), "", &[]).await;
    let writer = run(words(&format!("lock book --wait 0s -c {file} -- true")), "", &[]).await;
    assert_eq!((beside.status.code(), writer.status.code()), (Some(0), Some(124)));
}

/// As many commands run at once as there are permits, and another number of permits is refused.
#[tokio::test]
async fn permits_limit_concurrent_commands() {
    let (_site, policy, file) = install_policy().await;
    let begin = || {
        LockedCommand::spawn_shell(
            &policy,
            &["lock", "pool", "--permits", "2"],
            "echo permit $FENCING_PERMIT; exec sleep 60",
        )
    };
    let one = begin();
    let other = begin();
    let mut permits = [one.wait_output("permit ").await, other.wait_output("permit ").await];
    permits.sort();
    assert_eq!(permits, ["permit 0", "permit 1"]);
    for (asked, code) in [("--permits 2 --wait 0s", 124), ("--permits 3 --wait 0s", 125), ("--wait 0s", 125)]
    {
        let third = run(words(&format!("lock pool {asked} -c {file} -- true")), "", &[]).await;
        assert_eq!(third.status.code(), Some(code), "{asked}: {third:?}");
    }
}

/// Permits are refused for a key that the policy locks elsewhere or for another number of holders.
#[tokio::test]
async fn permits_must_match_policy() {
    let (_site, policy, _) = install_policy().await;
    let curator = json!({"key": "account/{path.account}", "layout": "curator-mutex", "hold": {"mode": "strict"},
        "lock_path": "/locks/account-{path.account}"});
    let slots = json!({"key": "account/{path.account}", "permits": 3, "hold": {"mode": "strict"}});
    for (fence, asked, code) in [
        (curator.clone(), "--permits 2", 125),
        (curator, "", 0),
        (slots.clone(), "--permits 2", 125),
        (slots, "--permits 3", 0),
    ] {
        let file = PolicyFile::new(&policy.clone().with("/routes/0/fence", fence.clone()));
        let line = format!("lock account/7 {asked} --wait 5s -c {file} -- true").replace("  ", " ");
        let output = run(words(&line), "", &[]).await;
        let told = output_text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{asked} {fence}: {told}");
        assert_eq!(told.contains("elsewhere, or for another number of holders"), code == 125, "{told}");
    }
}

/// A command whose supervisor cannot start is not run.
#[tokio::test]
async fn command_without_supervisor_never_runs() {
    let (_site, _, file) = install_policy().await;
    let marker = scratch::temp_dir();
    let touched = marker.path().join("ran").display().to_string();
    let fails = [("FAILPOINTS", "before_command_is_watched=panic")];
    let output = run(words(&format!("lock job/2 -c {file} -- touch {touched}")), "", &fails).await;
    assert!(!output.status.success(), "{output:?}");
    assert!(fs::metadata(&touched).is_err(), "it was run");
}
