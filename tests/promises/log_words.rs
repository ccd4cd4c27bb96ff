//! People and programs can read the log: it has one event per line, no value in debug format, one line for a cause
//! that keeps all sessions from starting, and no key where the policy hides keys.
//!
//! The same holds for mistakes in a policy. The hash of a key is made with a secret.

use std::{fs, path::Path, time::Duration};

use fencegate_process::key_redaction::KeyHashSecret;
use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, GatewayLaunch, PolicyFile, command},
    guarded::GuardedSite,
    held_request::HeldRequest,
    leases::{CLIENT, LeaseTokens},
    origin::OriginAction,
    site::TestSite,
};
use serde_json::Value;
use tokio::time::sleep;

/// The events of a log. Each line has to be one.
fn events(log: &str) -> Vec<Value> {
    let event = |line: &str| {
        let event = serde_json::from_str(line);
        event.unwrap_or_else(|error| panic!("no event of its own ({error}): {line}\nin\n{log}"))
    };
    log.lines().filter(|line| !line.is_empty()).map(event).collect()
}

/// Warnings and errors of a policy are log events with a code, one JSON object per line.
#[tokio::test]
async fn policy_warnings_are_json_events() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/routes/0/fence/enforce", "observe");
    let gateway = Gateway::start(&policy).await;
    let line = gateway.wait_line("the warning", |line| line.message() == "config.warning").await;
    assert_eq!(line.field("code"), "FG0307", "{}", line.text());
    assert!(line.text().contains("\"line\":") && line.field("said").contains("pass"), "{}", line.text());
    events(&gateway.log());

    let broken = policy.to_string().replace("\"observe\"", "\"obsrve\"");
    let file = PolicyFile::new(&broken);
    let output = command(&["--log-format", "json", "run", "-c", &file]).await.expect("started");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert_eq!(events(&said)[0]["fields"]["code"], "FG0103", "{said}");
}

/// A missing installation is logged once with the command that creates it, and clients get `not-initialised`.
#[tokio::test]
async fn missing_installation_is_logged_once() {
    let site = TestSite::fresh().await;
    let gateway = GatewayLaunch::new(&site.policy("gw-1")).without_init().start().await;
    let line = gateway.wait_line("why", |line| line.message() == "no ZooKeeper session").await;
    assert_eq!(line.field("code"), "FG0506", "{}", line.text());
    let to_type = format!("fencegate era init -c {}", gateway.file().display());
    assert!(line.field("error").contains(&format!("`{to_type}`")), "{}", line.text());
    // Each of four sessions checks the installation by itself. A session that has not checked it yet only finds that
    // the gateway has no lock service.
    let told = async {
        loop {
            let answer = gateway.send(&TestRequest::post("/pay/7")).await;
            match (answer.status, answer.reason().as_str()) {
                (503, "not-initialised") => return,
                (status, reason) => assert_eq!((status, reason), (503, "lock-service")),
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    wait_until("a session that has looked", told, || gateway.log()).await;
    // The sessions repeat their check during this time.
    sleep(Duration::from_secs(2)).await;
    let log = gateway.log();
    assert_eq!(log.matches("no ZooKeeper session").count(), 1, "{log}");
    run(&to_type).await;
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
}

/// Runs a command as it was printed.
async fn run(line: &str) {
    let words: Vec<&str> = line.split(' ').skip(1).collect();
    let output = command(&words).await.expect("started");
    assert!(output.status.success(), "{line}: {output:?}");
}

/// A word that is in the key of every resource here, and nowhere else.
const CANARY: &str = "canary-1f6b";

/// With `log.keys` set to `hash` or `off`, no line of the log of a gateway or guard contains a key.
#[tokio::test]
async fn log_hides_keys_by_policy() {
    for (keys, told) in [("hash", Some("\"#")), ("off", Some("(hidden)")), ("plain", Some(CANARY))] {
        let mut site = TestSite::fresh().await;
        // The root contains words of lock paths: the log must find keys by the paths of the policy, not by such words.
        site.root += "/locks/apps";
        let guarded = GuardedSite::new(site).await;
        let guard = guarded.launch().await.with("/log", serde_json::json!({"keys": keys})).start().await;
        guard.wait_ready().await;
        let policy = guarded
            .policy("gw-1", &[guard.public])
            .with("/log", serde_json::json!({"keys": keys}))
            .with("/defaults/hold/mode", "strict");
        let gateway = GatewayLaunch::new(&policy).with_log_filter("fencegate=debug").start().await;
        gateway.wait_ready().await;
        let path = format!("/pay/{CANARY}");
        let origin = &guarded.site.origin;
        let tree = guarded.site.tree().await;

        // An answer that breaks off leaves a doubt at the guard and a retired tenure at the gateway.
        origin.script(&path, [OriginAction::Reset]);
        assert_eq!(gateway.send(&TestRequest::post(&path)).await.status, 502);
        // Another client removes the lock of a holder, and a further request does not wait for the key.
        let other = format!("/pay/{CANARY}-other");
        let HeldRequest { request: holder, latch, .. } =
            origin.hold_request(&gateway, TestRequest::post(&other)).await;
        let impatient = gateway.send(&TestRequest::post(&other).field("prefer", "wait=0")).await;
        assert_eq!(impatient.status, 423, "{impatient:?}");
        let lock = tree.paths().await.into_iter().find(|path| path.contains("-other/"));
        // The lock node is removed only when the gateway watches it, which takes a second.
        sleep(Duration::from_millis(1500)).await;
        tree.delete(&lock.expect("a lock node")).await.expect("it is there");
        gateway
            .wait_line("that it is gone", |line| {
                line.message().contains("another client removed the lock node")
            })
            .await;
        latch.release();
        holder.result().await.ok();
        // No handler takes these requests, so none logs them.
        for (method, target) in [
            ("DELETE", format!("/api/v1/locks/account%2F{CANARY}")),
            ("POST", format!("/api/v1/locks/account/{CANARY}/break")),
            ("POST", format!("/locks/account%2F{CANARY}/")),
        ] {
            let answer =
                TestRequest::with_method(method, &target).send_to(gateway.admin).await.expect("answered");
            assert!(matches!(answer.status, 404 | 405), "{target}: {answer:?}");
        }
        gateway.wait_line("the last of them", |line| line.field("asked") == "locks.*").await;
        // This token is older than the newest one that the guard has admitted.
        let stale = TestRequest::post(&path)
            .field("fencing-token", "v1-0000000000000001-00000000-00000001")
            .field("fencing-key", &format!("account/{CANARY}"));
        assert_ne!(guard.send(&stale).await.status, 200);
        guard.wait_line("the doubt", |line| line.message() == "guard.in_doubt").await;

        for (who, log) in [("gateway", gateway.log()), ("guard", guard.log())] {
            assert_eq!(log.contains(CANARY), keys == "plain", "{who}, {keys}:\n{log}");
            assert!(told.is_none_or(|told| log.contains(told)), "{who}, {keys}:\n{log}");
            assert!(!log.contains("Some(") && !log.contains("\"None\""), "{who}:\n{log}");
        }
    }
}

/// No field of the log is printed in debug format.
///
/// Debug format, as in `Some(33.9µs)`, is for programmers. A field that is logged as `?field` has this format.
#[test]
fn log_fields_avoid_debug_format() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gateway");
    let mut found = Vec::new();
    let mut looked = 0;
    each_source(&sources, &mut |file, text| {
        for macro_of_the_log in ["trace!(", "debug!(", "info!(", "warn!(", "error!("] {
            for (at, _) in text.match_indices(macro_of_the_log) {
                let arguments = &text[at + macro_of_the_log.len()..];
                let arguments = &arguments[..arguments.find(';').unwrap_or(arguments.len())];
                looked += 1;
                if uses_debug_format(arguments) {
                    let line = text[..at].matches('\n').count() + 1;
                    found.push(format!("{}:{line}", file.display()));
                }
            }
        }
    });
    assert!(looked > 100, "only {looked} lines of the log were found");
    assert!(found.is_empty(), "say it with `%` or as a word of its own: {found:#?}");
}

/// True if the arguments of a log macro use debug format: `?late`, `waited = ?waited` or `{late:?}`.
fn uses_debug_format(arguments: &str) -> bool {
    let sigil = arguments.match_indices('?').any(|(at, _)| {
        let before = arguments[..at].trim_end().chars().last();
        let after = arguments[at + 1..].chars().next();
        matches!(before, None | Some('=' | ',' | '('))
            && after.is_some_and(|after| after.is_ascii_lowercase())
    });
    sigil || arguments.contains(":?}")
}

fn each_source(folder: &Path, look: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            each_source(&path, look);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            look(&path, &fs::read_to_string(&path).expect("readable"));
        }
    }
}

