//! The report of a run, in text, JSON and JUnit's XML and by its exit code. A case that could not be shown never
//! counts as passed.

use std::{io::Write, process::Stdio};

use super::{
    VerifyResult, command,
    fault::ServiceFault,
    faulty::{FaultyDatabase, FaultyInstance},
    verify_faulty,
};

/// Runs a few cases against a service with this fault. Returns the exit code and the output, without random keys and
/// times.
async fn run_verify(fault: ServiceFault, more: &[&str]) -> (Option<i32>, String, String) {
    let database = FaultyDatabase::new();
    let instance = FaultyInstance::start(&database, fault).await;
    let url = format!("http://{}", instance.address);
    let asked = [&["verify", &url, "--request", "POST /{key}"][..], more].concat();
    let output = command(&asked).await;
    let plain = |bytes: &[u8]| without_keys_and_times(&String::from_utf8_lossy(bytes).replace(&url, "URL"));
    (output.status.code(), plain(&output.stdout), plain(&output.stderr))
}

/// Replaces random keys and times in the text.
fn without_keys_and_times(text: &str) -> String {
    let mut settled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("fv") {
        settled.push_str(before);
        let made_up = after.bytes().take_while(u8::is_ascii_alphanumeric).count();
        settled.push_str(if made_up == 14 { "KEY" } else { "fv" });
        rest = if made_up == 14 { &after[14..] } else { after };
    }
    settled.push_str(rest);
    let lines = settled.lines().map(|line| line.split(", in ").next().unwrap_or_default());
    lines.map(|line| line.to_owned() + "\n").collect()
}

/// A failure is reported with what was sent, what came, what it means and how to mend it.
#[tokio::test]
async fn failure_report_explains_and_advises() {
    let only = ["--only", "first", "--only", "duplicate", "--observe", "GET /{key}", "--pick", "/effects"];
    let (code, text, _) = run_verify(ServiceFault::NotStrict, &only).await;
    assert_eq!(code, Some(3), "{text}");
    let expected = "\
POST /{key} of URL
`fencing-token` must be greater than the last one; effects are seen by GET /{key} at /effects
passed     first                 the first token of a new key is let in, and has its effect once
skipped    newer                 a newer token is let in after an older one
             because    `--only` names other cases
";
    assert!(text.starts_with(expected), "{text}");
    let failed = "\
FAILED     duplicate             the same request once more, byte by byte, has no second effect
             sent       POST /KEY, fencing-token: v1-0000000000000005-00000007-00000001, fencing-number: 5
             came       200, one effect
             sent       POST /KEY, fencing-token: v1-0000000000000005-00000007-00000001, fencing-number: 5
             came       200, one effect
             so         `POST /KEY, fencing-token: v1-0000000000000005-00000007-00000001, fencing-number: 5` was answered 200, and had one effect; right is 412 with `Fencing-Refusal: stale`
             means      a copy of a request, made by a proxy or a network, is a second charge
             mend       tokens are compared with `>`, never with `>=`
";
    assert!(text.contains(failed), "{text}");
    assert!(text.ends_with("\n1 passed, 1 failed, 0 undecided, 46 skipped\n"), "{text}");
}

/// Without observed effects the report says that a pass rests on the service's answers alone.
#[tokio::test]
async fn pass_without_observed_effects_is_qualified() {
    let (code, text, _) = run_verify(ServiceFault::RefusesAndDoes, &["--only", "older"]).await;
    assert_eq!(code, Some(0), "the answers are those of a sound service");
    assert!(text.contains("goes on being refused (by its answers alone)"), "{text}");
    assert!(text.contains("The service was believed"), "{text}");
    let seen = ["--only", "older", "--observe", "GET /{key}"];
    assert_eq!(run_verify(ServiceFault::RefusesAndDoes, &seen).await.0, Some(3));
}

/// A case that could not be shown is undecided and not passed.
#[tokio::test]
async fn undecided_case_is_not_passed() {
    // The preparing request is refused, so the request after it decides nothing.
    let (code, text, _) = run_verify(ServiceFault::NoUpsert, &["--only", "older"]).await;
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("undecided  older") && text.contains("0 passed, 0 failed, 1 undecided"), "{text}");
    // Effects that cannot be observed decide nothing.
    let (code, text, _) =
        run_verify(ServiceFault::None, &["--only", "older", "--observe", "GET /{key}", "--pick", "/no"])
            .await;
    assert_eq!(code, Some(4), "{text}");
    // A service that was sent no request has passed nothing.
    let (code, text, _) = run_verify(ServiceFault::None, &["--only", "crossed"]).await;
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("`--keys several` claims more") || text.contains("0 passed"), "{text}");
    // A restart command that fails does not count as a restart.
    let (code, text, _) =
        run_verify(ServiceFault::None, &["--only", "after-restart", "--restart", "exit 7"]).await;
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("`exit 7` failed: exit status: 7"), "{text}");
}

