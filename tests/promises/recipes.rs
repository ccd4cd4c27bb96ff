//! The recipes of `deploy/upstream` accept newer tokens and nothing else, in the databases that they are for.
//!
//! The statements are taken out of the pages. The databases are PostgreSQL, MariaDB, SQLite and Redis. Each recipe
//! plays every story of `vectors.json`: first, newer, older, equal, both marks, tokens and numbers, several keys,
//! rollback. Two sessions race for a new key at each isolation level. A token that was forgotten stays refused. A
//! statement with a planted fault must fail.

pub(crate) mod mariadb;
mod postgresql;
mod redis;
mod sqlite;
mod story;
mod terminal;

use std::{collections::BTreeMap, fs};

use fencegate_tests::prometheus::deploy;

use self::story::{AccessMode, CompareForm, RecipeStory, StoryStep, TransactionEnd};

/// A file of statements, split into sections by the word after `-- `.
struct SqlRecipe {
    form: CompareForm,
    sections: BTreeMap<String, String>,
}

/// A connection to a database that runs one statement after the other.
pub(crate) trait SqlSession {
    /// The number of changed rows, or the database's error code.
    fn execute_sql(&mut self, statement: &str) -> Result<u64, String>;

    /// The rows that the database returns for a query.
    fn query_sql(&mut self, question: &str) -> Vec<String>;
}

impl SqlRecipe {
    fn read(database: &str, form: CompareForm) -> Self {
        let file = deploy().join("upstream").join(database).join(format!("{}.sql", form.word()));
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let sections = text.split("-- ").skip(1).map(|section| {
            let (name, statements) = section.split_once('\n').expect("a name of its own line");
            (name.to_owned(), statements.trim().to_owned())
        });
        Self { form, sections: sections.collect() }
    }

    fn section(&self, name: &str) -> &str {
        self.sections.get(name).unwrap_or_else(|| panic!("no section {name}"))
    }

    /// The statements that claim one key, with values in place of their variables, as a driver fills them in.
    fn claim_statements(&self, mode: AccessMode, key: &str, mark: &str) -> (Option<String>, String) {
        let filled = |statement: &str| {
            // No token, number or key contains a quote, so they need no escaping.
            let mark = if self.form == CompareForm::Token { format!("'{mark}'") } else { mark.to_owned() };
            let statement = statement.replace(":token", &mark).replace(":number", &mark);
            statement.replace(":key", &format!("'{key}'"))
        };
        (self.sections.get("row").map(|row| filled(row)), filled(self.section(mode.verb())))
    }

    /// Claims one key, in the transaction that the session has begun.
    fn raise(
        &self,
        session: &mut dyn SqlSession,
        mode: AccessMode,
        key: &str,
        mark: &str,
    ) -> Result<bool, String> {
        let (row, raise) = self.claim_statements(mode, key, mark);
        if let Some(row) = row {
            session.execute_sql(&row)?;
        }
        let changed = session.execute_sql(&raise)?;
        assert!(changed < 2, "{changed} rows of one key");
        Ok(changed == 1)
    }

    fn create_tables(&self, session: &mut dyn SqlSession) {
        run_statements(session, self.section("table"));
    }

    fn drop_all(session: &mut dyn SqlSession) {
        run_statements(session, "DROP TABLE fence; DROP TABLE fence_floor;");
    }

    /// Runs once the cleanup statements of the recipe, which a service runs again and again.
    fn run_cleanup(&self, session: &mut dyn SqlSession, seconds: u32) {
        run_statements(session, &self.section("forget").replace(":seconds", &seconds.to_string()));
    }
}

pub(crate) fn run_statements(session: &mut dyn SqlSession, statements: &str) {
    for statement in statements.split_inclusive(';').map(str::trim).filter(|one| !one.is_empty()) {
        session.execute_sql(statement).unwrap_or_else(|code| panic!("{code}: {statement}"));
    }
}

/// Asserts that every story of the vectors passes, each in an empty database.
fn assert_all_stories(database: &str, session: &mut dyn SqlSession) {
    for form in [CompareForm::Token, CompareForm::Number] {
        assert_eq!(SqlRecipe::read(database, form).first_wrong_step(session), None, "{form:?}");
    }
}

