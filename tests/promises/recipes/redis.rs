//! Redis from the packages of Debian, empty, on a socket in a temporary folder.

use std::{fs, process::Command};

use fencegate_testkit::{child::ChildProcess, wait::PATIENCE};
use fencegate_tests::prometheus::deploy;
use tempfile::TempDir;

use super::{
    AccessMode, CompareForm,
    story::{RecipeStory, TransactionEnd},
    token,
};

struct RedisSession {
    home: TempDir,
    _server: ChildProcess,
}

/// A script of the recipe.
fn script(name: &str) -> String {
    fs::read_to_string(deploy().join("upstream/redis").join(name)).expect("shipped")
}

/// The script of an effect in the README.
fn documented_effect() -> String {
    let readme = script("README.md");
    let (_, block) = readme.split_once("```lua\n").expect("a block of Lua");
    block.split_once("```").expect("its end").0.to_owned()
}

impl RedisSession {
    /// # Panics
    /// Panics if Redis does not start. It is the Debian package `redis-server`.
    fn start() -> Self {
        // The path of a socket has to be short.
        let home = TempDir::with_prefix("fencegate-tests-").expect("a folder");
        let socket = home.path().join("socket").display().to_string();
        let folder = home.path().display().to_string();
        let words = ["--port", "0", "--unixsocket", &socket, "--dir", &folder, "--save", ""];
        let server = ChildProcess::spawn("redis-server", words).expect("setpriv");
        let ready = |line: &str| line.contains("ready to accept connections");
        server.wait_line(ready, PATIENCE).expect("it starts");
        Self { home, _server: server }
    }

    fn run_redis_cli(&self, words: &[&str]) -> String {
        let mut client = Command::new("setpriv");
        client.args(["--pdeathsig", "KILL", "--", "redis-cli", "--raw", "-s"]);
        let answered = client.arg(self.home.path().join("socket")).args(words).output().expect("setpriv");
        String::from_utf8(answered.stdout).expect("text").trim().to_owned()
    }

    /// Claims these keys, and runs the effect if the claim passes.
    fn claim_and_run(
        &self,
        form: CompareForm,
        mode: AccessMode,
        keys: &[String],
        mark: &str,
        effect: &str,
    ) -> Result<String, String> {
        let text = script("claim.lua") + effect;
        let marks: Vec<String> = keys.iter().map(|key| format!("fence:{key}")).collect();
        let all = (marks.len() + 1).to_string();
        let count = marks.len().to_string();
        let mut words = vec!["EVAL", &text, &all, "fence floor"];
        words.extend(marks.iter().map(String::as_str));
        words.extend([form.word(), mode.word(), mark, &count]);
        let answer = self.run_redis_cli(&words);
        if answer.starts_with("STALE ") { Err(answer) } else { Ok(answer) }
    }

    fn is_admitted(&self, form: CompareForm, mode: AccessMode, key: &str, mark: &str) -> bool {
        self.claim_and_run(form, mode, &[key.to_owned()], mark, "return 'done'")
            .inspect(|done| assert_eq!(done, "done"))
            .is_ok()
    }

    /// Runs the cleanup of the README, and returns the number of deleted keys.
    fn run_cleanup(&self, form: CompareForm, seconds: &str) -> String {
        let found = self.run_redis_cli(&["--scan", "--pattern", "fence:*"]);
        let text = script("forget.lua");
        let count = (found.lines().count() + 1).to_string();
        let mut words = vec!["EVAL", &text, &count, "fence floor"];
        words.extend(found.lines());
        words.extend([form.word(), seconds]);
        self.run_redis_cli(&words)
    }
}

#[test]
fn redis_accepts_only_newer_tokens() {
    let redis = RedisSession::start();
    for form in [CompareForm::Token, CompareForm::Number] {
        for story in RecipeStory::all(form) {
            // A script cannot be rolled back, so stories with a rollback are left out.
            if story.steps.iter().any(|step| step.end == TransactionEnd::Rollback) {
                continue;
            }
            redis.run_redis_cli(&["FLUSHALL"]);
            for (at, step) in story.steps.iter().enumerate() {
                let told = redis.claim_and_run(form, step.mode, &step.keys, step.mark(form), "return 'done'");
                match told {
                    Ok(done) => assert!(done == "done" && step.passes, "{}, step {at}: {done}", story.name),
                    Err(stale) => assert!(!step.passes, "{}, step {at}: {stale}", story.name),
                }
            }
        }
    }
}

/// Tokens up to the forgotten watermarks stay refused for every key, by the floor.
#[test]
fn redis_refuses_forgotten_tokens() {
    let redis = RedisSession::start();
    for (form, [first, second, third, fourth]) in [
        (CompareForm::Token, ["05", "09", "0a", "0b"].map(token)),
        (CompareForm::Number, ["5", "9", "10", "11"].map(str::to_owned)),
    ] {
        redis.run_redis_cli(&["FLUSHALL"]);
        assert!(redis.is_admitted(form, AccessMode::Exclusive, "old", &first));
        assert!(redis.is_admitted(form, AccessMode::Shared, "read", &second));
        // The first call only records the highest watermark. The second call raises the floor to it.
        assert_eq!(redis.run_cleanup(form, "0"), "0");
        assert!(redis.is_admitted(form, AccessMode::Exclusive, "late", &first), "no floor before its time");
        assert!(redis.is_admitted(form, AccessMode::Exclusive, "new", &fourth));
        assert_eq!(redis.run_cleanup(form, "3600"), "0");
        assert_eq!(redis.run_cleanup(form, "0"), "3");
        for key in ["old", "read", "late", "other"] {
            assert!(!redis.is_admitted(form, AccessMode::Exclusive, key, &first), "{key}");
            assert!(!redis.is_admitted(form, AccessMode::Shared, key, &second), "{key}");
        }
        assert!(redis.is_admitted(form, AccessMode::Shared, "other", &third));
        assert!(!redis.is_admitted(form, AccessMode::Exclusive, "new", &third));
    }
}

/// The effect and its claim happen together or not at all.
#[test]
fn redis_effect_happens_only_with_claim() {
    let redis = RedisSession::start();
    let debit = |mark: &str, cents: &str| {
        let text = script("claim.lua") + &documented_effect();
        redis.run_redis_cli(&[
            "EVAL",
            &text,
            "3",
            "fence floor",
            "fence:account/7",
            "account/7",
            "token",
            "exclusive",
            mark,
            "1",
            cents,
        ])
    };
    assert_eq!(redis.run_redis_cli(&["SET", "account/7", "100"]), "OK");
    assert_eq!(debit(&token("05"), "30"), "70");
    assert!(debit(&token("05"), "30").starts_with("STALE"), "a duplicate");
    assert!(debit(&token("04"), "30").starts_with("STALE"), "an older one");
    assert_eq!(redis.run_redis_cli(&["GET", "account/7"]), "70");
    assert!(debit(&token("06"), "80").starts_with("POOR"), "told, and nothing older may take some later");
    assert!(debit(&token("05"), "10").starts_with("STALE"));
    // The README names this limit: an effect that fails halfway is not undone, and its watermark stays.
    redis.run_redis_cli(&["SET", "account/7", "no number"]);
    assert!(debit(&token("08"), "10").contains("ERR"));
    assert!(debit(&token("08"), "10").starts_with("STALE"));
}
