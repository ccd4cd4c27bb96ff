//! A bad policy is refused before anything starts, with a code, the place, the line, and a caret below the mistake.
//!
//! The exit code is 78. No input makes the reader panic.

use fencegate_testkit::scratch;
use fencegate_tests::gateway::{PolicyFile, command, command_with_env, write_policy};
use serde_json::Value;

const SOUND: &str = r#"version: 1
listeners: {public: {address: "127.0.0.1:0"}}
admin: {address: "127.0.0.1:0"}
zookeeper: {servers: ["127.0.0.1:1"], session_timeout: 2s, tick: 200ms}
upstreams:
  ledger: {endpoints: ["http://127.0.0.1:1"], fencing: upstream, response_timeout: 10s}
routes:
  - name: pay
    upstream: ledger
    match: {methods: [POST], path: "/pay/{account}"}
    fence: {key: "account/{path.account}", wait: 5s, queue: 50}
unmatched: reject
"#;

/// One mistake: the replaced text, and its replacement with `»` before the place that the caret must mark.
struct PolicyMistake {
    replaces: &'static str,
    with: &'static str,
    code: &'static str,
    /// A part of the message or the remedy.
    said: &'static str,
}

const MISTAKES: &[PolicyMistake] = &[
    PolicyMistake {
        replaces: "unmatched: reject",
        with: "»unmached: reject",
        code: "FG0102",
        said: "did you mean `unmatched`?",
    },
    PolicyMistake { replaces: "wait: 5s", with: "»wiat: 5s", code: "FG0102", said: "did you mean `wait`?" },
    PolicyMistake {
        replaces: "{path.account}\"",
        with: "{»path.acount}\"",
        code: "FG0203",
        said: "did you mean `{path.account}`?",
    },
    PolicyMistake {
        replaces: "upstream: ledger\n",
        with: "upstream: »legder\n",
        code: "FG0207",
        said: "did you mean `ledger`?",
    },
    PolicyMistake {
        replaces: "fencing: upstream",
        with: "fencing: »upsteam",
        code: "FG0103",
        said: "did you mean `upstream`?",
    },
    PolicyMistake { replaces: "wait: 5s", with: "wait: »5", code: "FG0107", said: "unit" },
    PolicyMistake { replaces: "queue: 50", with: "queue: »many", code: "FG0109", said: "" },
    PolicyMistake {
        replaces: "tick: 200ms",
        with: "tick: 200ms, safety_margin: »300ms",
        code: "FG0301",
        said: "",
    },
    PolicyMistake { replaces: "tick: 200ms", with: "tick: 200ms, »tick: 300ms", code: "FG0104", said: "" },
    PolicyMistake { replaces: "version: 1", with: "version: »7", code: "FG0117", said: "" },
    PolicyMistake {
        replaces: "admin: {address: \"127.0.0.1:0\"}",
        with: "admin: {address: »\"0.0.0.0:0\"}",
        code: "FG0401",
        said: "",
    },
];

