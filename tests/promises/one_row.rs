//! The spellings that a database, a language or a framework takes for one row have one key with the filter that the reference names for it,
//! or are refused.
//!
//! The real programs read all spellings of `readings/rows.jsonl` in each run. With `REWRITE=1` the file is written anew with what they
//! take for one row, and so is the table of the reference with the keys that the gateway makes.
//!
//! The programs are PostgreSQL, MariaDB, SQLite, Rails, Ruby, Java, Spring, PHP, Python, Node and Go. They read
//! column by column and conversion by conversion. Without the filter the spellings have several keys.

use std::{collections::BTreeMap, env, fs, path::Path, sync::LazyLock, thread};

use fencegate_testkit::postgres::fresh_database;
use fencegate_tests::foreign_readings::{
    programs::row_matches,
    rows::{RowSpellingMatch, RowSpellings, SpelledValue, table},
};

use super::{
    clients::persistent_folder,
    middleware::run,
    recipes::{SqlSession, mariadb::MariaDbSession, run_statements},
};

/// The stored rows, and the same rows with the spellings grouped by the programs in this run.
struct ReadRows {
    stored: Vec<RowSpellings>,
    read: Vec<RowSpellings>,
}

static ROWS: LazyLock<ReadRows> = LazyLock::new(|| {
    let stored = RowSpellings::load();
    let read = read_rows(&stored);
    if env::var_os("REWRITE").is_some() {
        RowSpellings::store(&read);
    }
    ReadRows { stored, read }
});

/// Starts all readers at once, each with its own rows. Returns the rows in their order.
fn read_rows(rows: &[RowSpellings]) -> Vec<RowSpellings> {
    let mut by_reader = BTreeMap::<&str, Vec<&RowSpellings>>::new();
    for row in rows {
        by_reader.entry(&row.reader).or_default().push(row);
    }
    let mut read = thread::scope(|scope| {
        let begin = |(reader, rows): (_, Vec<_>)| (reader, scope.spawn(move || regroup(reader, &rows)));
        let readers: Vec<_> = by_reader.into_iter().map(begin).collect();
        let finished = readers.into_iter().map(|(reader, thread)| {
            let rows = thread.join().unwrap_or_else(|_| panic!("{reader} does not read its rows"));
            (reader, rows.into_iter())
        });
        finished.collect::<BTreeMap<_, _>>()
    });
    let mut next = |row: &RowSpellings| read.get_mut(&*row.reader).and_then(Iterator::next);
    rows.iter().map(|row| next(row).expect("each row is read once")).collect()
}

fn regroup(reader: &str, rows: &[&RowSpellings]) -> Vec<RowSpellings> {
    let results = matches(reader, rows);
    rows.iter().zip(results).map(|(row, results)| row.regrouped(&results)).collect()
}

/// For each row, the match of each of its spellings, as the reader of this name finds it.
fn matches(reader: &str, rows: &[&RowSpellings]) -> Vec<Vec<RowSpellingMatch>> {
    match reader {
        "PostgreSQL" => postgresql_matches(rows),
        "MariaDB" => mariadb_matches(rows),
        "SQLite" | "Python" => row_matches(&["python3", "rows/convert.py"], rows),
        "Rails" | "Ruby" => row_matches(&["ruby", "rows/convert.rb"], rows),
        "PHP" => row_matches(&["php", "-n", "rows/convert.php"], rows),
        "Node" => row_matches(&["node", "rows/convert.mjs"], rows),
        "Java" | "Spring" => {
            let jars = ["spring3-core", "commons-logging"].map(|jar| format!("/usr/share/java/{jar}.jar"));
            let path = jars.join(":");
            row_matches(&["java", "-XX:TieredStopAtLevel=1", "-cp", &path, "rows/Convert.java"], rows)
        }
        "Go" => row_matches(&[build_go_reader().as_str()], rows),
        _ => panic!("no program is {reader}"),
    }
}

fn build_go_reader() -> String {
    let home = persistent_folder("one-row");
    let program = home.join("convert").display().to_string();
    let cache = format!("GOCACHE={}", home.join("cache").display());
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("readings/rows");
    run(&sources, &["env", "GO111MODULE=off", &cache, "go", "build", "-o", &program, "convert.go"]);
    program
}

