//! The SQL statements in SERVICES.md for services that compare tokens accept a newer token and refuse every other one, in
//! SQLite and in PostgreSQL.
//!
//! The statements are taken out of the document. The PostgreSQL table is empty at first. When two sessions race for a
//! new key, the older token is never written after the newer one.

use std::{fs, path::Path, time::Duration};

use fencegate_testkit::{
    postgres::{self, TestDatabase},
    scratch,
};
use fencegate_tests::prometheus::deploy;
use rusqlite::{Connection, named_params};

const KEY: &str = "account/7";
/// Tokens in the form that SERVICES.md describes: two of one tenure between an earlier and a later tenure.
const OLDER: &str = "v1-0000000000000011-00000000-00000001";
const FIRST: &str = "v1-0000000000000017-00000000-00000001";
const NEWER: &str = "v1-0000000000000017-00000000-0000000a";
const NEWEST: &str = "v1-000000000000006c-00000002-00000001";

/// The first blocks of SQL in SERVICES.md, verbatim: a table for each database, and the statement. The later blocks are
/// about operations, and `recipes` runs them.
fn blocks() -> [String; 3] {
    let document = fs::read_to_string(deploy().join("docs/SERVICES.md")).expect("shipped");
    let blocks: Vec<String> = document
        .split("```sql\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default().to_owned())
        .collect();
    blocks.into_iter().take(3).collect::<Vec<_>>().try_into().expect("two tables and a statement")
}

/// Tokens in the order in which a service with an empty table receives them, and whether each one changes a row.
const STORY: [(&str, bool, &str); 6] = [
    (FIRST, true, "the first of its key"),
    (FIRST, false, "the same once more"),
    (OLDER, false, "an older one"),
    (NEWER, true, "a newer one of the same tenure"),
    (FIRST, false, "what was the newest before"),
    (NEWEST, true, "one of a later tenure"),
];

/// Texts that are no tokens. As a row, such a text would refuse every later token of its key, or none.
const MALFORMED: [&str; 9] = [
    "zzz",
    "",
    "v1-",
    "v1-7fffffffffffffff-ffffffff-fffffff",
    "v1-8000000000000000-00000000-00000001",
    "v1-0000000000000017-00000000-0000000A",
    "v1-0000000000000017-00000000-0000000a ",
    "v2-0000000000000017-00000000-0000000a",
    "v1-0000000000000017-00000000-0000000a, v1-0000000000000017-00000000-0000000b",
];

/// Runs the statement as the only one in a transaction of its own.
fn raise_watermark(connection: &mut Connection, statement: &str, token: &str) -> rusqlite::Result<usize> {
    let transaction = connection.transaction()?;
    let rows = transaction.execute(statement, named_params! {":key": KEY, ":token": token})?;
    transaction.commit()?;
    Ok(rows)
}

fn sqlite(file: &Path) -> Connection {
    let connection = Connection::open(file).expect("a database");
    // A session that meets another writer gets an error at once.
    connection.busy_timeout(Duration::ZERO).expect("SQLite takes it");
    connection
}

#[test]
fn sqlite_accepts_only_newer_tokens() {
    let [_, table, statement] = blocks();
    let mut connection = Connection::open_in_memory().expect("a database");
    connection.execute_batch(&table).expect("the table of the document");
    for (token, passes, which) in STORY {
        let rows =
            raise_watermark(&mut connection, &statement, token).expect("the statement of the document");
        assert_eq!(rows, usize::from(passes), "{which}");
    }
}

/// A malformed token never becomes a row of SQLite, neither the first of its key nor a later one.
#[test]
fn sqlite_keeps_malformed_tokens_out() {
    let [_, table, statement] = blocks();
    let mut connection = Connection::open_in_memory().expect("a database");
    connection.execute_batch(&table).expect("the table of the document");
    for later in [false, true] {
        for token in MALFORMED {
            // A malformed token that compares as less than the row changes nothing, so it needs no constraint.
            let raised = raise_watermark(&mut connection, &statement, token);
            assert!(raised.as_ref().map_or(true, |rows| later && *rows == 0), "{later} {token}: {raised:?}");
        }
        assert_eq!(raise_watermark(&mut connection, &statement, if later { NEWER } else { FIRST }), Ok(1));
    }
}

/// A malformed token never becomes a row of PostgreSQL.
#[test]
fn postgresql_keeps_malformed_tokens_out() {
    const CHECK_VIOLATION: &str = "23514";
    let [table, _, statement] = blocks();
    let postgres = postgres::fresh_database();
    let mut session = postgres.session(KEY);
    session.run(&table);
    for token in MALFORMED {
        let refused = postgres.session(KEY).begin_raise(&statement, token).finish();
        assert_eq!(refused, Err(CHECK_VIOLATION.to_owned()), "{token}");
    }
    session.run("BEGIN;");
    assert_eq!(session.raise(&statement, FIRST), 1);
    session.run("COMMIT;");
}

/// Of two tokens for a new key SQLite never accepts the older one after the newer one.
#[test]
fn sqlite_serializes_writers_of_new_key() {
    let [_, table, statement] = blocks();
    let home = scratch::temp_dir();
    let file = home.path().join("service.sqlite");
    let mut one = sqlite(&file);
    let mut other = sqlite(&file);
    one.execute_batch(&table).expect("the table of the document");
    let transaction = one.transaction().expect("a transaction");
    let rows = transaction.execute(&statement, named_params! {":key": KEY, ":token": NEWER});
    assert_eq!(rows, Ok(1));
    let waits = raise_watermark(&mut other, &statement, FIRST).expect_err("somebody else writes");
    assert_eq!(waits.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy), "{waits}");
    transaction.commit().expect("nobody is before us");
    assert_eq!(raise_watermark(&mut other, &statement, FIRST), Ok(0), "it came second, and is older");
    assert_eq!(raise_watermark(&mut other, &statement, NEWEST), Ok(1));
}