/// The search for fields in debug format finds each of their forms and nothing else.
#[test]
fn debug_format_search_finds_violations() {
    for bad in ["?late, \"x\")", "waited = ?x.get(), \"x\")", "%a, ?b)", "\"took {late:?}\")"] {
        assert!(uses_debug_format(bad), "{bad}");
    }
    for good in ["%late, \"is it so?\")", "late = read()?, \"x\")"] {
        assert!(!uses_debug_format(good), "{good}");
    }
}

/// Starts a gateway of its own installation, and returns its hash of the key `account/7`.
async fn start_for_key_hash(secret: Option<&Path>) -> String {
    let site = TestSite::fresh().await;
    let policy =
        site.policy("gw-1").with_cached_hold().with("/log/keys", "hash").with("/defaults/hold/linger", "5s");
    let policy = match secret {
        Some(file) => policy.with("/log/key_secret_file", file.display().to_string()),
        None => policy,
    };
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let locks: Value =
        serde_json::from_slice(&gateway.admin("/api/v1/locks").await.body).expect("a document");
    locks["locks"][0]["key"].as_str().expect("a name").to_owned()
}

/// Without its secret nobody can compute the hash of a key, and processes with one secret agree.
#[tokio::test]
async fn key_hash_depends_on_secret() {
    let tokens = LeaseTokens::default();
    let one = start_for_key_hash(None).await;
    let other = start_for_key_hash(None).await;
    println!("two processes: {one} and {other}");
    assert_ne!(one, other, "a hash that anybody can compute");
    let plain = format!("#{:016x}", fencegate_policies::load_balance::hash_name("account/7"));
    assert!(![&one, &other].contains(&&plain), "the hash without a secret");
    let file = tokens.file("client");
    let unlike = tokens.file("other");
    let shared = start_for_key_hash(Some(&file)).await;
    assert_eq!(shared, start_for_key_hash(Some(&file)).await);
    assert_eq!(
        shared,
        format!("#{}", KeyHashSecret::new(CLIENT.as_bytes()).hash_digits_with_secret("account/7"))
    );
    assert_ne!(shared, start_for_key_hash(Some(&unlike)).await);
}
