//! Tests of the servers: they behave as the tests that use them rely on.

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
    assert_eq!(database.run(ROWS), "1");
    server.kill();
    assert!(database.try_run(ROWS).is_err(), "nobody is there");
    server.restart();
    assert_eq!(database.run(ROWS), "1");
    // The query below needs a new session, because the kept one ended with the killed server.
    server.kill();
    server.restart();
    assert_eq!(database.run(ROWS), "1");
    server.freeze();
    let asking = thread::spawn(move || database.run(ROWS));
    thread::sleep(Duration::from_millis(200));
    assert!(!asking.is_finished(), "it is frozen");
    server.thaw();
    assert_eq!(asking.join().expect("no panic"), "1");
}

/// A query is answered while another query of the same database waits for a lock.
#[test]
fn question_waits_for_no_other() {
    let database = fresh_database();
    database.run(TABLE);
    let mut holds = database.session("none");
    holds.run("BEGIN;");
    holds.run("LOCK TABLE t;");
    let asked = database.clone();
    let waits = thread::spawn(move || asked.run(ROWS));
    database.wait_one_blocked();
    holds.run("COMMIT;");
    assert_eq!(waits.join().expect("no panic"), "1");
}

/// A statement that fails reports its error, and the next one is answered.
#[test]
fn question_after_failed_one_is_answered() {
    let database = fresh_database();
    database.run(TABLE);
    for _ in 0..2 {
        let refused = database.try_run("SELECT * FROM u").expect_err("there is no such table");
        assert!(refused.contains("\"u\" does not exist"), "{refused}");
        assert_eq!(database.run("UPDATE t SET n = n + 1 RETURNING 'a|b', 7;"), "a|b|7");
        assert_eq!(database.run("DELETE FROM t WHERE n > 9 RETURNING n"), "");
    }
    assert_eq!(database.run("SELECT n FROM t"), "3");
    let several = "UPDATE t SET n = 9; SELECT * FROM u";
    assert!(database.try_run(several).is_err() && database.run("SELECT n FROM t") == "3", "one transaction");
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
