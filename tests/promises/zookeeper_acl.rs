//! With closed ACLs the nodes of the gateways are theirs alone: no stranger can read a lock, take it, or give it away.
//!
//! Nodes are closed by certificate or by digest. A process without access gets an error at once. An open installation
//! is closed while its gateways work, and the next era keeps it closed.

use std::{fs, path::PathBuf};

use fencegate_lock::client::ConnectOptions;
use fencegate_policies::plan::{AclMode, ClientCertificateFiles, ClientTls};
use fencegate_testkit::{scratch, wait::wait_until};
use fencegate_tests::{
    client::TestRequest,
    ensemble::over_tls::{TlsEnsemble, shared},
    gateway::{Gateway, GatewayLaunch, command, write_policy},
    policy::TestPolicy,
    site::TestSite,
    zookeeper::fresh_root,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Duration, sleep};
use zookeeper_client::{Acls, Client, CreateMode, Error, TlsOptions};

/// Connects with a certificate that the servers accept.
async fn connect_as(servers: &TlsEnsemble, name: &str) -> Client {
    let tls = servers.tls_for_client(name);
    let read = |field: &str| fs::read_to_string(tls[field].as_str().expect("a path")).expect("written");
    let options = TlsOptions::new().with_pem_ca(&read("ca_file")).expect("ours");
    let options = options.with_pem_identity(&read("client_certificate_file"), &read("client_key_file"));
    let connector = Client::connector().with_tls(options.expect("ours"));
    connector.secure_connect(&servers.addresses().join(",")).await.expect("it is let in")
}

/// Asserts that a stranger is refused everything at every node below a root.
async fn assert_everything_refused(stranger: &Client, root: &str, paths: &[String]) {
    let open = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    for path in [""].into_iter().chain(paths.iter().map(String::as_str)) {
        let path = format!("{root}{path}");
        assert_eq!(stranger.get_data(&path).await.err(), Some(Error::NoAuth), "read {path}");
        assert_eq!(stranger.list_children(&path).await.err(), Some(Error::NoAuth), "list {path}");
        assert_eq!(stranger.set_data(&path, b"", None).await.err(), Some(Error::NoAuth), "write {path}");
        let acl = stranger.set_acl(&path, &Acls::anyone_all(), None).await;
        assert_eq!(acl.err(), Some(Error::NoAuth), "open {path}");
        let below = stranger.create(&format!("{path}/n-"), b"", &open).await.err();
        assert!(matches!(below, Some(Error::NoAuth | Error::NoChildrenForEphemerals)), "{path}: {below:?}");
        if path != *root {
            assert_eq!(stranger.delete(&path, None).await.err(), Some(Error::NoAuth), "delete {path}");
        }
    }
}