/// Exit codes separate an unreachable service, a gateway in its place and wrong arguments.
#[tokio::test]
async fn exit_codes_separate_causes() {
    let unreachable = ["verify", "http://127.0.0.1:1", "--request", "POST /{key}"];
    let output = command(&unreachable).await;
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    let (code, _, why) = run_verify(ServiceFault::Gateway, &[]).await;
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("is a gateway"), "{why}");
    for (arguments, word) in [
        (&["--only", "no-such"][..], "--list"),
        (&["--keys", "one", "--header", "x: {other}"], "{other}"),
        (&["--header", "no colon"], "name: value"),
        (&["--observe", "GET /", "--pick", "balance"], "/balance"),
        (&["--observe", "GET /", "--count", "("], "--count"),
        (&["--body", "@/no/such/file"], "/no/such/file"),
        (&["--fencing-key", "account"], "{key}"),
        (&["--probe", "/o/{operation}", "--done", "200", "--not-done", "404"], "names no operation"),
        (&["--probe", "/o", "--done", "200", "--not-done", "404"], "{operation}"),
    ] {
        let (code, _, why) = run_verify(ServiceFault::None, arguments).await;
        assert_eq!(code, Some(2), "{arguments:?}: {why}");
        assert!(why.contains(word), "{arguments:?}: {why}");
    }
    let output = command(&["verify", "http://127.0.0.1:1", "--request", "POST /pay"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[tokio::test]
async fn effects_in_file_are_counted() {
    let database = FaultyDatabase::new();
    let instance = FaultyInstance::start(&database, ServiceFault::RefusesAndDoes).await;
    let url = format!("http://{}", instance.address);
    let file = database.path().join("effects").display().to_string();
    let request = [&*url, "--request", "POST /{key}", "--only", "first", "--only", "older"];
    let verified = VerifyResult::run(&[&request[..], &["--effects-file", &file]].concat()).await;
    assert_eq!(verified.cases_with("failed"), ["older"].into(), "{:#}", verified.report);
    assert!(verified.reason_of("older").contains("one effect"), "{:#}", verified.report);
}

/// The JUnit XML has each case, and the JSON has everything that is known of a case.
///
/// Both are read by a parser of another language.
#[tokio::test(flavor = "multi_thread")]
async fn junit_and_json_are_complete() {
    const READ: &str = "import sys, xml.etree.ElementTree as t; s = t.fromstring(sys.stdin.read()).find('testsuite'); \
        print(s.get('tests'), s.get('failures'), s.get('errors'), len(s.findall('testcase')), \
        len(s.findall('testcase/failure')), len(s.findall('testcase/skipped')), \
        s.find('testcase/failure').get('message'))";
    let only = ["--format", "junit", "--only", "first", "--only", "malformed"];
    let (code, xml, _) = run_verify(ServiceFault::AcceptsAnything, &only).await;
    assert_eq!(code, Some(3), "{xml}");
    let mut python = std::process::Command::new("python3");
    python.args(["-c", READ]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().expect("python3");
    python.stdin.take().expect("piped").write_all(xml.as_bytes()).expect("it reads");
    let output = python.wait_with_output().expect("it ends");
    let read = String::from_utf8(output.stdout).expect("text");
    assert!(read.starts_with("48 1 0 48 1 46 `POST /KEY, fencing-token: "), "{read} {xml}");

    let verified = verify_faulty(ServiceFault::NotStrict, &["--only", "equal"]).await;
    assert_eq!(verified.report["summary"]["failed"], 1);
    assert_eq!(verified.report["compares"], "fencing-token");
    let cases = verified.report["cases"].as_array().expect("a list");
    let case = cases.iter().find(|case| case["name"] == "equal").expect("it was asked for");
    assert_eq!(case["events"].as_array().map(Vec::len), Some(2), "{case}");
    for part in ["group", "title", "why", "means", "mend"] {
        assert!(case[part].as_str().is_some_and(|text| !text.is_empty()), "{part}: {case}");
    }
    assert!(case["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{case}");
}
