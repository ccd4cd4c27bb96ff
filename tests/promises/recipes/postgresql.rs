//! PostgreSQL from the packages of Debian.

use std::{fs, process::Command};

use fencegate_testkit::{
    postgres::{self, TestDatabase},
    wait::PATIENCE,
};
use fencegate_tests::prometheus::deploy;

use super::{
    AccessMode, CompareForm, SqlRecipe, SqlSession, assert_all_stories, assert_floor_protects,
    run_statements, terminal::SqlClientProcess, token,
};

fn session(postgres: &TestDatabase) -> SqlClientProcess {
    let mut client = Command::new("setpriv");
    // `stdbuf` makes the client write each line at once.
    client.args(["--pdeathsig", "KILL", "--", "stdbuf", "-oL", "psql", "-X", "-q", "-A", "-t"]);
    client.args(postgres.arguments());
    // A statement that waits in vain fails after this time, and so does the test.
    client.env("PGOPTIONS", format!("-c statement_timeout={}", PATIENCE.as_millis()));
    SqlClientProcess::spawn(&mut client, "\\echo ended :ROW_COUNT :SQLSTATE")
}

#[test]
fn postgresql_accepts_only_newer_tokens() {
    let postgres = postgres::fresh_database();
    let mut one = session(&postgres);
    assert_all_stories("postgresql", &mut one);
    assert_floor_protects("postgresql", &mut one);
    for form in [CompareForm::Token, CompareForm::Number] {
        let recipe = SqlRecipe::read("postgresql", form);
        recipe.create_tables(&mut one);
        race(&postgres, &recipe);
        SqlRecipe::drop_all(&mut one);
    }
}

/// Lets two sessions claim one key without a row, and asserts that the second waits until the first commits or rolls
/// back.
fn race(postgres: &TestDatabase, recipe: &SqlRecipe) {
    use AccessMode::{Exclusive, Shared};
    const COMMITTED: &str = "BEGIN;";
    const REPEATABLE: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ;";
    const SERIALIZABLE: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE;";
    let (old, new) = match recipe.form {
        CompareForm::Token => (token("09"), token("10")),
        CompareForm::Number => ("9".to_owned(), "16".to_owned()),
    };
    let again = || Err("40001".to_owned());
    for (at, (isolation, (first, mode, end), (second, other_mode), expected)) in [
        (COMMITTED, (&new, Exclusive, "COMMIT;"), (&old, Exclusive), Ok(0)),
        (COMMITTED, (&old, Exclusive, "COMMIT;"), (&new, Exclusive), Ok(1)),
        (COMMITTED, (&new, Exclusive, "COMMIT;"), (&old, Shared), Ok(0)),
        (COMMITTED, (&new, Shared, "COMMIT;"), (&old, Exclusive), Ok(0)),
        (COMMITTED, (&new, Shared, "COMMIT;"), (&old, Shared), Ok(1)),
        (COMMITTED, (&new, Exclusive, "ROLLBACK;"), (&old, Exclusive), Ok(1)),
        (REPEATABLE, (&new, Exclusive, "COMMIT;"), (&old, Exclusive), again()),
        (SERIALIZABLE, (&new, Exclusive, "COMMIT;"), (&old, Exclusive), again()),
        (REPEATABLE, (&new, Exclusive, "ROLLBACK;"), (&old, Exclusive), Ok(1)),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("race/{at}");
        let mut one = session(postgres);
        let mut other = session(postgres);
        run_statements(&mut one, COMMITTED);
        assert_eq!(recipe.raise(&mut one, mode, &key, first), Ok(true), "{at}");
        run_statements(&mut other, isolation);
        // The first query fixes the snapshot of the transaction.
        other.query_sql("SELECT count(*) FROM fence;");
        let waiting = other.begin_claim(recipe, other_mode, &key, second);
        postgres.wait_one_blocked();
        run_statements(&mut one, end);
        assert_eq!(waiting.changed_rows(), expected, "{at}");
    }
}

/// The statements in a block of `SERVICES.md` that begins with `-- ` and this word, with values for their variables.
fn operation_statements(section: &str, token: &str) -> String {
    let page = fs::read_to_string(deploy().join("docs/SERVICES.md")).expect("our own page");
    let part = page.split("## Say that something was not done").nth(1).expect("the section");
    let block = part.split("```sql\n").skip(1).map(|block| block.split("```").next().expect("closed"));
    let statement = block.filter_map(|block| block.strip_prefix(&format!("-- {section}\n"))).next();
    let statement = statement.unwrap_or_else(|| panic!("no block {section}"));
    statement.replace(":name", "'op-1'").replace(":token", &format!("'{token}'"))
}

/// Runs the query by which the service answers a probe. True if the operation was done.
fn is_done(session: &mut dyn SqlSession, token: &str) -> bool {
    session.query_sql(&operation_statements("asked", token)) == ["t"]
}

/// Claims the operation. True if the request may have its effect.
fn claims_operation(session: &mut dyn SqlSession, token: &str) -> bool {
    session.execute_sql(&operation_statements("done", token)) == Ok(1)
}

/// The answer "not done" closes the operation for requests that arrive later; a repeat with a greater token runs
/// once.
#[test]
fn not_done_answer_closes_operation() {
    let postgres = postgres::fresh_database();
    let mut one = session(&postgres);
    let old = token("09");
    let new = token("10");
    let newest = token("11");
    run_statements(&mut one, &operation_statements("operations", ""));
    assert!(!is_done(&mut one, &old), "nothing is known of it");
    assert!(!claims_operation(&mut one, &old), "it arrived after the answer");
    assert!(claims_operation(&mut one, &new), "the repeat has a greater token");
    assert!(is_done(&mut one, &new));
    assert!(!claims_operation(&mut one, &newest), "it was done");
    assert!(is_done(&mut one, &newest), "a question does not undo it");

    // A running request has not committed when the probe comes, so the answer waits for its transaction.
    for (end, done) in [("COMMIT;", true), ("ROLLBACK;", false)] {
        run_statements(&mut one, "TRUNCATE operation;");
        run_statements(&mut one, "BEGIN;");
        assert!(claims_operation(&mut one, &old));
        let mut other = session(&postgres);
        let old = old.clone();
        let asked = std::thread::spawn(move || is_done(&mut other, &old));
        postgres.wait_one_blocked();
        run_statements(&mut one, end);
        assert_eq!(asked.join().expect("no panic"), done, "{end}");
    }
}
