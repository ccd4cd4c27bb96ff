//! `check --online` finds what a gateway or guard would meet at its start, reports all of it in one run of bounded time,
//! and leaves nothing behind.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    process::Output,
    time::{Duration, Instant},
};

use fencegate_testkit::{
    scratch,
    terminator::{ClientCertificatePolicy, SignedCertificate, TestCa, TlsTerminator},
};
use fencegate_tests::{
    gateway::{Gateway, PolicyFile, command, command_with_clock, write_policy},
    guarded::GuardedSite,
    peers::ProxyProcess,
    policy::TestPolicy,
    site::TestSite,
    stepped_clock::SteppedClock,
    zookeeper::OwnZooKeeper,
};
use serde_json::{Value, json};

async fn run_check(policy: &TestPolicy, options: &[&str]) -> Output {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    command(&[&["check", &file, "--online"][..], options].concat()).await.expect("started")
}

/// The exit code and the JSON output of the check.
struct CheckOutput {
    exit: Option<i32>,
    said: Value,
}

impl CheckOutput {
    async fn for_policy(policy: &TestPolicy) -> Self {
        let output = run_check(policy, &["--format", "json"]).await;
        let said = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        Self { exit: output.status.code(), said }
    }

    fn diagnostics(&self) -> impl Iterator<Item = &Value> {
        self.said["diagnostics"].as_array().expect("a list").iter()
    }

    /// Runs the check with `clock` as the clock of its machine.
    async fn with_clock(policy: &TestPolicy, clock: &SteppedClock) -> Self {
        let file = PolicyFile::new(policy);
        let output = command_with_clock(clock, &["check", &file, "--online", "--format", "json"]).await;
        let output = output.expect("started");
        let said = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        Self { exit: output.status.code(), said }
    }

    /// The codes of all diagnostics, except FG0529, which depends on how full the disk of this machine is.
    fn codes(&self) -> BTreeSet<&str> {
        self.diagnostics().filter_map(|one| one["code"].as_str()).filter(|code| *code != "FG0529").collect()
    }

    fn message(&self, code: &str) -> &str {
        let found = self.diagnostics().find(|one| one["code"] == code);
        found.and_then(|one| one["message"].as_str()).unwrap_or_else(|| panic!("no {code}: {:#}", self.said))
    }

    fn reports_fact(&self, about: &str, part: &str) -> bool {
        let facts = self.said["online"].as_array().expect("somebody went");
        facts.iter().any(|fact| {
            fact["about"] == about && fact["says"].as_str().is_some_and(|says| says.contains(part))
        })
    }
}

/// The check reports servers that grant different session timeouts, because a session can move between them.
#[tokio::test]
async fn reports_servers_with_different_session_timeouts() {
    let site = TestSite::fresh().await;
    let other = OwnZooKeeper::start().with_max_session(Duration::from_secs(1)).await;
    let servers = [site.zookeeper, other.server.address()].map(|server| server.to_string());
    let report =
        CheckOutput::for_policy(&site.policy("gw-1").with("/zookeeper/servers", json!(servers))).await;
    let message = report.message("FG0520");
    assert!(message.contains(&format!("{} 2s", servers[0])), "{message}");
    assert!(message.contains(&format!("{} 1s", servers[1])), "{message}");
    let alike = CheckOutput::for_policy(
        &site.policy("gw-1").with("/zookeeper/servers", json!([servers[0], servers[0]])),
    )
    .await;
    assert!(!alike.codes().contains("FG0520"), "{:#}", alike.said);
    assert!(alike.reports_fact("zookeeper", "2 of 2 servers give a session"), "{:#}", alike.said);
}

/// The check reports a proxy before a service at level `none`, because the proxy must not repeat requests and the
/// operator may not know of it.
#[tokio::test]
async fn reports_intermediary_before_service() {
    let site = TestSite::fresh().await;
    let service = site.origin.open_listener("service");
    let proxy = ProxyProcess::nginx(service);
    for (fencing, endpoint, expected) in
        [("none", proxy.address, true), ("none", service, false), ("upstream", proxy.address, false)]
    {
        let policy = site.policy("gw-1").with("/upstreams/ledger/fencing", fencing);
        let seen = CheckOutput::for_policy(
            &policy.with("/upstreams/ledger/endpoints", json!([format!("http://{endpoint}")])),
        )
        .await;
        let saw = seen.reports_fact("upstream ledger", "an intermediary answers at");
        assert_eq!(saw, expected, "{fencing} at {endpoint}: {:#}", seen.said);
        assert!(!saw || seen.reports_fact("upstream ledger", "server: nginx"), "{:#}", seen.said);
    }
}

