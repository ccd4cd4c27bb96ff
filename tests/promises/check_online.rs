//! `check --online` sees what a gateway or guard would meet at start, tells all of it at once and in a bounded time, and
//! changes nothing.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    process::Output,
    time::{Duration, Instant},
};

use fencegate_tests::{
    gateway::{Gateway, command, write_policy},
    guarded::GuardedSite,
    peers::ProxyProcess,
    policy::TestPolicy,
    scratch,
    site::TestSite,
    terminator::{ClientAuthMode, SignedCertificate, TestCa, TlsTerminator},
    zookeeper::OwnZooKeeper,
};
use serde_json::{Value, json};

async fn check(policy: &TestPolicy, options: &[&str]) -> Output {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    command(&[&["check", &file, "--online"][..], options].concat()).await.expect("started")
}

/// What a program is told.
struct CheckOutput {
    exit: Option<i32>,
    said: Value,
}

impl CheckOutput {
    async fn of(policy: &TestPolicy) -> Self {
        let output = check(policy, &["--format", "json"]).await;
        let said = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        Self { exit: output.status.code(), said }
    }

    fn diagnostics(&self) -> impl Iterator<Item = &Value> {
        self.said["diagnostics"].as_array().expect("a list").iter()
    }

    fn codes(&self) -> BTreeSet<&str> {
        self.diagnostics().filter_map(|one| one["code"].as_str()).collect()
    }

    fn message(&self, code: &str) -> &str {
        let found = self.diagnostics().find(|one| one["code"] == code);
        found.and_then(|one| one["message"].as_str()).unwrap_or_else(|| panic!("no {code}: {:#}", self.said))
    }

    fn saw(&self, about: &str, part: &str) -> bool {
        let facts = self.said["online"].as_array().expect("somebody went");
        facts.iter().any(|fact| {
            fact["about"] == about && fact["says"].as_str().is_some_and(|says| says.contains(part))
        })
    }
}

/// A session can move between these servers, and one of them keeps it for less time.
#[tokio::test]
async fn servers_that_keep_a_session_for_unlike_times_are_told() {
    let site = TestSite::fresh().await;
    let other = OwnZooKeeper::start().with_max_session(Duration::from_secs(1)).await;
    let servers = [site.zookeeper, other.server.address()].map(|server| server.to_string());
    let told = CheckOutput::of(&site.policy("gw-1").with("/zookeeper/servers", json!(servers))).await;
    let message = told.message("FG0520");
    assert!(message.contains(&format!("{} 2s", servers[0])), "{message}");
    assert!(message.contains(&format!("{} 1s", servers[1])), "{message}");
    let alike =
        CheckOutput::of(&site.policy("gw-1").with("/zookeeper/servers", json!([servers[0], servers[0]])))
            .await;
    assert!(!alike.codes().contains("FG0520"), "{:#}", alike.said);
    assert!(alike.saw("zookeeper", "2 of 2 servers give a session"), "{:#}", alike.said);
}

/// Where nobody compares tokens, a proxy before the service must not repeat requests, and nobody may know that it is there.
#[tokio::test]
async fn an_intermediary_before_the_service_is_told() {
    let site = TestSite::fresh().await;
    let service = site.origin.door("service");
    let peer = ProxyProcess::nginx(service);
    for (fencing, endpoint, told) in
        [("none", peer.address, true), ("none", service, false), ("upstream", peer.address, false)]
    {
        let policy = site.policy("gw-1").with("/upstreams/ledger/fencing", fencing);
        let seen = CheckOutput::of(
            &policy.with("/upstreams/ledger/endpoints", json!([format!("http://{endpoint}")])),
        )
        .await;
        let saw = seen.saw("upstream ledger", "an intermediary answers at");
        assert_eq!(saw, told, "{fencing} at {endpoint}: {:#}", seen.said);
        assert!(!saw || seen.saw("upstream ledger", "server: nginx"), "{:#}", seen.said);
    }
}