/// The exit code and stderr of `check` and of `run` with a bad policy.
async fn run_on_bad_policy(text: impl AsRef<[u8]>) -> Vec<(Option<i32>, String)> {
    let home = scratch::temp_dir();
    let file = home.path().join("policy.yaml");
    std::fs::write(&file, text).expect("the folder can be written");
    let mut results = Vec::new();
    for verb in ["check", "run"] {
        let output = command(&[verb, "-c", &file.display().to_string()]).await.expect("started");
        results.push((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    results
}

#[tokio::test]
async fn sound_policy_passes() {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), SOUND);
    let output = command(&["check", "-c", &file.display().to_string()]).await.expect("started");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

const GUARD: &str = r#"version: 1
listener: {address: "127.0.0.1:0"}
upstream: {endpoint: "http://127.0.0.1:1"}
store: {redb: /nowhere/guard.redb}
tickets: {secret_file: /nowhere/secret}
"#;

/// A guard's file is checked as a guard's file, and never run as a policy.
#[tokio::test]
async fn guard_file_is_no_policy() {
    let file = PolicyFile::new(GUARD);
    let output = command(&["check", &file]).await.expect("started");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = command(&["run", "-c", &file]).await.expect("started");
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error[FG0120]: "), "{output:?}");
    let bad = GUARD.replace("upstream:", "settle: 10\nupstream:");
    for (exit, stderr) in run_on_bad_policy(bad).await {
        assert!(exit == Some(78) && stderr.starts_with("error[FG01"), "{stderr}");
    }
}

/// Every mistake is reported with code, place, line and a caret below it.
#[tokio::test]
async fn every_mistake_shows_code_and_place() {
    for PolicyMistake { replaces, with, code, said } in MISTAKES {
        let marked = SOUND.replacen(replaces, with, 1);
        let before = &marked[..marked.find('»').expect("a marked place")];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |end| end + 1) + 1;
        let text = marked.replace('»', "");
        let source = text.lines().nth(line - 1).expect("the marked line");
        for (exit, stderr) in run_on_bad_policy(&text).await {
            assert_eq!(exit, Some(78), "{with}: {stderr}");
            assert!(stderr.contains(&format!("error[{code}]: ")), "{with}: {stderr}");
            assert!(stderr.contains(&format!("policy.yaml:{line}:{column}\n")), "{with}: {stderr}");
            let shown = format!("{line} | {source}\n");
            let caret = stderr.split_once(&shown).unwrap_or_else(|| panic!("{with}: {stderr}")).1;
            let indent = format!("{line} | ").len() + column - 1;
            let caret = caret.lines().next().unwrap_or_default();
            assert_eq!(caret.find('^'), Some(indent), "{with}: {stderr}");
            assert!(stderr.contains(said), "{with}: {stderr}");
        }
    }
}

/// All mistakes are reported at once, in the order of their lines.
#[tokio::test]
async fn all_mistakes_reported_at_once() {
    let text = SOUND
        .replace("tick: 200ms", "tick: 200ms, safety_margin: 300ms")
        .replace("{path.account}", "{path.acount}")
        .replace("upstream: ledger\n", "upstream: legder\n");
    for (exit, stderr) in run_on_bad_policy(&text).await {
        assert_eq!(exit, Some(78));
        let places: Vec<usize> = ["FG0301", "FG0207", "FG0203"]
            .iter()
            .map(|code| stderr.find(code).unwrap_or(usize::MAX))
            .collect();
        assert!(places.is_sorted() && places.iter().all(|place| *place < stderr.len()), "{stderr}");
    }
}

#[tokio::test]
async fn malformed_file_is_refused_without_panic() {
    let nested = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let cases: [(&str, &[u8]); 7] = [
        ("empty", b""),
        ("unclosed", b"version: 1\nroutes: [\n"),
        ("tabs", b"version:\t1\n\troutes: []\n"),
        ("not text", b"\xff\xfe\x00version"),
        ("a list", b"- version: 1\n"),
        ("a word", b"reject"),
        ("nested", nested.as_bytes()),
    ];
    for (case, bytes) in cases {
        for (exit, stderr) in run_on_bad_policy(bytes).await {
            assert_eq!(exit, Some(78), "{case}: {stderr}");
            assert!(stderr.contains("error[FG01") && stderr.contains("policy.yaml"), "{case}: {stderr}");
            assert!(!stderr.contains("panicked"), "{case}: {stderr}");
        }
    }
}

#[tokio::test]
async fn missing_file_is_named() {
    for verb in ["check", "run"] {
        let output = command(&[verb, "-c", "/nowhere/policy.yaml"]).await.expect("started");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 78)), "{stderr}");
        assert!(stderr.contains("/nowhere/policy.yaml") && !stderr.contains("panicked"), "{stderr}");
    }
}

/// A variable of the environment fills in one value and never adds structure to the policy.
#[tokio::test]
async fn environment_variable_is_one_value() {
    let home = scratch::temp_dir();
    let text = SOUND.replace("account/{path.account}", "${FENCEGATE_KEY:-account}/{path.account}");
    let file = write_policy(home.path(), &text).display().to_string();
    let ask = ["explain", "-c", &file, "--format", "json", "POST /pay/7"];
    for (value, key) in [("", "account/7"), ("konto", "konto/7")] {
        let output = command_with_env(&[("FENCEGATE_KEY", value)], &ask).await.expect("started");
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(said["lock"]["keys"][0]["key"], key, "{value}: {said}");
    }
    for sly in ["a\"}, enforce: observe, x: \"", "a\n    enforce: observe", "{path.other}"] {
        let output = command_with_env(&[("FENCEGATE_KEY", sly)], &["check", &file]).await.expect("started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{sly}: {said}");
        assert!(said.contains("error[FG020") && !said.contains("observe\n"), "{sly}: {said}");
    }
    let needed = text.replace(":-account}", "}");
    let file = write_policy(home.path(), &needed).display().to_string();
    let output = command(&["check", &file]).await.expect("started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("error[FG0136]") && said.contains("FENCEGATE_KEY"), "{said}");
}
