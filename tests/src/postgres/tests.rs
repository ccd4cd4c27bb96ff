//! The servers do what the tests that use them rely on.

use std::{thread, time::Duration};

use super::*;

const TABLE: &str = "CREATE TABLE t (n int); INSERT INTO t VALUES (1)";
const ROWS: &str = "SELECT count(*) FROM t";

#[test]
fn fresh_databases_are_separate() {
    let one = fresh_database();
    let other = fresh_database();
    one.run(TABLE);
    assert_eq!(one.run(ROWS), "1");
    assert!(other.try_run(ROWS).expect_err("another one").contains("does not exist"));
}

/// A killed server has all acknowledged rows after its restart. A frozen server answers once it is thawed.
#[test]
fn killed_server_keeps_commits_frozen_resumes() {
    let mut server = PostgresServer::start(&[]);
    let database = server.fresh_database();
    database.run(TABLE);
    server.kill();
    assert!(database.try_run(ROWS).is_err(), "nobody is there");
    server.restart();
    assert_eq!(database.run(ROWS), "1");
    server.freeze();
    let asking = thread::spawn(move || database.run(ROWS));
    thread::sleep(Duration::from_millis(200));
    assert!(!asking.is_finished(), "it is frozen");
    server.thaw();
    assert_eq!(asking.join().expect("no panic"), "1");
}

/// A promoted standby has all rows if it replicated synchronously, and only the received ones otherwise.
#[test]
fn promoted_standby_has_replicated_rows() {
    for (follows, expected) in [(StandbyMode::Synchronously, "2"), (StandbyMode::Later, "1")] {
        let mut primary = PostgresServer::start(&[]);
        let database = primary.fresh_database();
        database.run(TABLE);
        let standby = primary.standby(follows);
        if follows == StandbyMode::Later {
            standby.pause_receiving();
        }
        database.run("INSERT INTO t VALUES (2)");
        primary.kill();
        standby.promote();
        let database = standby.database(&database.name);
        assert_eq!(database.run(ROWS), expected, "{follows:?}");
        database.run("INSERT INTO t VALUES (3)");
    }
}