#[tokio::test]
async fn a_sound_installation_is_shown_and_nothing_in_it_changes() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let _gateway = Gateway::start(&policy).await;
    let tree = site.tree().await;
    let before = tree.paths().await;
    let told = CheckOutput::of(&policy).await;
    // The ZooKeeper of the tests lets everybody in, and the check warns about that.
    assert_eq!((told.exit, told.codes()), (Some(0), ["FG0502"].into()), "{:#}", told.said);
    assert_eq!((&told.said["good"], &told.said["warnings"]), (&json!(true), &json!(1)));
    assert!(told.saw("zookeeper", "a session of 2s for the 2s asked for"), "{:#}", told.said);
    // An operator with a firewall in front of ZooKeeper says `acl: open` once, and the warning ends.
    let meant = policy.clone().with("/zookeeper/acl", "open");
    assert_eq!(check(&meant, &["--strict"]).await.status.code(), Some(0));
    let told_of = CheckOutput::of(&meant).await;
    assert!(told_of.codes().is_empty() && told_of.saw("root", "everybody may write"), "{:#}", told_of.said);
    assert!(told.saw("root", "world:anyone (cdwa)") && told.saw("root", "era 0"), "{:#}", told.said);
    assert!(told.saw("members", "1 gateways, 0 of them"), "{:#}", told.said);
    assert!(told.saw("upstream ledger", "answers at 127.0.0.1:"), "{:#}", told.said);
    assert_eq!(tree.paths().await, before);
    let output = check(&policy, &[]).await;
    let (shown, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("zookeeper  ") && shown.ends_with("policy.yaml: good\n"), "{shown}");
    assert!(said.contains("warning[FG0502]: ") && said.contains("policy.yaml:"), "{said}");
    let strict = check(&policy, &["--strict"]).await;
    assert_eq!(strict.status.code(), Some(78), "{strict:?}");
}

#[tokio::test]
async fn everything_that_is_away_is_told_at_once_and_in_time() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let policy = TestPolicy::new("gw-1", nobody, "/nothing", nobody)
        .with("/upstreams/ledger/endpoints", json!(["http://127.0.0.1:1", "http://nowhere.invalid:80"]))
        .with("/upstreams/secured", json!({"endpoints": ["https://127.0.0.1:1"], "fencing": "none", "tls": {"ca_file": "/nowhere/ca.pem"}}))
        .with("/tickets", json!({"signing_key_file": "/nowhere/key"}))
        .with("/admin/auth", json!({"bearer_file": "/nowhere/token"}))
        .with("/leases", json!({"principals": [{"name": "batch", "bearer": {"file": "/nowhere/batch"}, "keys": ["job/*"]}]}))
        .with("/listeners/public/tls", json!({"certificates": [{"certificate_file": "/nowhere/a.pem", "key_file": "/nowhere/a.key"}]}))
        .with("/state_dir", "/nowhere");
    let begun = Instant::now();
    let told = CheckOutput::of(&policy).await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(told.exit, Some(78));
    assert_eq!(told.codes(), ["FG0505", "FG0507", "FG0510", "FG0512", "FG0514"].into(), "{:#}", told.said);
    let count = |code| told.diagnostics().filter(|one| one["code"] == code).count();
    assert_eq!((count("FG0507"), count("FG0512")), (2, 4), "{:#}", told.said);
    for one in told.diagnostics() {
        let placed = one["line"].as_u64().is_some_and(|line| line > 1);
        assert!(placed && one["remedy"].is_string() && one["width"].is_u64(), "{one:#}");
    }
}

#[tokio::test]
async fn an_endpoint_that_is_away_beside_one_that_answers_is_a_warning() {
    let site = TestSite::fresh().await;
    let endpoints = json!([format!("http://{}", site.origin.door("gw-1")), "http://127.0.0.1:1"]);
    let policy = site.policy("gw-1").with("/upstreams/ledger/endpoints", endpoints);
    let _gateway = Gateway::start(&policy).await;
    let told = CheckOutput::of(&policy).await;
    assert_eq!((told.exit, told.codes()), (Some(0), ["FG0502", "FG0507"].into()), "{:#}", told.said);
    assert!(told.message("FG0507").contains("127.0.0.1:1"), "{:#}", told.said);
}

