//! MariaDB from the packages of Debian, empty, on a socket in a temporary folder.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use fencegate_testkit::{child::ChildProcess, postgres::unprivileged, wait::PATIENCE};
use tempfile::TempDir;

use super::{
    AccessMode, CompareForm, SqlRecipe, SqlSession, assert_all_stories, assert_floor_protects,
    run_statements, terminal::SqlClientProcess, token,
};

pub(crate) struct MariaDbSession {
    home: TempDir,
    _server: ChildProcess,
}

impl MariaDbSession {
    /// # Panics
    /// Panics if MariaDB does not start. It is the Debian package `mariadb-server`.
    pub(crate) fn start() -> Self {
        // The folder of the tests may be closed to other users, and the path of a socket has to be short.
        let home = TempDir::with_prefix("fencegate-tests-").expect("a folder");
        let data = format!("--datadir={}", home.path().join("data").display());
        let front = unprivileged(home.path());
        let (program, front) = front.split_first().expect("setpriv");
        let made = Command::new(program)
            .args(front)
            .args(["mariadb-install-db", "--no-defaults", &data, "--skip-test-db", "--skip-name-resolve"])
            .arg("--auth-root-authentication-method=normal")
            .current_dir(home.path())
            .output()
            .expect("setpriv");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let mut words = front.to_vec();
        words.extend(["/usr/sbin/mariadbd", "--no-defaults", &data, "--skip-networking"].map(str::to_owned));
        words.push(format!("--socket={}", home.path().join("socket").display()));
        // The test may lose its data, so it waits for no disk. The latin collation, for which `a` equals `A`, is the
        // default of most servers.
        words.extend(
            ["--innodb-flush-log-at-trx-commit=0", "--collation-server=latin1_swedish_ci"].map(str::to_owned),
        );
        let server = ChildProcess::spawn(program, words).expect("setpriv");
        let ready = |line: &str| line.contains("ready for connections");
        server.wait_line(ready, PATIENCE).expect("it starts");
        let started = Self { home, _server: server };
        run_statements(&mut started.session(""), "CREATE DATABASE service;");
        started
    }

    /// The path of the server's socket.
    pub(crate) fn socket(&self) -> String {
        self.home.path().join("socket").display().to_string()
    }

    /// Opens a session in the database of this name, or in none if the name is empty.
    pub(crate) fn session(&self, database: &str) -> SqlClientProcess {
        const TELL: &str = "GET DIAGNOSTICS @changed = ROW_COUNT, @found = NUMBER; \
            GET DIAGNOSTICS CONDITION 1 @code = MYSQL_ERRNO; \
            SELECT concat('ended ', @changed, ' ', if(@changed < 0 AND @found > 0, @code, '00000'));";
        let mut client = Command::new("setpriv");
        client.args(["--pdeathsig", "KILL", "--", "mariadb", "--no-defaults", "--user=root"]);
        client.arg(format!("--socket={}", self.home.path().join("socket").display()));
        client.args(["--batch", "--skip-column-names", "--unbuffered", "--force", database]);
        SqlClientProcess::spawn(&mut client, TELL)
    }

    /// Waits until one statement is blocked. This is polled, because the server sends no event.
    fn wait_one_blocked(&self) {
        const WAITING: &str = "SELECT variable_value FROM information_schema.global_status \
            WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS';";
        let mut asking = self.session("service");
        let until = Instant::now() + PATIENCE;
        while asking.query_sql(WAITING) != ["1"] {
            assert!(Instant::now() < until, "nobody waits");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Lets two sessions claim one key without a row, and asserts that the second waits until the first commits or
    /// rolls back.
    fn race(&self, recipe: &SqlRecipe) {
        use AccessMode::{Exclusive, Shared};
        let (old, new) = match recipe.form {
            CompareForm::Token => (token("09"), token("10")),
            CompareForm::Number => ("9".to_owned(), "16".to_owned()),
        };
        for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            for (at, ((first, mode, end), (second, other_mode), passes)) in [
                ((&new, Exclusive, "COMMIT;"), (&old, Exclusive), false),
                ((&old, Exclusive, "COMMIT;"), (&new, Exclusive), true),
                ((&new, Exclusive, "COMMIT;"), (&old, Shared), false),
                ((&new, Shared, "COMMIT;"), (&old, Exclusive), false),
                ((&new, Shared, "COMMIT;"), (&old, Shared), true),
                ((&new, Exclusive, "ROLLBACK;"), (&old, Exclusive), true),
            ]
            .into_iter()
            .enumerate()
            {
                let key = format!("race/{isolation}/{at}").replace(' ', "-");
                let mut one = self.session("service");
                let mut other = self.session("service");
                for session in [&mut one, &mut other] {
                    run_statements(
                        session,
                        &format!("SET TRANSACTION ISOLATION LEVEL {isolation}; START TRANSACTION;"),
                    );
                }
                assert_eq!(recipe.raise(&mut one, mode, &key, first), Ok(true), "{key}");
                let waiting = other.begin_claim(recipe, other_mode, &key, second);
                self.wait_one_blocked();
                run_statements(&mut one, end);
                waiting.changed_rows().unwrap_or_else(|code| panic!("{code}: {key}"));
                assert_eq!(recipe.raise(&mut other, other_mode, &key, second), Ok(passes), "{key}");
            }
        }
    }
}

#[test]
fn mariadb_accepts_only_newer_tokens() {
    let mariadb = MariaDbSession::start();
    let mut one = mariadb.session("service");
    assert_all_stories("mariadb", &mut one);
    assert_floor_protects("mariadb", &mut one);
    for form in [CompareForm::Token, CompareForm::Number] {
        let recipe = SqlRecipe::read("mariadb", form);
        recipe.create_tables(&mut one);
        mariadb.race(&recipe);
        SqlRecipe::drop_all(&mut one);
    }
    assert_early_read_is_stale(&mariadb);
}

/// Asserts that a read before the claim may be stale, so a transaction has to claim first.
fn assert_early_read_is_stale(mariadb: &MariaDbSession) {
    const READ: &str = "SELECT cents FROM balance;";
    let recipe = SqlRecipe::read("mariadb", CompareForm::Token);
    let mut one = mariadb.session("service");
    let mut other = mariadb.session("service");
    recipe.create_tables(&mut one);
    run_statements(
        &mut one,
        "CREATE TABLE balance (cents BIGINT) ENGINE = InnoDB; INSERT INTO balance VALUES (100);",
    );
    for (isolation, seen) in [("REPEATABLE READ", "100"), ("READ COMMITTED", "60")] {
        run_statements(&mut one, "UPDATE balance SET cents = 100; DELETE FROM fence;");
        run_statements(
            &mut other,
            &format!("SET TRANSACTION ISOLATION LEVEL {isolation}; START TRANSACTION;"),
        );
        assert_eq!(other.query_sql(READ), ["100"]);
        run_statements(&mut one, "START TRANSACTION;");
        assert_eq!(recipe.raise(&mut one, AccessMode::Exclusive, "a", &token("05")), Ok(true));
        run_statements(&mut one, "UPDATE balance SET cents = 60; COMMIT;");
        assert_eq!(recipe.raise(&mut other, AccessMode::Exclusive, "a", &token("06")), Ok(true));
        assert_eq!(other.query_sql(READ), [seen], "{isolation}");
        run_statements(&mut other, "ROLLBACK; START TRANSACTION;");
        assert_eq!(recipe.raise(&mut other, AccessMode::Exclusive, "a", &token("06")), Ok(true));
        assert_eq!(other.query_sql(READ), ["60"], "the claim came first");
        run_statements(&mut other, "ROLLBACK;");
    }
}