async fn run(verbs: &[&str], policy: &TestPolicy) -> (bool, String) {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    let output = command(&[verbs, &["-c", &file]].concat()).await.expect("started");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// True if `acl show` succeeds, and its JSON output.
async fn run_acl_show_json(policy: &TestPolicy) -> (bool, Value) {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    let output = command(&["acl", "show", "-o", "json", "-c", &file]).await.expect("started");
    (output.status.success(), serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// True if the strict check finds nothing, and its output.
async fn run_strict_check(policy: &TestPolicy) -> (bool, Value) {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    let output =
        command(&["check", &file, "--online", "--strict", "--format", "json"]).await.expect("started");
    (output.status.success(), serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn codes(said: &Value) -> Vec<&str> {
    said["diagnostics"].as_array().expect("a list").iter().filter_map(|one| one["code"].as_str()).collect()
}

fn closed_acl_policy(site: &TestSite, servers: &TlsEnsemble, name: &str, identities: &[&str]) -> TestPolicy {
    let policy = site.policy(name).with("/zookeeper/tls", servers.tls_for_client(name));
    policy.with("/zookeeper/acl", "closed").with("/zookeeper/identities", json!(identities))
}

/// A stranger's certificate can neither read nor take a lock.
///
/// Two gateways have a certificate each, and both list both identities. Each holds a lock, one request waits, and
/// operations are recorded.
#[tokio::test]
async fn stranger_cannot_read_or_take_lock() {
    let site = TestSite::secured().await;
    let servers = shared();
    let both = ["x509:CN=acl-1", "x509:CN=acl-2"];
    let policies = ["acl-1", "acl-2"].map(|name| closed_acl_policy(&site, servers, name, &both));
    let (one, two) = Gateway::start_both(&policies[0], &policies[1]).await;
    let held = site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let waits = two.begin(TestRequest::post("/pay/7"));
    let tree = site.tree().await;
    tree.wait_waiters(1).await;

    let paths = tree.paths().await;
    for part in ["/meta", "/members", "/members/acl-1-", "/locks", "/locks/"] {
        assert!(paths.iter().any(|path| path.starts_with(part)), "{part}: {paths:?}");
    }
    let strangers = connect_as(servers, "stranger").await;
    assert_everything_refused(&strangers, &site.root, &paths).await;
    for path in &paths {
        let mut access = tree.access(path).await;
        // The ACL contains our own identity twice: as that of the session, and by its name.
        access.sort();
        access.dedup();
        assert_eq!(access, both, "{path}");
    }
    assert_eq!(held.finish().await.status, 200);
    assert_eq!(waits.answer().await.status, 200);

    let (green, said) = run_strict_check(&policies[0]).await;
    assert!(green, "{said:#}");
    let (shown, told) = run(&["acl", "show"], &policies[1]).await;
    assert!(shown && told.contains("nobody but x509:CN=acl-1, x509:CN=acl-2"), "{told}");
    let (shown, told) = run_acl_show_json(&policies[1]).await;
    assert!(shown && told["open"] == 0 && told["writers"] == json!(both), "{told:#}");
    one.wait_line("that nobody else may write", |line| line.message().contains("zookeeper.nodes_closed"))
        .await;
}

/// A program that is no gateway has locks over TLS that strangers can neither read nor take.
///
/// The program uses the lock crate directly.
#[tokio::test]
async fn library_program_has_closed_locks() {
    let site = TestSite::secured().await;
    let servers = shared();
    let files = servers.tls_for_client("program");
    let file = |field: &str| PathBuf::from(files[field].as_str().expect("a path"));
    let shown =
        ClientCertificateFiles { chain: file("client_certificate_file"), key: file("client_key_file") };
    let options = ConnectOptions {
        tls: Some(ClientTls { ca_file: Some(file("ca_file")), server_name: None, client: Some(shown) }),
        acl: AclMode::Closed,
        ..ConnectOptions::new(&servers.addresses().join(","), &site.root, "program").with_installation_init()
    };
    let program = fencegate_lock::client::LockClient::connect(options.clone()).await.expect("let in");
    let held = program.lock("invoice/42").await.expect("nobody else wants it");
    assert!(held.is_held());
    let tree = site.tree().await;
    let paths = tree.paths().await;
    assert_everything_refused(&connect_as(servers, "stranger").await, &site.root, &paths).await;
    held.release();
    program.close().await;

    let nobody = ConnectOptions { tls: None, ..options.clone() };
    let told = fencegate_lock::client::LockClient::start(&nobody).err().map(|error| error.to_string());
    assert!(told.is_some_and(|told| told.contains("who we are")), "it would be locked out");
    let missing = ClientTls { ca_file: Some("/nowhere.pem".into()), ..options.tls.clone().expect("set") };
    let told = fencegate_lock::client::LockClient::start(&ConnectOptions { tls: Some(missing), ..options });
    assert!(told.err().is_some_and(|error| error.to_string().contains("/nowhere.pem")));
}

/// A gateway with another identity is refused at once, without waiting.
///
/// It has a session but may read nothing, and reports this cause.
#[tokio::test]
async fn foreign_identity_fails_at_once() {
    let site = TestSite::secured().await;
    let servers = shared();
    let _ours = Gateway::start(&closed_acl_policy(&site, servers, "own-1", &[])).await;
    let other = closed_acl_policy(&site, servers, "own-2", &[]);
    let stranger = GatewayLaunch::new(&other).start().await;
    stranger.wait_line("the code", |line| line.text().contains("FG0524")).await;
    let told = async {
        while !String::from_utf8_lossy(&stranger.admin("/ready").await.body)
            .contains("ZooKeeper denied access")
        {
            sleep(Duration::from_millis(20)).await;
        }
    };
    wait_until("/ready to say why", told, || stranger.log()).await;
    let answer = stranger.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (503, "lock-service"));
    assert!(answer.took() < Duration::from_secs(2), "waited {:?}", answer.took());
    let (green, said) = run_strict_check(&other).await;
    assert!(!green && codes(&said).contains(&"FG0524"), "{said:#}");
    let (_, said) = run(&["era", "show"], &other).await;
    assert!(said.contains("closed to the identity that we show"), "{said}");
}

/// An open installation is closed while its gateways serve.
///
/// The ACLs change from open to closed at one gateway after the other, while requests run.
#[tokio::test]
async fn open_installation_closes_while_serving() {
    let site = TestSite::secured().await;
    let servers = shared();
    let open = |name: &str| site.policy(name).with("/zookeeper/tls", servers.tls_for_client("rolled"));
    let shut = |name: &str| open(name).with("/zookeeper/acl", "closed");
    let old = Gateway::start(&open("gw-1")).await;
    let new = Gateway::start(&shut("gw-2")).await;
    for gateway in [&old, &new, &old] {
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "a mixed fleet");
    }
    let line = new.wait_line("what is open", |line| line.text().contains("FG0522")).await;
    assert!(line.text().contains(&format!("{}/meta", site.root)), "{}", line.text());
    let (green, said) = run_strict_check(&shut("gw-3")).await;
    assert!(!green && codes(&said).contains(&"FG0522"), "{said:#}");
    let (shown, told) = run(&["acl", "show"], &shut("gw-3")).await;
    assert!(!shown && told.contains("world:anyone") && told.contains("acl set"), "{told}");
    let (shown, told) = run_acl_show_json(&shut("gw-3")).await;
    let open = told["open_nodes"][0].as_str().unwrap_or_default();
    assert!(!shown && told["open"].as_u64() > Some(0) && open.contains("world:anyone"), "{told:#}");

    old.stop().await;
    let old = Gateway::start(&shut("gw-1")).await;
    let held = site.origin.hold_request(&old, TestRequest::post("/pay/8")).await;
    // This gateway was not listed, so it cannot read the plans of the other gateways.
    let forgotten = site.policy("gw-4").with("/zookeeper/tls", servers.tls_for_client("forgotten"));
    let forgotten = GatewayLaunch::new(&forgotten).start().await;
    let (set, told) = run(&["acl", "set"], &shut("gw-3")).await;
    assert!(set, "{told}");
    forgotten.wait_line("why it is not let in", |line| line.text().contains("FG0524")).await;
    let refused = forgotten.send(&TestRequest::post("/pay/9")).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "lock-service"));
    forgotten.stop().await;
    let tree = site.tree().await;
    let strangers = connect_as(servers, "stranger").await;
    assert_everything_refused(&strangers, &site.root, &tree.paths().await).await;
    assert_eq!(held.finish().await.status, 200);
    for gateway in [&old, &new] {
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "closed");
    }
    let (green, said) = run_strict_check(&shut("gw-3")).await;
    assert!(green, "{said:#}");

    // A new era keeps the ACLs.
    let members = tree.access("/members").await;
    drop((old, new));
    tree.wait_locks("none", <[String]>::is_empty).await;
    let bumped = async { while !run(&["era", "bump"], &shut("gw-3")).await.0 {} };
    wait_until("the era to be bumped", bumped, || ()).await;
    assert_eq!(tree.access("/members").await, members);
    assert_eq!(members, ["x509:CN=rolled"]);
}