#[tokio::test]
async fn what_zookeeper_grants_and_does_not_have_is_told() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/zookeeper/session_timeout", "2m").with("/zookeeper/tick", "6s");
    let told = CheckOutput::of(&policy).await;
    assert_eq!((told.exit, told.codes()), (Some(78), ["FG0501", "FG0506"].into()), "{:#}", told.said);
    assert_eq!(told.message("FG0501"), "ZooKeeper grants a session of 1m, not the 2m asked for");
    assert!(told.message("FG0506").contains(&site.root), "{:#}", told.said);
}

#[tokio::test]
async fn gateways_that_lock_other_keys_are_named() {
    let site = TestSite::fresh().await;
    let _gateway = Gateway::start(&site.policy("gw-1")).await;
    let told =
        CheckOutput::of(&site.policy("gw-2").with("/routes/0/fence/key", "other/{path.account}")).await;
    let codes = ["FG0502", "FG0515", "FG0550"];
    assert_eq!((told.exit, told.codes()), (Some(0), codes.into()), "{:#}", told.said);
    assert!(told.message("FG0515").starts_with("gw-1 would lock other keys"), "{:#}", told.said);
    assert!(told.message("FG0550").starts_with("pay would be refused"), "{:#}", told.said);
}

/// A gateway that says of itself that it can be reached there.
async fn member(site: &TestSite, name: &str, address: &str) {
    let data = json!({
        "format": 1, "version": "0", "plan": "0",
        "peer": {"address": address, "pass": "0123456789abcdef".repeat(4)},
    });
    site.tree().await.create(&format!("/members/{name}-{:016x}", 7), data.to_string().as_bytes()).await;
}

#[tokio::test]
async fn gateways_that_are_not_where_they_say_are_named() {
    let site = TestSite::fresh().await;
    let _gateway = Gateway::start(&site.policy("gw-1")).await;
    let there = site.origin.door("gw-2").to_string();
    for (name, address) in [("gw-1", "127.0.0.1:1"), ("gw-2", &there), ("gw-3", "127.0.0.1:1")] {
        member(&site, name, address).await;
    }
    let alone = CheckOutput::of(&site.policy("gw-1")).await;
    assert!(
        !alone.codes().contains("FG0517"),
        "who sends nothing on needs to reach nobody: {:#}",
        alone.said
    );

    let peer = |advertise: &str| json!({"address": "127.0.0.1:9910", "advertise": advertise});
    let told = CheckOutput::of(&site.policy("gw-1").with("/peer", peer("127.0.0.1:9910"))).await;
    assert_eq!(told.exit, Some(0), "{:#}", told.said);
    let message = told.message("FG0517");
    assert!(message.starts_with("the gateway `gw-3` cannot be reached at `127.0.0.1:1`: "), "{message}");
    let unreached = told.diagnostics().filter(|one| one["code"] == "FG0517");
    assert_eq!(unreached.count(), 1, "itself is not one of the others: {:#}", told.said);
    assert!(told.saw("peers", &format!("gw-2 answers at {there}")), "{:#}", told.said);

    let told = CheckOutput::of(&site.policy("gw-1").with("/peer", peer("nowhere.invalid:9910"))).await;
    assert!(told.message("FG0138").contains("`nowhere.invalid:9910`, which is not found"), "{:#}", told.said);
    let told = CheckOutput::of(&site.policy("gw-1").with("/peer", peer(&there))).await;
    assert!(
        told.message("FG0138").starts_with("`gw-2` tells the others the same address"),
        "{:#}",
        told.said
    );
}