/// A sound installation passes with its facts shown, and the check changes no node in ZooKeeper.
#[tokio::test]
async fn sound_installation_passes_unchanged() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let _gateway = Gateway::start(&policy).await;
    let tree = site.tree().await;
    let before = tree.paths().await;
    let report = CheckOutput::for_policy(&policy).await;
    // The ZooKeeper of the tests has open ACLs, and the check warns about that.
    assert_eq!((report.exit, report.codes()), (Some(0), ["FG0502"].into()), "{:#}", report.said);
    assert_eq!((&report.said["good"], &report.said["warnings"]), (&json!(true), &json!(1)));
    assert!(report.reports_fact("zookeeper", "a session of 2s for the 2s asked for"), "{:#}", report.said);
    // An operator with a firewall in front of ZooKeeper sets `acl: open`, and the warning ends.
    let meant = policy.clone().with("/zookeeper/acl", "open");
    assert_eq!(run_check(&meant, &["--strict"]).await.status.code(), Some(0));
    let meant_report = CheckOutput::for_policy(&meant).await;
    assert!(
        meant_report.codes().is_empty() && meant_report.reports_fact("root", "everybody may write"),
        "{:#}",
        meant_report.said
    );
    assert!(
        report.reports_fact("root", "world:anyone (cdwa)") && report.reports_fact("root", "era 0"),
        "{:#}",
        report.said
    );
    assert!(report.reports_fact("members", "1 gateways, 0 of them"), "{:#}", report.said);
    assert!(report.reports_fact("upstream ledger", "answers at 127.0.0.1:"), "{:#}", report.said);
    assert_eq!(tree.paths().await, before);
    let output = run_check(&policy, &[]).await;
    let shown = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains("zookeeper  ") && shown.ends_with("policy.yaml: good\n"), "{shown}");
    assert!(stderr.contains("warning[FG0502]: ") && stderr.contains("policy.yaml:"), "{stderr}");
    let strict = run_check(&policy, &["--strict"]).await;
    assert_eq!(strict.status.code(), Some(78), "{strict:?}");
}

/// One run of at most 30 s reports every unreachable server, endpoint and file, each with its place and a remedy.
#[tokio::test]
async fn reports_everything_unreachable_in_one_run() {
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
    let report = CheckOutput::for_policy(&policy).await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(report.exit, Some(78));
    assert_eq!(
        report.codes(),
        ["FG0505", "FG0507", "FG0510", "FG0512", "FG0514"].into(),
        "{:#}",
        report.said
    );
    let count = |code| report.diagnostics().filter(|one| one["code"] == code).count();
    assert_eq!((count("FG0507"), count("FG0512")), (2, 4), "{:#}", report.said);
    for one in report.diagnostics() {
        let placed = one["line"].as_u64().is_some_and(|line| line > 1);
        assert!(placed && one["remedy"].is_string() && one["width"].is_u64(), "{one:#}");
    }
}

/// An unreachable endpoint is only a warning when another endpoint of the upstream answers.
#[tokio::test]
async fn one_unreachable_endpoint_only_warns() {
    let site = TestSite::fresh().await;
    let endpoints = json!([format!("http://{}", site.origin.open_listener("gw-1")), "http://127.0.0.1:1"]);
    let policy = site.policy("gw-1").with("/upstreams/ledger/endpoints", endpoints);
    let _gateway = Gateway::start(&policy).await;
    let report = CheckOutput::for_policy(&policy).await;
    assert_eq!((report.exit, report.codes()), (Some(0), ["FG0502", "FG0507"].into()), "{:#}", report.said);
    assert!(report.message("FG0507").contains("127.0.0.1:1"), "{:#}", report.said);
}

/// The check reports a granted session timeout below the requested one, and a root that is missing in ZooKeeper.
#[tokio::test]
async fn reports_granted_session_and_missing_root() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/zookeeper/session_timeout", "2m").with("/zookeeper/tick", "6s");
    let report = CheckOutput::for_policy(&policy).await;
    assert_eq!((report.exit, report.codes()), (Some(78), ["FG0501", "FG0506"].into()), "{:#}", report.said);
    assert_eq!(report.message("FG0501"), "ZooKeeper grants a session of 1m, not the 2m asked for");
    assert!(report.message("FG0506").contains(&site.root), "{:#}", report.said);
}

