//! Whatever happens to the database, to the connections, or to one of the guards, a dispatch that was admitted closes its
//! keys until it is over, and no dispatch is admitted twice.
//!
//! A query or an answer is lost. A guard is killed or stopped. The database is killed, frozen, restored from a
//! snapshot, or failed over. If a failover has lost the end of a dispatch, its keys stay closed for a bounded time. A
//! statement that takes too long gets smaller. The longest `max_execution` of all guards counts. A doubt whose
//! endpoint was not seen to run lasts longer than the time in the store, while its guard lives. A database that may
//! lose acknowledged writes is refused.

mod answers;
mod at_once;
mod deaths;
mod operations;
mod passed;
mod remembered;
mod servers;
mod steps;
mod terms;
mod too_much;
mod unseen;

use std::{sync::Arc, time::Duration};

use fencegate_guard_postgres::postgres::{
    FORMAT, GuardMembershipLostError as Gone, PostgresAdmissionOutcome, PostgresConfig, PostgresError,
    PostgresStore, SCHEMA, UnusableDatabaseError,
};
use fencegate_guard_store::{
    admission::{DispatchEnd, PresentedDispatch},
    error::DispatchRefusedError,
    store::StoreIdentity,
};
use fencegate_process::clock::{MachineClock, ManualClock, SharedClock};
use fencegate_testkit::{
    postgres::{self, PostgresServer},
    terminator::TestCa,
};
use fencegate_tests::shared_store::SharedStore;
use tokio::task::spawn_blocking;

/// A database that cannot be a store is refused, with what to do.
#[tokio::test]
async fn unusable_store_is_refused_with_remedy() {
    let clock: SharedClock = Arc::new(MachineClock);
    let store = SharedStore::new().await;
    let refusal =
        |refused: Result<PostgresStore, UnusableDatabaseError>| refused.err().expect("refused").to_string();
    let exists = PostgresStore::init(
        &store.place,
        &StoreIdentity { format: 1, store: "s".into(), ensemble: "e".into() },
        0,
    )
    .await
    .expect_err("there is one")
    .to_string();
    assert!(exists.contains("has a store of a guard already"), "{exists}");
    let elsewhere = PostgresConfig::parse(&store.database.url(), None, "elsewhere").expect("a URL");
    let missing =
        refusal(SharedStore { place: elsewhere, ..store.clone() }.try_guard(clock.clone(), "m").await);
    assert!(missing.contains("guard --init --floor"), "{missing}");
    let guard = store.guard(clock.clone(), "one").await;
    store.run("UPDATE store SET format = 99");
    assert_eq!(
        guard.send_heartbeat().await,
        Err(PostgresError::Lost(Gone::Newer(99))),
        "another build has migrated it"
    );
    let newer = refusal(store.try_guard(clock.clone(), "two").await);
    assert!(newer.contains("is of format 99"), "{newer}");
    store.run(&format!("UPDATE store SET format = {FORMAT}"));
    let name = &store.database.name;
    store.run(&format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    let off = refusal(store.try_guard(clock.clone(), "three").await);
    assert!(off.contains("`synchronous_commit` is `off`"), "{off}");
    let server = spawn_blocking(|| PostgresServer::start(&["fsync=off"])).await.expect("no panic");
    let place = PostgresConfig::parse(&server.database("postgres").url(), None, SCHEMA).expect("a URL");
    let off = refusal(SharedStore { place, ..store }.try_guard(clock, "four").await);
    assert!(off.contains("`fsync` is `off`"), "{off}");
}

/// A store of the first format is migrated, and keeps its watermarks.
#[tokio::test]
async fn first_format_store_is_migrated() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(1));
    let old = steps::open_guard(&store, &clock, "old").await;
    let was = steps::claim("a", 50, 1);
    let running = steps::admit_running(&old, &was).await;
    old.end_dispatch(&running, DispatchEnd::Known);
    steps::wait_processed(&old).await;
    drop(old);
    for step in [
        "DROP VIEW open_calls",
        "DROP FUNCTION callers(item)",
        "ALTER TABLE at_work DROP COLUMN parent",
        "ALTER TYPE item DROP ATTRIBUTE parent",
        "DROP FUNCTION longest_execution()",
        "DROP FUNCTION disown(integer, integer, bigint, text[])",
        "DROP FUNCTION remembers(integer, bigint, bigint)",
        "DROP FUNCTION lock_rights(integer, item[])",
        "ALTER TABLE instance DROP COLUMN heard",
        "UPDATE store SET format = 1",
    ] {
        store.run(step);
    }
    let guard = store.guard(clock, "new").await;
    assert!(matches!(
        steps::admit(&guard, &was).await,
        PostgresAdmissionOutcome::Rejected(DispatchRefusedError::Duplicate { .. })
    ));
    let outer = steps::claim("a", 50, 2);
    let called =
        |dispatch| PresentedDispatch { parent: Some(outer.token), ..steps::claim("a", 50, dispatch) };
    let running = steps::admit_running(&guard, &outer).await;
    let inside = steps::admit_running(&guard, &called(3)).await;
    assert!(
        matches!(steps::admit(&guard, &called(4)).await, PostgresAdmissionOutcome::Wait { .. }),
        "one after the other"
    );
    guard.end_dispatch(&running, DispatchEnd::Known);
    assert!(
        matches!(
            steps::admit(&guard, &steps::claim("a", 50, 5)).await,
            PostgresAdmissionOutcome::Wait { .. }
        ),
        "it still runs"
    );
    guard.end_dispatch(&inside, DispatchEnd::Known);
    steps::admit_running(&guard, &steps::claim("a", 50, 6)).await;
}

/// Where TLS is configured, every connection is encrypted, and a server with a certificate of another authority is
/// refused.
#[tokio::test]
async fn tls_connection_verifies_server() {
    let authority = TestCa::new();
    let stranger = TestCa::new();
    let folder = tempfile::TempDir::with_prefix("fencegate-tests-").expect("a folder");
    let (certificate, key) = authority.sign(&["127.0.0.1"]).write(folder.path(), "server");
    // PostgreSQL accepts a key file only if the user of the server owns the file.
    [folder.path(), &certificate, &key].into_iter().for_each(postgres::chown_to_nobody);
    let settings = [
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", certificate.display()),
        format!("ssl_key_file={}", key.display()),
    ];
    let server = spawn_blocking(move || PostgresServer::start(&settings.each_ref().map(String::as_str)));
    let server = server.await.expect("no panic");
    let store = SharedStore::in_database(server.database("postgres")).await;
    let clock: SharedClock = Arc::new(MachineClock);
    let with = |authority: &TestCa| {
        let provider = rustls::crypto::aws_lc_rs::default_provider().into();
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_root_certificates(authority.roots())
            .with_no_client_auth();
        let place = PostgresConfig::parse(&store.database.url(), Some(Arc::new(tls)), SCHEMA).expect("a URL");
        SharedStore { place, ..store.clone() }
    };
    let guard = with(&authority).guard(clock.clone(), "one").await;
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name LIKE 'fencegate%' AND NOT ssl";
    assert_eq!(store.run(encrypted), "0");
    assert_eq!(guard.send_heartbeat().await, Ok(()));
    let refused = with(&stranger).try_guard(clock, "two").await.err().expect("not this server").to_string();
    assert!(refused.contains("certificate"), "{refused}");
}
