//! The servers do what the tests that use them rely on.

use std::{thread, time::Duration};

use super::*;

const TABLE: &str = "CREATE TABLE t (n int); INSERT INTO t VALUES (1)";
const ROWS: &str = "SELECT count(*) FROM t";

#[test]
fn each_test_has_a_database_of_its_own() {
    let (one, other) = (fresh_database(), fresh_database());
    one.run(TABLE);
    assert_eq!(one.run(ROWS), "1");
    assert!(other.try_run(ROWS).expect_err("another one").contains("does not exist"));
}

#[test]
fn a_server_that_was_killed_has_what_it_acknowledged_and_a_frozen_one_goes_on() {
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

#[test]
fn a_promoted_standby_has_what_it_was_told() {
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