/// The check names registered gateways that would lock other keys, and the routes that would be refused.
#[tokio::test]
async fn names_gateways_with_incompatible_keys() {
    let site = TestSite::fresh().await;
    let _gateway = Gateway::start(&site.policy("gw-1")).await;
    let report =
        CheckOutput::for_policy(&site.policy("gw-2").with("/routes/0/fence/key", "other/{path.account}"))
            .await;
    let codes = ["FG0502", "FG0515", "FG0550"];
    assert_eq!((report.exit, report.codes()), (Some(0), codes.into()), "{:#}", report.said);
    assert!(report.message("FG0515").starts_with("gw-1 would lock other keys"), "{:#}", report.said);
    assert!(report.message("FG0550").starts_with("pay would be refused"), "{:#}", report.said);
}

/// Registers a gateway that advertises this address.
async fn register_member(site: &TestSite, name: &str, address: &str) {
    let data = json!({
        "format": 1, "version": "0", "plan": "0",
        "peer": {"address": address, "pass": "0123456789abcdef".repeat(4)},
    });
    site.tree().await.create(&format!("/members/{name}-{:016x}", 7), data.to_string().as_bytes()).await;
}

/// With `peer` the check names peers that do not answer at their advertised address, and wrong advertised addresses.
#[tokio::test]
async fn names_gateways_with_wrong_addresses() {
    let site = TestSite::fresh().await;
    let _gateway = Gateway::start(&site.policy("gw-1")).await;
    let there = site.origin.open_listener("gw-2").to_string();
    for (name, address) in [("gw-1", "127.0.0.1:1"), ("gw-2", &there), ("gw-3", "127.0.0.1:1")] {
        register_member(&site, name, address).await;
    }
    let alone = CheckOutput::for_policy(&site.policy("gw-1")).await;
    assert!(
        !alone.codes().contains("FG0517"),
        "who sends nothing on needs to reach nobody: {:#}",
        alone.said
    );

    let peer = |advertise: &str| json!({"address": "127.0.0.1:9910", "advertise": advertise});
    let report = CheckOutput::for_policy(&site.policy("gw-1").with("/peer", peer("127.0.0.1:9910"))).await;
    assert_eq!(report.exit, Some(0), "{:#}", report.said);
    let message = report.message("FG0517");
    assert!(message.starts_with("the gateway `gw-3` cannot be reached at `127.0.0.1:1`: "), "{message}");
    let unreached = report.diagnostics().filter(|one| one["code"] == "FG0517");
    assert_eq!(unreached.count(), 1, "itself is not one of the others: {:#}", report.said);
    assert!(report.reports_fact("peers", &format!("gw-2 answers at {there}")), "{:#}", report.said);

    let report =
        CheckOutput::for_policy(&site.policy("gw-1").with("/peer", peer("nowhere.invalid:9910"))).await;
    assert!(
        report.message("FG0138").contains("`nowhere.invalid:9910`, which is not found"),
        "{:#}",
        report.said
    );
    let report = CheckOutput::for_policy(&site.policy("gw-1").with("/peer", peer(&there))).await;
    assert!(
        report.message("FG0138").starts_with("`gw-2` tells the others the same address"),
        "{:#}",
        report.said
    );
}

/// The check reports a peer certificate with a wrong name, an unknown authority or an unusable key.
#[tokio::test]
async fn reports_certificates_that_peers_reject() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let authority = TestCa::new();
    let other_authority = TestCa::new();
    let ca_file = home.path().join("peers.pem");
    authority.write(&ca_file);
    let signed = authority.sign(&["127.0.0.1"]);
    let other = TlsTerminator::start(
        &signed,
        &ClientCertificatePolicy::SignedBy(&authority),
        &["http/1.1"],
        site.origin.open_listener("gw-2"),
    );
    let _gateway = Gateway::start(&site.policy("gw-1")).await;
    register_member(&site, "gw-2", &other.address.to_string()).await;
    let shows = |signed: &SignedCertificate| {
        let (certificate, key) = signed.write(home.path(), "peer");
        let tls = json!({"certificate_file": certificate, "key_file": key, "ca_file": ca_file});
        site.policy("gw-1").with("/peer", json!({"address": "127.0.0.1:9910", "tls": tls}))
    };
    let good = CheckOutput::for_policy(&shows(&signed)).await;
    let codes = ["FG0502", "FG0515", "FG0550", "FG0551"];
    assert_eq!((good.exit, good.codes()), (Some(0), codes.into()), "{:#}", good.said);
    assert!(
        good.reports_fact("peers", "gw-2 answers at") && good.reports_fact("certificates", "peer.pem"),
        "{:#}",
        good.said
    );
    assert!(other.handshakes().iter().all(|seen| seen.client), "{:?}", other.handshakes());

    let misnamed = CheckOutput::for_policy(&shows(&authority.sign(&["gw-1.internal"]))).await;
    assert_eq!(misnamed.exit, Some(78));
    assert!(misnamed.message("FG0510").contains("not valid for name"), "{:#}", misnamed.said);
    let foreign = CheckOutput::for_policy(&shows(&other_authority.sign(&["127.0.0.1"]))).await;
    assert!(foreign.message("FG0510").contains("invalid peer certificate"), "{:#}", foreign.said);
    assert!(foreign.message("FG0517").contains("gw-2"), "it is refused there: {:#}", foreign.said);

    let policy = shows(&signed);
    fs::write(home.path().join("peer.key"), "no key").expect("our folder");
    assert!(CheckOutput::for_policy(&policy).await.message("FG0510").contains("peer.key"));
}