/// The SQL that makes a table with one row.
fn table_of_row(row: &RowSpellings) -> String {
    let RowSpellings { how, row, .. } = row;
    let row = row.to_sql();
    format!("CREATE TABLE stock (id {how}, seen integer DEFAULT 0); INSERT INTO stock (id) VALUES ({row});")
}

fn change_of_row(spelling: &SpelledValue) -> String {
    format!("UPDATE stock SET seen = seen + 1 WHERE id = {}", spelling.to_sql())
}

fn postgresql_matches(rows: &[&RowSpellings]) -> Vec<Vec<RowSpellingMatch>> {
    let database = fresh_database();
    database.run("CREATE EXTENSION citext");
    // This is the collation from the PostgreSQL manual (24.2.2.4).
    database.run(
        "CREATE COLLATION case_insensitive (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    );
    let row_match = |spelling: &SpelledValue| {
        let change = change_of_row(spelling);
        let changed = format!("WITH changed AS ({change} RETURNING id) SELECT count(*) FROM changed");
        match database.try_run(&changed).as_deref() {
            Ok("1") => RowSpellingMatch::Same,
            Ok("0") => RowSpellingMatch::Other,
            Err(why) if why.contains("invalid input syntax") => RowSpellingMatch::Refused,
            unexpected => panic!("{change}: {unexpected:?}"),
        }
    };
    let matches = |row: &&RowSpellings| {
        database.run(&format!("DROP TABLE IF EXISTS stock; {}", table_of_row(row)));
        row.spellings().map(row_match).collect()
    };
    rows.iter().map(matches).collect()
}

fn mariadb_matches(rows: &[&RowSpellings]) -> Vec<Vec<RowSpellingMatch>> {
    // MariaDB's errors for character sets without a common collation, and for a text that is no number in strict mode.
    const REFUSED: [&str; 2] = ["1267", "1292"];
    let server = MariaDbSession::start();
    let mut session = server.session("service");
    run_statements(&mut session, "SET NAMES utf8mb4;");
    let mut matches = Vec::new();
    for row in rows {
        run_statements(&mut session, "DROP TABLE IF EXISTS stock;");
        run_statements(&mut session, &table_of_row(row));
        let mut row_match = |spelling: &SpelledValue| {
            let change = change_of_row(spelling);
            match session.execute_sql(&format!("{change};")) {
                Ok(1) => RowSpellingMatch::Same,
                Ok(0) => RowSpellingMatch::Other,
                Err(code) if REFUSED.contains(&&*code) => RowSpellingMatch::Refused,
                unexpected => panic!("{change}: {unexpected:?}"),
            }
        };
        matches.push(row.spellings().map(&mut row_match).collect());
    }
    matches
}

/// Each program takes exactly the stored spellings for the row.
#[test]
fn programs_take_stored_spellings_for_row() {
    for (stored, read) in ROWS.stored.iter().zip(&ROWS.read) {
        assert!(env::var_os("REWRITE").is_some() || stored == read, "stored: {stored:?}\nread: {read:?}");
    }
    let several = ROWS.read.iter().filter(|row| row.same.len() > 1).count();
    assert!(several >= 40, "{several} rows have several spellings: they prove little");
}

/// All spellings that a program takes for one row have one key with the filter, or are refused. Without the filter they
/// would have several keys.
#[test]
fn spellings_of_row_have_one_key() {
    for row in &ROWS.read {
        row.check_keys().unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// The table of the reference has what the programs read and the keys that the gateway makes.
#[test]
fn reference_has_keys_of_spellings() {
    const BEGINS: &str = "<!-- written by a test: REWRITE=1 tests/run one_row:: -->\n";
    const ENDS: &str = "<!-- the end of what it writes -->\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies/REFERENCE.md");
    let document = fs::read_to_string(&file).expect("the reference");
    let (before, rest) = document.split_once(BEGINS).expect("the place of the table");
    let (written, behind) = rest.split_once(ENDS).expect("its end");
    let wanted = table(&ROWS.read);
    if env::var_os("REWRITE").is_some() {
        let anew = format!("{before}{BEGINS}{wanted}{ENDS}{behind}");
        fs::write(&file, anew).expect("the repository can be written");
        return;
    }
    assert_eq!(written, wanted, "REWRITE=1 writes it anew");
}
