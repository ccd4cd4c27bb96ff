//! SQLite, in the process of the test.

use std::{path::Path, time::Duration};

use fencegate_testkit::scratch;
use rusqlite::{Connection, ErrorCode};

use super::{
    AccessMode, CompareForm, SqlRecipe, SqlSession, assert_all_stories, assert_floor_protects,
    run_statements, token,
};

impl SqlSession for Connection {
    fn execute_sql(&mut self, statement: &str) -> Result<u64, String> {
        let before = self.total_changes();
        let ended = self.execute_batch(statement);
        ended.map(|()| self.total_changes() - before).map_err(|error| match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy) => "busy".to_owned(),
            _ => error.to_string(),
        })
    }

    fn query_sql(&mut self, question: &str) -> Vec<String> {
        let mut question = self.prepare(question).expect("SQL");
        let rows = question.query_map([], |row| row.get(0)).expect("a question");
        rows.collect::<Result<_, _>>().expect("text")
    }
}

fn open(file: &Path) -> Connection {
    let connection = Connection::open(file).expect("a database");
    // A session that meets another writer gets an error at once.
    connection.busy_timeout(Duration::ZERO).expect("SQLite takes it");
    connection.pragma_update(None, "journal_mode", "WAL").expect("SQLite takes it");
    connection
}

#[test]
fn sqlite_accepts_only_newer_tokens() {
    assert_all_stories("sqlite", &mut Connection::open_in_memory().expect("a database"));
}

/// The stories detect a recipe with a mistake.
#[test]
fn stories_detect_faulty_recipe() {
    for (form, section, right, wrong) in [
        (
            CompareForm::Token,
            "write",
            "excluded.write_mark > fence.write_mark",
            "excluded.write_mark >= fence.write_mark",
        ),
        (CompareForm::Token, "write", "excluded.write_mark > fence.read_mark", "true"),
        (
            CompareForm::Token,
            "write",
            "excluded.write_mark > fence.read_mark",
            "excluded.write_mark >= fence.read_mark",
        ),
        (
            CompareForm::Token,
            "write",
            "WHERE excluded.write_mark > fence.write_mark AND excluded",
            "WHERE excluded",
        ),
        (CompareForm::Token, "read", "excluded.read_mark > fence.write_mark", "true"),
        (
            CompareForm::Token,
            "read",
            "excluded.read_mark > fence.write_mark",
            "excluded.read_mark >= fence.write_mark",
        ),
        (CompareForm::Token, "read", "max(fence.read_mark, excluded.read_mark)", "excluded.read_mark"),
        (CompareForm::Token, "read", "SELECT :key, '', :token", "SELECT :key, :token, ''"),
        (
            CompareForm::Number,
            "write",
            "excluded.write_mark >= fence.write_mark",
            "excluded.write_mark > fence.write_mark",
        ),
        (
            CompareForm::Number,
            "write",
            "excluded.write_mark >= fence.write_mark",
            "'' || excluded.write_mark >= '' || fence.write_mark",
        ),
        (
            CompareForm::Number,
            "write",
            "excluded.write_mark >= fence.write_mark",
            "excluded.write_mark >= 0.0 + fence.write_mark",
        ),
        (CompareForm::Number, "read", "excluded.read_mark >= fence.write_mark", "true"),
    ] {
        let mut recipe = SqlRecipe::read("sqlite", form);
        let statement = recipe.section(section).replace(right, wrong);
        assert_ne!(recipe.sections.insert(section.to_owned(), statement.clone()), Some(statement), "{right}");
        let told = recipe.first_wrong_step(&mut Connection::open_in_memory().expect("a database"));
        assert!(told.is_some(), "{form:?}, {section}: {wrong}");
    }
}

/// Tokens up to the forgotten watermarks stay refused.
#[test]
fn sqlite_refuses_forgotten_tokens() {
    assert_floor_protects("sqlite", &mut Connection::open_in_memory().expect("a database"));
}

/// Of two connections that claim, the second one waits or has to restart its transaction.
#[test]
fn second_connection_waits_or_restarts() {
    let recipe = SqlRecipe::read("sqlite", CompareForm::Token);
    let home = scratch::temp_dir();
    let file = home.path().join("service.sqlite");
    let mut one = open(&file);
    let mut other = open(&file);
    recipe.create_tables(&mut one);
    run_statements(&mut one, "BEGIN;");
    assert_eq!(recipe.raise(&mut one, AccessMode::Exclusive, "a", &token("09")), Ok(true));
    // With `BEGIN IMMEDIATE` a session that would have to wait gets the error before it reads anything.
    assert_eq!(other.execute_sql("BEGIN IMMEDIATE;"), Err("busy".to_owned()));
    // A deferred transaction that begins with the claim gets the same error.
    run_statements(&mut other, "BEGIN;");
    assert_eq!(recipe.raise(&mut other, AccessMode::Shared, "a", &token("05")), Err("busy".to_owned()));
    run_statements(&mut other, "ROLLBACK;");
    // A deferred transaction that begins with a read can never claim, however long it waits.
    run_statements(&mut other, "BEGIN;");
    assert_eq!(other.query_sql("SELECT resource FROM fence;"), Vec::<String>::new());
    run_statements(&mut one, "COMMIT;");
    assert_eq!(recipe.raise(&mut other, AccessMode::Exclusive, "a", &token("0a")), Err("busy".to_owned()));
    run_statements(&mut other, "ROLLBACK;");
    run_statements(&mut other, "BEGIN IMMEDIATE;");
    assert_eq!(
        recipe.raise(&mut other, AccessMode::Exclusive, "a", &token("05")),
        Ok(false),
        "it came second, and is older"
    );
    run_statements(&mut other, "ROLLBACK;");
}