/// The check reports an upstream whose certificate does not verify, and an upstream that does not speak TLS.
#[tokio::test]
async fn reports_unverified_upstream_certificates() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let authority = TestCa::new();
    let other_authority = TestCa::new();
    authority.write(&home.path().join("ca.pem"));
    other_authority.write(&home.path().join("other.pem"));
    let signed = authority.sign(&["127.0.0.1"]);
    let terminator = TlsTerminator::start(
        &signed,
        &ClientCertificatePolicy::Anybody,
        &["http/1.1"],
        site.origin.open_listener("gw-1"),
    );
    let over = |file: &str| {
        let tls = json!({"ca_file": home.path().join(file)});
        let endpoints = json!([format!("https://{}", terminator.address)]);
        site.policy("gw-1").with("/upstreams/ledger/endpoints", endpoints).with("/upstreams/ledger/tls", tls)
    };
    let _gateway = Gateway::start(&over("ca.pem")).await;
    let report = CheckOutput::for_policy(&over("ca.pem")).await;
    assert_eq!((report.exit, report.codes()), (Some(0), ["FG0502"].into()), "{:#}", report.said);
    assert!(report.reports_fact("certificates", "is valid for"), "{:#}", report.said);
    let report = CheckOutput::for_policy(&over("other.pem")).await;
    assert_eq!(report.exit, Some(78));
    assert!(report.message("FG0508").contains("invalid peer certificate"), "{:#}", report.said);
    let plain = site.policy("gw-1").with(
        "/upstreams/ledger/endpoints",
        json!([format!("https://{}", site.origin.open_listener("gw-1"))]),
    );
    let report = CheckOutput::for_policy(
        &plain.with("/upstreams/ledger/tls", json!({"ca_file": home.path().join("ca.pem")})),
    )
    .await;
    assert!(report.message("FG0508").starts_with("TLS with 127.0.0.1:"), "{:#}", report.said);
}

/// The check reports an endpoint that is no guard, a guard of another installation, and a too short
/// `response_timeout`.
#[tokio::test]
async fn reports_missing_and_foreign_guards() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let policy = guarded.policy("gw-1", &[guard.public]);
    let report = CheckOutput::for_policy(&policy).await;
    assert_eq!((report.exit, report.codes()), (Some(0), ["FG0502"].into()), "{:#}", report.said);
    assert!(report.reports_fact("upstream ledger", "settles and executes within 15s"), "{:#}", report.said);

    let report =
        CheckOutput::for_policy(&policy.clone().with("/upstreams/ledger/response_timeout", "15s")).await;
    assert_eq!((report.exit, report.codes()), (Some(78), ["FG0502", "FG0504"].into()), "{:#}", report.said);

    let report =
        CheckOutput::for_policy(&guarded.policy("gw-1", &[guarded.site.origin.open_listener("gw-1")])).await;
    assert_eq!((report.exit, report.codes()), (Some(78), ["FG0502", "FG0509"].into()), "{:#}", report.said);
    assert!(report.message("FG0509").contains("is no guard"), "{:#}", report.said);

    let foreign = guarded.launch_of("00000000-0000-4000-8000-000000000000").await.start().await;
    let report = CheckOutput::for_policy(&guarded.policy("gw-1", &[guard.public, foreign.public])).await;
    assert_eq!((report.exit, report.codes()), (Some(78), ["FG0502", "FG0509"].into()), "{:#}", report.said);
    let all: Vec<&str> = report.diagnostics().filter_map(|one| one["message"].as_str()).collect();
    assert!(all.iter().any(|message| message.contains("of installation 00000000")), "{all:?}");
    assert!(all.iter().any(|message| message.contains("different stores")), "{all:?}");
}