/// Without the secret of a digest no client can read or delete a lock node.
///
/// The ACL of a node is made of a name and a secret, and the server need not know either.
#[tokio::test]
async fn digest_secret_protects_lock_nodes() {
    // The root is not below a node that other tests share.
    let mut site = TestSite::fresh().await;
    site.root = fresh_root().replace("/t/", "/digest-");
    let home = scratch::temp_dir();
    let policy = with_password(&site, &home, "a secret");
    let gateway = Gateway::start(&policy).await;
    let held = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let server = site.zookeeper.to_string();
    let knows = |password: &str| {
        let shown = format!("fencegate:{password}");
        Client::connector().with_auth("digest", shown.as_bytes())
    };
    let ours = knows("a secret").connect(&server).await.expect("ZooKeeper serves");
    let paths = below(&ours, &site.root).await;
    assert!(paths.iter().any(|path| path.matches('/').count() == 4), "no lock node: {paths:?}");
    for stranger in [Client::connector(), knows("another")] {
        assert_everything_refused(&stranger.connect(&server).await.expect("serves"), &site.root, &paths)
            .await;
    }
    assert_eq!(held.finish().await.status, 200);

    // The check finds one thing: the password crosses the network as plain text.
    let (_, said) = run_strict_check(&policy).await;
    assert_eq!(codes(&said), ["FG0408"], "{said:#}");
    let (_, said) = run_strict_check(&with_password(&site, &home, "another")).await;
    assert!(codes(&said).contains(&"FG0524"), "{said:#}");
}

fn with_password(site: &TestSite, home: &TempDir, password: &str) -> TestPolicy {
    let file = home.path().join(password.replace(' ', "-"));
    fs::write(&file, format!("{password}\n")).expect("our own folder");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("our own");
    let digest = json!({"user": "fencegate", "password_file": file});
    let policy = site.policy("gw-1").with("/zookeeper/digest", digest);
    policy.with("/zookeeper/acl", "closed")
}

/// Every path below the root, without the root.
async fn below(client: &Client, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(path) = open.pop() {
        let Ok(children) = client.list_children(&format!("{root}{path}")).await else { continue };
        open.extend(children.into_iter().map(|child| format!("{path}/{child}")));
        found.extend((!path.is_empty()).then_some(path));
    }
    found
}