/// PostgreSQL accepts a token only if it is newer than the stored one, also when two sessions race for a new key.
#[test]
fn postgresql_accepts_only_newer_tokens() {
    let [table, _, statement] = blocks();
    let postgres = postgres::fresh_database();
    let mut session = postgres.session(KEY);
    session.run(&table);
    for (token, passes, which) in STORY {
        session.run("BEGIN;");
        assert_eq!(session.raise(&statement, token), u64::from(passes), "{which}");
        session.run("COMMIT;");
    }
    race(&postgres, &statement);
}

/// Two sessions want a key without a row. The second session waits for the first, whether the first commits or rolls
/// back.
fn race(postgres: &TestDatabase, statement: &str) {
    const READ_COMMITTED: &str = "BEGIN;";
    const REPEATABLE: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ;";
    for (isolation, (first, end), (second, expected), which) in [
        (READ_COMMITTED, (NEWER, "COMMIT;"), (FIRST, Ok(0)), "older"),
        (READ_COMMITTED, (FIRST, "COMMIT;"), (FIRST, Ok(0)), "equal"),
        (READ_COMMITTED, (FIRST, "COMMIT;"), (NEWER, Ok(1)), "newer"),
        (READ_COMMITTED, (NEWER, "ROLLBACK;"), (FIRST, Ok(1)), "older, and the newer one has done nothing"),
        (REPEATABLE, (NEWER, "COMMIT;"), (FIRST, Err("40001")), "with a snapshot of before"),
    ] {
        let key = format!("account/{which}");
        let mut one = postgres.session(&key);
        let mut other = postgres.session(&key);
        one.run("BEGIN;");
        assert_eq!(one.raise(statement, first), 1, "{which}");
        other.run(isolation);
        // The first query fixes the snapshot of the transaction.
        other.run("SELECT count(*) FROM fence;");
        let waiting = other.begin_raise(statement, second);
        postgres.wait_one_blocked();
        one.run(end);
        assert_eq!(waiting.finish(), expected.map_err(str::to_owned), "{which}");
    }
}
