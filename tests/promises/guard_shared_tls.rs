//! A guard speaks TLS with the database of its store where it is told to, checks whom it speaks to, and says what is wrong
//! otherwise.

use std::path::Path;

use fencegate_tests::{
    gateway::command,
    guard::{FLOOR, GuardFixture, GuardLaunch, StampedRequest},
    postgres::PostgresServer,
    scratch,
    shared_database::SharedDatabase,
    terminator::TestCa,
    wait::wait_until,
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

/// A server that accepts only clients with a certificate of this authority.
struct TlsServer {
    authority: TestCa,
    server: PostgresServer,
    home: tempfile::TempDir,
}

impl TlsServer {
    async fn fresh() -> Self {
        spawn_blocking(|| {
            let authority = TestCa::new();
            let server = PostgresServer::with_tls(&authority, &authority.sign(&["127.0.0.1"]));
            Self { authority, server, home: scratch::temp_dir() }
        })
        .await
        .expect("no panic")
    }

    /// `tls` of a guard that believes this authority, and shows a certificate of the server's.
    fn tls(&self, believed: &TestCa) -> Value {
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

async fn checked(launch: &GuardLaunch) -> String {
    let file = launch.home().join("checked.yaml");
    std::fs::write(&file, launch.file().to_string()).expect("our own folder");
    let file = file.display().to_string();
    let output = command(&["check", &file, "--online"]).await.expect("started");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test]
async fn every_connection_of_a_guard_is_encrypted_and_shows_who_it_is() {
    let secured = TlsServer::fresh().await;
    let database = secured.server.fresh_database();
    let (beside, sharing) = (GuardFixture::new().await, SharedDatabase::new(&database.url()));
    let launch = with_tls(sharing.guard(beside.uninitialized_launch()), secured.tls(&secured.authority));
    let guard = launch.init_with_floor(FLOOR).await.start().await;
    guard.wait_ready().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 20).post("/pay")).await.status, 200);
    let how = database.run(
        "SELECT DISTINCT s.ssl, s.client_dn FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
         WHERE a.application_name LIKE 'fencegate %'",
    );
    assert!(how.starts_with("t|") && how.lines().count() == 1, "{how}");
    let found = checked(guard.launch()).await;
    assert!(found.contains("has store"), "{found}");
}

#[tokio::test]
async fn a_database_that_wants_tls_and_one_that_shows_a_strangers_certificate_are_told() {
    let secured = TlsServer::fresh().await;
    let database = secured.server.fresh_database();
    let (beside, sharing) = (GuardFixture::new().await, SharedDatabase::new(&database.url()));
    let plain = sharing.guard(beside.uninitialized_launch());
    let said = plain.clone().init(FLOOR).expect_start_failure().await;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("FG0540") && said.contains("no encryption"), "{said}");

    let mistaken = with_tls(plain, secured.tls(&TestCa::new()));
    let said = mistaken.clone().init(FLOOR).expect_start_failure().await;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("FG0540") && said.contains("invalid peer certificate"), "{said}");
    let found = checked(&mistaken).await;
    assert!(found.contains("FG0540") && found.contains("invalid peer certificate"), "{found}");
    assert_eq!(database.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'fencegate'"), "0");
}

/// After a power cut, when both start together, the database is mostly ready later than the guard.
#[tokio::test]
async fn a_guard_that_starts_before_its_database_says_so_and_begins_when_it_comes() {
    let beside = GuardFixture::new().await;
    let mut server = spawn_blocking(|| PostgresServer::start(&[])).await.expect("no panic");
    let database = server.fresh_database();
    let sharing = SharedDatabase::new(&database.url());
    let launch = sharing.first(beside.uninitialized_launch(), FLOOR).await;
    server.stop();
    let starting = tokio::spawn(async move { launch.with_debug_log().start().await });
    let relay = tokio::net::TcpListener::bind(server.address()).await.expect("the port is free");
    // The test listens on the port in place of the server, and sees that the guard asks.
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