impl SqlRecipe {
    /// The first step of a story whose claim passes although it should not, or does not pass although it should.
    fn first_wrong_step(&self, session: &mut dyn SqlSession) -> Option<String> {
        RecipeStory::all(self.form).into_iter().find_map(|story| {
            self.create_tables(session);
            let wrong = story.steps.iter().position(|step| self.play_step(step, session) != step.passes);
            Self::drop_all(session);
            wrong.map(|at| format!("{}, step {at}", story.name))
        })
    }

    /// Plays a step in a transaction of its own. True if its claims pass.
    fn play_step(&self, step: &StoryStep, session: &mut dyn SqlSession) -> bool {
        let mark = step.mark(self.form);
        run_statements(session, "BEGIN;");
        let mut raised = step.keys.iter().map(|key| self.raise(session, step.mode, key, mark));
        let passes = raised.all(|raised| raised.unwrap_or_else(|code| panic!("{code}")));
        run_statements(
            session,
            if passes && step.end == TransactionEnd::Commit { "COMMIT;" } else { "ROLLBACK;" },
        );
        passes
    }
}

#[test]
fn pages_show_executed_statements() {
    for database in ["postgresql", "mariadb", "sqlite"] {
        let page = fs::read_to_string(deploy().join("upstream").join(database).join("README.md"));
        let page = page.expect("shipped");
        let recipe = SqlRecipe::read(database, CompareForm::Token);
        for shown in recipe.sections.get("row").into_iter().chain([&recipe.sections["write"]]) {
            assert!(page.contains(shown), "{database}: {shown}");
        }
    }
}

/// Asserts that the floor refuses tokens of deleted rows, and that nothing is deleted or refused before its time.
fn assert_floor_protects(database: &str, session: &mut dyn SqlSession) {
    for (form, [first, second, third, fourth]) in [
        (CompareForm::Token, ["05", "09", "0a", "0b"].map(token)),
        (CompareForm::Number, ["5", "9", "10", "11"].map(str::to_owned)),
    ] {
        let recipe = SqlRecipe::read(database, form);
        recipe.create_tables(session);
        let passes = |session: &mut dyn SqlSession, mode, key: &str, mark: &str| {
            run_statements(session, "BEGIN;");
            let passes = recipe.raise(session, mode, key, mark).expect("nobody else is here");
            run_statements(session, if passes { "COMMIT;" } else { "ROLLBACK;" });
            passes
        };
        assert!(passes(session, AccessMode::Exclusive, "old", &first));
        assert!(passes(session, AccessMode::Shared, "read", &second));
        recipe.run_cleanup(session, 3600);
        assert!(passes(session, AccessMode::Exclusive, "late", &first), "no floor before its time");
        // The first call only records the highest watermark. The second call raises the floor to it.
        recipe.run_cleanup(session, 0);
        assert!(passes(session, AccessMode::Exclusive, "new", &fourth));
        recipe.run_cleanup(session, 0);
        assert_eq!(resources(session), ["late", "new", "old", "read"], "the floor has just been raised");
        assert!(!passes(session, AccessMode::Exclusive, "other", &second), "not above the floor");
        assert!(!passes(session, AccessMode::Shared, "other", &second), "nor is this");
        assert!(passes(session, AccessMode::Exclusive, "another", &third));
        recipe.run_cleanup(session, 3600);
        assert_eq!(resources(session).len(), 5, "nothing before its time");
        recipe.run_cleanup(session, 0);
        assert_eq!(resources(session), ["another", "new"]);
        for key in ["old", "read", "late"] {
            assert!(
                !passes(session, AccessMode::Exclusive, key, &first),
                "{key} was forgotten, and its mark was not"
            );
            assert!(
                !passes(session, AccessMode::Shared, key, &second),
                "{key} was forgotten, and its mark was not"
            );
        }
        SqlRecipe::drop_all(session);
    }
}

fn resources(session: &mut dyn SqlSession) -> Vec<String> {
    session.query_sql("SELECT resource FROM fence ORDER BY resource;")
}

/// The token of an epoch with these last two digits.
fn token(epoch: &str) -> String {
    format!("v1-00000000000000{epoch}-00000000-00000001")
}
