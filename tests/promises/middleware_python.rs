//! The middleware for Python keeps the contract and can be installed as a package, and a service with it passes
//! `fencegate verify` on three databases.
//!
//! The databases are SQLite, PostgreSQL and MariaDB. The middleware plays `vectors.json` case by case, and takes for
//! a token what gateways and guards take for one. Two instances are killed meanwhile.

use std::{fs, path::Path, process::Command};

use fencegate_testkit::{postgres::fresh_database, scratch};
use fencegate_tests::prometheus::deploy;
use tempfile::TempDir;

use super::{
    clients::python_with_package,
    middleware::{
        SampleRequests, SampleService,
        in_time::{MiddlewareMode, assert_keeps_deadlines, assert_late_while_queued},
        tables,
    },
    recipes::{mariadb::MariaDbSession, run_statements},
};

/// Runs a program in a folder, asserts that it succeeds, and returns its output.
fn run_program(program: &str, arguments: &[&str], folder: &Path) -> String {
    let mut command = Command::new("timeout");
    // Python then writes no compiled files into the folders of the repository.
    command.args(["120", program]).args(arguments).current_dir(folder).env("PYTHONDONTWRITEBYTECODE", "1");
    let ran = command.output().expect("coreutils");
    let told = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{program} {arguments:?}: {}\n{told}\n{complained}", ran.status);
    format!("{told}{complained}")
}

#[test]
fn own_tests_pass() {
    let folder = deploy().join("upstream/python");
    let told = run_program("python3", &["-W", "error", "-m", "unittest", "discover", "-s", "tests"], &folder);
    assert!(told.ends_with("\nOK\n"), "{told}");
}

/// The middleware installs as a package with all of its modules, without the network.
#[tokio::test]
async fn installs_as_package() {
    let python = python_with_package("setuptools", "setuptools==80.9.0").await;
    let home = TempDir::new_in(scratch::folder()).expect("a folder");
    let source = home.path().join("source");
    let target = home.path().join("target").display().to_string();
    run_program(
        "cp",
        &["-r", &deploy().join("upstream/python").display().to_string(), "source"],
        home.path(),
    );
    let install =
        ["-m", "pip", "install", "-q", "--no-index", "--no-build-isolation", "--target", &target, "."];
    run_program(&python, &install, &source);
    let names = fs::read_dir(home.path().join("target/fencegate_upstream")).expect("installed").flatten();
    let mut names: Vec<_> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "__pycache__");
    names.sort();
    let all = "__init__.py answer.py asgi.py deadline.py fence.py marks.py not_after.py py.typed spelling.py stamp.py \
               statements.py wsgi.py";
    assert_eq!(names.join(" "), all);
    let import = format!(
        "import sys; sys.path.insert(0, '{target}'); import fencegate_upstream as f; print(f.Settings())"
    );
    assert!(run_program(&python, &["-c", &import], home.path()).contains("Fencing-Token"));
}

/// The table of the sample itself, which is not part of the recipe.
const ACCOUNTS: &str = "CREATE TABLE account (id VARCHAR(64) PRIMARY KEY, cents BIGINT NOT NULL);";

/// Starts two instances of the sample, with server, driver and database.
async fn start_sample(words: [&str; 4]) -> SampleService {
    let mut python = String::new();
    for package in ["uvicorn==0.35.0", "psycopg[binary]==3.2.9", "pymysql==1.1.1"] {
        python = python_with_package("upstream", package).await;
    }
    let folder = deploy().join("upstream/python");
    let path = format!("PYTHONPATH={}", folder.join("src").display());
    let service = folder.join("sample/account.py").display().to_string();
    SampleService::start(|port| {
        let port = port.to_string();
        let front = ["env", "PYTHONDONTWRITEBYTECODE=1", &path, &python, &service];
        front.iter().chain(&words).chain([&port.as_str()]).map(ToString::to_string).collect()
    })
}

#[tokio::test]
async fn wsgi_sqlite_service_passes_verify() {
    let home = TempDir::new_in(scratch::folder()).expect("a folder");
    let bank = home.path().join("bank.sqlite").display().to_string();
    start_sample(["wsgi", "token", "sqlite", &bank]).await.assert_verified("token", SampleRequests::Debits);
}

#[tokio::test]
async fn asgi_postgresql_service_passes_verify() {
    let database = fresh_database();
    database.run(&(tables("postgresql", "number") + ACCOUNTS));
    let sample = start_sample(["asgi", "number", "postgresql", &database.url()]).await;
    sample.assert_verified("number", SampleRequests::Debits);
}

#[tokio::test]
async fn wsgi_mariadb_service_passes_verify() {
    let mariadb = MariaDbSession::start();
    run_statements(&mut mariadb.session("service"), &(tables("mariadb", "token") + ACCOUNTS));
    start_sample(["wsgi", "token", "mariadb", &mariadb.socket()])
        .await
        .assert_verified("token", SampleRequests::Debits);
}

/// The command of the sample that checks deadlines and compares no tokens. `python`: the interpreter.
fn check_deadlines(
    python: &str,
    kind: &str,
    mode: MiddlewareMode,
    file: &str,
    port: u16,
    workers: u16,
) -> Vec<String> {
    let folder = deploy().join("upstream/python");
    let path = format!("PYTHONPATH={}", folder.join("src").display());
    let service = folder.join("sample/deadline.py").display().to_string();
    let port = port.to_string();
    let workers = workers.to_string();
    let words = ["env", "PYTHONDONTWRITEBYTECODE=1", &path, python, &service, kind, mode.word(), file];
    words.into_iter().chain([port.as_str(), &workers]).map(str::to_owned).collect()
}

#[test]
fn wsgi_refuses_late_request() {
    assert_keeps_deadlines(|mode, file, port| check_deadlines("python3", "wsgi", mode, file, port, 1));
}

#[tokio::test]
async fn asgi_refuses_late_request() {
    let python = python_with_package("upstream", "uvicorn==0.35.0").await;
    assert_keeps_deadlines(|mode, file, port| check_deadlines(&python, "asgi", mode, file, port, 1));
}

/// A request that waited too long in the queue of busy workers is refused.
///
/// No process is frozen and no proxy is between them: both workers behind the listening socket are busy.
#[test]
fn request_queued_too_long_is_refused() {
    assert_late_while_queued(|mode, file, port| check_deadlines("python3", "wsgi", mode, file, port, 2));
}