#[tokio::test]
async fn certificates_that_other_gateways_would_not_believe_are_told() {
    let (site, home) = (TestSite::fresh().await, scratch::temp_dir());
    let (authority, stranger) = (TestCa::new(), TestCa::new());
    let ca_file = home.path().join("peers.pem");
    authority.write(&ca_file);
    let signed = authority.sign(&["127.0.0.1"]);
    let other = TlsTerminator::start(
        &signed,
        &ClientAuthMode::SignedBy(&authority),
        &["http/1.1"],
        site.origin.door("gw-2"),
    );
    let _gateway = Gateway::start(&site.policy("gw-1")).await;
    member(&site, "gw-2", &other.address.to_string()).await;
    let shows = |signed: &SignedCertificate| {
        let (certificate, key) = signed.write(home.path(), "peer");
        let tls = json!({"certificate_file": certificate, "key_file": key, "ca_file": ca_file});
        site.policy("gw-1").with("/peer", json!({"address": "127.0.0.1:9910", "tls": tls}))
    };
    let good = CheckOutput::of(&shows(&signed)).await;
    let codes = ["FG0502", "FG0515", "FG0550", "FG0551"];
    assert_eq!((good.exit, good.codes()), (Some(0), codes.into()), "{:#}", good.said);
    assert!(good.saw("peers", "gw-2 answers at") && good.saw("certificates", "peer.pem"), "{:#}", good.said);
    assert!(other.handshakes().iter().all(|seen| seen.client), "{:?}", other.handshakes());

    let misnamed = CheckOutput::of(&shows(&authority.sign(&["gw-1.internal"]))).await;
    assert_eq!(misnamed.exit, Some(78));
    assert!(misnamed.message("FG0510").contains("not valid for name"), "{:#}", misnamed.said);
    let foreign = CheckOutput::of(&shows(&stranger.sign(&["127.0.0.1"]))).await;
    assert!(foreign.message("FG0510").contains("invalid peer certificate"), "{:#}", foreign.said);
    assert!(foreign.message("FG0517").contains("gw-2"), "it is refused there: {:#}", foreign.said);

    let policy = shows(&signed);
    fs::write(home.path().join("peer.key"), "no key").expect("our folder");
    assert!(CheckOutput::of(&policy).await.message("FG0510").contains("peer.key"));
}

#[tokio::test]
async fn who_does_not_prove_its_name_is_told_from_who_does() {
    let (site, home) = (TestSite::fresh().await, scratch::temp_dir());
    let (authority, stranger) = (TestCa::new(), TestCa::new());
    authority.write(&home.path().join("ca.pem"));
    stranger.write(&home.path().join("other.pem"));
    let signed = authority.sign(&["127.0.0.1"]);
    let front =
        TlsTerminator::start(&signed, &ClientAuthMode::Anybody, &["http/1.1"], site.origin.door("gw-1"));
    let over = |file: &str| {
        let tls = json!({"ca_file": home.path().join(file)});
        let endpoints = json!([format!("https://{}", front.address)]);
        site.policy("gw-1").with("/upstreams/ledger/endpoints", endpoints).with("/upstreams/ledger/tls", tls)
    };
    let _gateway = Gateway::start(&over("ca.pem")).await;
    let told = CheckOutput::of(&over("ca.pem")).await;
    assert_eq!((told.exit, told.codes()), (Some(0), ["FG0502"].into()), "{:#}", told.said);
    assert!(told.saw("certificates", "is valid for"), "{:#}", told.said);
    let told = CheckOutput::of(&over("other.pem")).await;
    assert_eq!(told.exit, Some(78));
    assert!(told.message("FG0508").contains("invalid peer certificate"), "{:#}", told.said);
    let plain = site
        .policy("gw-1")
        .with("/upstreams/ledger/endpoints", json!([format!("https://{}", site.origin.door("gw-1"))]));
    let told =
        CheckOutput::of(&plain.with("/upstreams/ledger/tls", json!({"ca_file": home.path().join("ca.pem")})))
            .await;
    assert!(told.message("FG0508").starts_with("TLS with 127.0.0.1:"), "{:#}", told.said);
}

