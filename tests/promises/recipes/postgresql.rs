//! PostgreSQL, as Debian has it.

use std::process::Command;

use fencegate_tests::{
    patience::PATIENCE,
    postgres::{self, Database},
};

use super::{
    Form, Mode, Recipe, Session, forgets_nothing, runs, tells_all_stories, terminal::Terminal, token,
};

fn session(postgres: &Database) -> Terminal {
    let mut client = Command::new("setpriv");
    // Each line is told as soon as it is written.
    client.args(["--pdeathsig", "KILL", "--", "stdbuf", "-oL", "psql", "-X", "-q", "-A", "-t"]);
    client.args(postgres.arguments());
    // A statement that waits in vain fails, and the test fails with it.
    client.env("PGOPTIONS", format!("-c statement_timeout={}", PATIENCE.as_millis()));
    Terminal::open(&mut client, "\\echo ended :ROW_COUNT :SQLSTATE")
}

#[test]
fn postgresql_lets_in_what_is_newer_and_nothing_else() {
    let postgres = postgres::fresh_database();
    let mut one = session(&postgres);
    tells_all_stories("postgresql", &mut one);
    forgets_nothing("postgresql", &mut one);
    for form in [Form::Token, Form::Number] {
        let recipe = Recipe::read("postgresql", form);
        recipe.make(&mut one);
        race(&postgres, &recipe);
        Recipe::drop_all(&mut one);
    }
}

/// Two sessions want one key, which is not there. The second waits for the first, whatever comes of it.
fn race(postgres: &Database, recipe: &Recipe) {
    use Mode::{Exclusive, Shared};
    const COMMITTED: &str = "BEGIN;";
    const REPEATABLE: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ;";
    const SERIALIZABLE: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE;";
    let (old, new) = match recipe.form {
        Form::Token => (token("09"), token("10")),
        Form::Number => ("9".to_owned(), "16".to_owned()),
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
        let (mut one, mut other) = (session(postgres), session(postgres));
        runs(&mut one, COMMITTED);
        assert_eq!(recipe.raise(&mut one, mode, &key, first), Ok(true), "{at}");
        runs(&mut other, isolation);
        // The first query fixes the snapshot of the transaction.
        other.told("SELECT count(*) FROM fence;");
        let waiting = other.begin_claim(recipe, other_mode, &key, second);
        postgres.sees_one_wait();
        runs(&mut one, end);
        assert_eq!(waiting.changed(), expected, "{at}");
    }
}
