//! Where `tls` is configured, a guard encrypts every connection to the database of its store and verifies the server. It
//! reports why it cannot connect otherwise.
//!
//! A guard shows its own certificate. It begins when its database becomes available.

use std::path::Path;

use fencegate_testkit::{postgres::PostgresServer, scratch, terminator::TestCa, wait::wait_until};
use fencegate_tests::{
    gateway::command,
    guard::{FLOOR, GuardFixture, GuardLaunch, StampedRequest},
    shared_database::SharedDatabase,
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

/// A server that accepts only clients with a certificate of this authority.
struct TlsPostgresServer {
    authority: TestCa,
    server: PostgresServer,
    home: tempfile::TempDir,
}

impl TlsPostgresServer {
    async fn fresh() -> Self {
        spawn_blocking(|| {
            let authority = TestCa::new();
            let server = PostgresServer::with_tls(&authority, &authority.sign(&["127.0.0.1"]));
            Self { authority, server, home: scratch::temp_dir() }
        })
        .await
        .expect("no panic")
    }

    /// `tls` of a guard that trusts this authority, and shows a certificate of the server's authority.
    fn tls_settings(&self, believed: &TestCa) -> Value {
        let file = |path: &Path| path.display().to_string();
        let ca = self.home.path().join("believed.pem");
        believed.write(&ca);
        let (chain, key) = self.authority.sign(&["guard"]).write(self.home.path(), "guard");
        json!({
            "ca_file": file(&ca),
            "client_certificate_file": file(&chain),
            "client_key_file": file(&key),
        })
    }
}

fn with_tls(launch: GuardLaunch, tls: Value) -> GuardLaunch {
    launch.with("/store/postgres/tls", tls)
}

async fn run_check_online(launch: &GuardLaunch) -> String {
    let file = launch.home().join("checked.yaml");
    std::fs::write(&file, launch.file().to_string()).expect("our own folder");
    let file = file.display().to_string();
    let output = command(&["check", &file, "--online"]).await.expect("started");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Every connection of a guard to its database is encrypted and shows the guard's certificate.
#[tokio::test]
async fn database_connections_are_mutually_authenticated() {
    let secured = TlsPostgresServer::fresh().await;
    let database = secured.server.fresh_database();
    let fixture = GuardFixture::new().await;
    let sharing = SharedDatabase::new(&database.url());
    let launch =
        with_tls(sharing.guard(fixture.uninitialized_launch()), secured.tls_settings(&secured.authority));
    let guard = launch.init_with_floor(FLOOR).await.start().await;
    guard.wait_ready().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 20).post("/pay")).await.status, 200);
    let how = database.run(
        "SELECT DISTINCT s.ssl, s.client_dn FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
         WHERE a.application_name LIKE 'fencegate %'",
    );
    assert!(how.starts_with("t|") && how.lines().count() == 1, "{how}");
    let found = run_check_online(guard.launch()).await;
    assert!(found.contains("has store"), "{found}");
}

/// A database that requires TLS, and one with the certificate of another authority, are reported as such.
#[tokio::test]
async fn tls_mismatch_is_reported() {
    let secured = TlsPostgresServer::fresh().await;
    let database = secured.server.fresh_database();
    let fixture = GuardFixture::new().await;
    let sharing = SharedDatabase::new(&database.url());
    let plain = sharing.guard(fixture.uninitialized_launch());
    let output = plain.clone().init(FLOOR).expect_start_failure().await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("FG0540") && stderr.contains("no encryption"), "{stderr}");

    let mistaken = with_tls(plain, secured.tls_settings(&TestCa::new()));
    let output = mistaken.clone().init(FLOOR).expect_start_failure().await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("FG0540") && stderr.contains("invalid peer certificate"), "{stderr}");
    let found = run_check_online(&mistaken).await;
    assert!(found.contains("FG0540") && found.contains("invalid peer certificate"), "{found}");
    assert_eq!(database.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'fencegate'"), "0");
}

/// A guard that starts before its database reports that, and begins when the database is there. After a power cut, when
/// both start together, the database is mostly ready later than the guard.
#[tokio::test]
async fn guard_waits_for_absent_database() {
    let fixture = GuardFixture::new().await;
    let mut server = spawn_blocking(|| PostgresServer::start(&[])).await.expect("no panic");
    let database = server.fresh_database();
    let sharing = SharedDatabase::new(&database.url());
    let launch = sharing.init_first(fixture.uninitialized_launch(), FLOOR).await;
    server.stop();
    let starting = tokio::spawn(async move { launch.with_debug_log().start().await });
    let relay = tokio::net::TcpListener::bind(server.address()).await.expect("the port is free");
    // The test listens on the port in place of the server, and sees that the guard connects.
    for _ in 0..2 {
        wait_until("a guard that asks for its database", relay.accept(), String::new)
            .await
            .expect("a connection");
    }
    assert!(!starting.is_finished(), "without a store it has nothing to serve with");
    drop(relay);
    let server = spawn_blocking(move || {
        server.restart();
        server
    });
    let _server = server.await.expect("no panic");
    let guard = starting.await.expect("no panic");
    guard.wait_ready().await;
    assert!(guard.log().contains("guard.database_away"), "{}", guard.log());
    assert_eq!(guard.send(&StampedRequest::new("a", 20).post("/pay")).await.status, 200);
}