#[tokio::test]
async fn a_guard_is_told_from_what_is_none_and_from_a_foreign_one() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let policy = guarded.policy("gw-1", &[guard.public]);
    let told = CheckOutput::of(&policy).await;
    assert_eq!((told.exit, told.codes()), (Some(0), ["FG0502"].into()), "{:#}", told.said);
    assert!(told.saw("upstream ledger", "settles and executes within 15s"), "{:#}", told.said);

    let told = CheckOutput::of(&policy.clone().with("/upstreams/ledger/response_timeout", "15s")).await;
    assert_eq!((told.exit, told.codes()), (Some(78), ["FG0502", "FG0504"].into()), "{:#}", told.said);

    let told = CheckOutput::of(&guarded.policy("gw-1", &[guarded.site.origin.door("gw-1")])).await;
    assert_eq!((told.exit, told.codes()), (Some(78), ["FG0502", "FG0509"].into()), "{:#}", told.said);
    assert!(told.message("FG0509").contains("is no guard"), "{:#}", told.said);

    let foreign = guarded.launch_of("00000000-0000-4000-8000-000000000000").await.start().await;
    let told = CheckOutput::of(&guarded.policy("gw-1", &[guard.public, foreign.public])).await;
    assert_eq!((told.exit, told.codes()), (Some(78), ["FG0502", "FG0509"].into()), "{:#}", told.said);
    let all: Vec<&str> = told.diagnostics().filter_map(|one| one["message"].as_str()).collect();
    assert!(all.iter().any(|said| said.contains("of installation 00000000")), "{all:?}");
    assert!(all.iter().any(|said| said.contains("different stores")), "{all:?}");
}

#[tokio::test]
async fn the_file_of_a_guard_is_looked_at_as_well() {
    let (site, home) = (TestSite::fresh().await, scratch::temp_dir());
    let file = TestPolicy::for_guard(site.origin.door("guard"), &home.path().join("guard.redb"));
    let (keys, public) = (home.path().join("key.json"), home.path().join("keys.json"));
    let (keys, shown) = (keys.display().to_string(), public.display().to_string());
    assert!(command(&["keys", "new", &keys]).await.expect("started").status.success());
    fs::write(&public, command(&["keys", "public", &keys]).await.expect("started").stdout)
        .expect("our folder");
    let sound = file.clone().with("/tickets", json!({"public_keys_file": shown}));
    let told = CheckOutput::of(&sound).await;
    assert_eq!(
        (told.exit, told.codes(), &told.said["kind"]),
        (Some(0), [].into(), &json!("guard")),
        "{:#}",
        told.said
    );
    assert!(told.saw("tickets", "verified with") && told.saw("folders", "can be written"), "{:#}", told.said);
    assert!(told.saw("upstream", "without `health`"), "{:#}", told.said);
    assert!(!home.path().join("guard.redb").exists(), "looking makes no store");

    fs::set_permissions(&public, fs::Permissions::from_mode(0o666)).expect("our own file");
    let told = CheckOutput::of(
        &sound.with("/store/redb", "/nowhere/guard.redb").with("/upstream/endpoint", "http://127.0.0.1:1"),
    )
    .await;
    assert_eq!(
        (told.exit, told.codes()),
        (Some(78), ["FG0507", "FG0512", "FG0514"].into()),
        "{:#}",
        told.said
    );
}

#[tokio::test]
async fn a_file_that_is_wrong_in_itself_is_told_and_nobody_is_asked() {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), "version: 1\nlisteners: {public: {address: 127.0.0.1:0}}\n");
    let file = file.display().to_string();
    let output = command(&["check", "--online", "--format", "json", "-c", &file]).await.expect("started");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (output.status.code(), &said["online"], &said["file"]),
        (Some(78), &Value::Null, &json!(file))
    );
    let first = &said["diagnostics"][0];
    assert_eq!(
        (&first["code"], &first["severity"], &first["line"]),
        (&json!("FG0105"), &json!("error"), &json!(1))
    );
    fs::write(&file, b"\xff").expect("our folder");
    let output = command(&["check", "--format", "json", &file]).await.expect("started");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &said["diagnostics"][0]["code"]), (Some(78), &json!("FG0101")));
}