/// The check reports a guard whose clock differs: it would refuse every request.
#[tokio::test]
async fn reports_guard_with_other_clock() {
    let guarded = GuardedSite::fresh().await;
    let clock = SteppedClock::start();
    clock.set_wall(-600);
    let guard = guarded.launch().await.with_clock(&clock).start().await;
    let policy = guarded.policy("gw-1", &[guard.public]);
    // The clock only moves forward here: an answer's `Date` does not follow a clock that is set back.
    for (seconds, side) in
        [(-600, Some("behind")), (0, None), (10, Some("ahead of")), (600, Some("ahead of"))]
    {
        clock.set_wall(seconds);
        let report = CheckOutput::for_policy(&policy).await;
        match side {
            Some(side) => assert!(report.message("FG0554").contains(side), "{seconds}: {:#}", report.said),
            None => assert!(!report.codes().contains("FG0554"), "{seconds}: {:#}", report.said),
        }
    }
}

/// The check compares ZooKeeper's clock with that of its machine, and leaves no node behind.
#[tokio::test]
async fn reports_zookeeper_with_other_clock() {
    let site = TestSite::fresh().await;
    // The installation has to exist, and no gateway may run while the nodes are compared.
    site.gateway("gw-1").await.stop().await;
    let tree = site.tree().await;
    let before = tree.paths().await;
    let policy = site.policy("gw-1");
    let clock = SteppedClock::start();
    for (seconds, side) in
        [(0, None), (1, None), (-10, Some("ahead of")), (600, Some("behind")), (-86_400, Some("ahead of"))]
    {
        clock.set_wall(seconds);
        let report = CheckOutput::with_clock(&policy, &clock).await;
        match side {
            Some(side) => {
                let message = report.message("FG0554");
                assert!(
                    message.contains("of ZooKeeper is") && message.contains(side),
                    "{seconds}: {message}"
                );
            }
            None => {
                assert!(!report.codes().contains("FG0554"), "{seconds}: {:#}", report.said);
                assert!(report.reports_fact("zookeeper", "agree to 2s"), "{seconds}: {:#}", report.said);
            }
        }
        assert_eq!(tree.paths().await, before, "{seconds}");
    }
}

/// The check takes the file of a guard, reports its unreachable endpoint and unusable files, and creates no store.
#[tokio::test]
async fn guard_files_are_checked() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let file = TestPolicy::for_guard(site.origin.open_listener("guard"), &home.path().join("guard.redb"));
    let public = home.path().join("keys.json");
    let keys = home.path().join("key.json");
    let keys = keys.display().to_string();
    let shown = public.display().to_string();
    assert!(command(&["keys", "new", &keys]).await.expect("started").status.success());
    fs::write(&public, command(&["keys", "public", &keys]).await.expect("started").stdout)
        .expect("our folder");
    let sound = file.clone().with("/tickets", json!({"public_keys_file": shown}));
    let report = CheckOutput::for_policy(&sound).await;
    assert_eq!(
        (report.exit, report.codes(), &report.said["kind"]),
        (Some(0), [].into(), &json!("guard")),
        "{:#}",
        report.said
    );
    assert!(
        report.reports_fact("tickets", "verified with") && report.reports_fact("folders", "can be written"),
        "{:#}",
        report.said
    );
    assert!(report.reports_fact("upstream", "without `health`"), "{:#}", report.said);
    assert!(!home.path().join("guard.redb").exists(), "looking makes no store");

    fs::set_permissions(&public, fs::Permissions::from_mode(0o666)).expect("our own file");
    let report = CheckOutput::for_policy(
        &sound.with("/store/redb", "/nowhere/guard.redb").with("/upstream/endpoint", "http://127.0.0.1:1"),
    )
    .await;
    assert_eq!(
        (report.exit, report.codes()),
        (Some(78), ["FG0507", "FG0512", "FG0514"].into()),
        "{:#}",
        report.said
    );
}

/// An invalid policy file is reported by its own diagnostics, and nothing is queried over the network.
#[tokio::test]
async fn invalid_file_is_not_checked_online() {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), "version: 1\nlisteners: {public: {address: 127.0.0.1:0}}\n");
    let file = file.display().to_string();
    let output = command(&["check", "--online", "--format", "json", "-c", &file]).await.expect("started");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (output.status.code(), &document["online"], &document["file"]),
        (Some(78), &Value::Null, &json!(file))
    );
    let first = &document["diagnostics"][0];
    assert_eq!(
        (&first["code"], &first["severity"], &first["line"]),
        (&json!("FG0105"), &json!("error"), &json!(1))
    );
    fs::write(&file, b"\xff").expect("our folder");
    let output = command(&["check", "--format", "json", &file]).await.expect("started");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &document["diagnostics"][0]["code"]), (Some(78), &json!("FG0101")));
}
