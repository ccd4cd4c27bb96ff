//! A service with accounts on SQLite, each of whose transactions claims the fence: `account token|number [DATABASE]`.

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use axum::{
    Extension, Router,
    extract::{Path, Query, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use fencegate_upstream::{
    Compare, Fence, FenceLayer, Mark, Mode, NotClaimed, Raise, Raised, Settings, Transaction,
};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, named_params};

/// The page shows what stands between these two lines.
// --- page
/// A transaction that claims by the statements of `deploy/upstream/sqlite`.
struct Sqlite<'t>(&'t rusqlite::Transaction<'t>);

impl Transaction for Sqlite<'_> {
    type Error = rusqlite::Error;

    fn raise(&mut self, Raise { key, mode, mark }: Raise<'_>) -> rusqlite::Result<Raised> {
        let rows = match mark {
            Mark::Token(token) => {
                let statement = section(TOKEN_SQL, mode);
                self.0.execute(statement, named_params! {":key": key, ":token": token})
            }
            Mark::Number(number) => {
                let statement = section(NUMBER_SQL, mode);
                self.0.execute(statement, named_params! {":key": key, ":number": number})
            }
        };
        rows.map(Raised::by_rows)
    }
}

/// First the claim, then the effect. Whatever fails on the way rolls back both.
fn debit(bank: &mut Connection, fence: &Fence, account: &str, work: Duration) -> Result<i64, Failed> {
    let transaction = bank.transaction_with_behavior(TransactionBehavior::Immediate)?;
    fence.claim(&mut Sqlite(&transaction))?;
    thread::sleep(work);
    transaction.execute("INSERT OR IGNORE INTO account VALUES (?1, 1000000)", [account])?;
    let taken = "UPDATE account SET cents = cents - 1 WHERE id = ?1 RETURNING cents";
    let left = transaction.query_row(taken, [account], |row| row.get(0))?;
    transaction.commit()?;
    Ok(left)
}

fn service(bank: Bank, settings: Settings) -> Router {
    Router::new()
        .route("/accounts/{id}", get(balance))
        .route("/accounts/{id}/debit", post(pay))
        .layer(FenceLayer::new(settings.unfenced([Method::GET])))
        .with_state(bank)
}
// --- page

type Bank = Arc<Mutex<Connection>>;

const TOKEN_SQL: &str = include_str!("../../sqlite/token.sql");
const NUMBER_SQL: &str = include_str!("../../sqlite/number.sql");

/// An answer that is no success.
enum Failed {
    /// The layer makes the answer of it.
    Stale,
    Database(rusqlite::Error),
    /// The path names another account than the fence is for.
    OtherKey,
}

#[derive(serde::Deserialize)]
struct Work {
    #[serde(default)]
    milliseconds: u64,
}

async fn pay(
    State(bank): State<Bank>,
    Extension(fence): Extension<Fence>,
    Path(id): Path<String>,
    Query(work): Query<Work>,
) -> Result<String, Failed> {
    if !fence.stamp().keys.contains(&format!("account/{id}")) {
        return Err(Failed::OtherKey);
    }
    // SQLite blocks, so it runs on a thread that may.
    let work = Duration::from_millis(work.milliseconds);
    let debit = move || debit(&mut locked(&bank), &fence, &id, work);
    tokio::task::spawn_blocking(debit).await.expect("it does not panic").map(|left| format!("{left}\n"))
}

/// With a fence where a gateway has made it a read under one, and without where it comes as it is.
async fn balance(
    State(bank): State<Bank>,
    fence: Option<Extension<Fence>>,
    Path(id): Path<String>,
) -> Result<String, Failed> {
    let mut bank = locked(&bank);
    let transaction = bank.transaction()?;
    if let Some(Extension(fence)) = fence {
        fence.claim(&mut Sqlite(&transaction))?;
    }
    let asked = "SELECT cents FROM account WHERE id = ?1";
    let cents: Option<i64> = transaction.query_row(asked, [&id], |row| row.get(0)).optional()?;
    transaction.commit()?;
    Ok(format!("{}\n", cents.unwrap_or(1_000_000)))
}

/// The section of a recipe that a request of this mode runs.
fn section(recipe: &'static str, mode: Mode) -> &'static str {
    let name = match mode {
        Mode::Exclusive => "write\n",
        Mode::Shared => "read\n",
    };
    recipe.split("-- ").find_map(|section| section.strip_prefix(name)).expect("it is there")
}

fn locked(bank: &Bank) -> MutexGuard<'_, Connection> {
    // A panic while it was held left no half-done transaction: SQLite rolls it back.
    bank.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<NotClaimed<rusqlite::Error>> for Failed {
    fn from(not: NotClaimed<rusqlite::Error>) -> Self {
        match not {
            NotClaimed::Stale => Self::Stale,
            NotClaimed::Database(error) => Self::Database(error),
        }
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        match self {
            Self::OtherKey => (StatusCode::BAD_REQUEST, "the fence is for another account\n").into_response(),
            Self::Stale => StatusCode::PRECONDITION_FAILED.into_response(),
            Self::Database(error) => {
                eprintln!("the database failed: {error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = env::args().skip(1);
    let (compare, recipe) = match words.next().as_deref() {
        Some("number") => (Compare::Number, NUMBER_SQL),
        _ => (Compare::Token, TOKEN_SQL),
    };
    let bank = Connection::open(words.next().map_or_else(|| PathBuf::from(":memory:"), PathBuf::from))?;
    let tables =
        recipe.split("-- ").find_map(|section| section.strip_prefix("table\n")).expect("it is there");
    bank.execute_batch(tables)?;
    bank.execute_batch("CREATE TABLE account (id TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT")?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    writeln!(io::stdout(), "listening on {}", listener.local_addr()?)?;
    let service = service(Arc::new(Mutex::new(bank)), Settings::default().comparing(compare));
    Ok(axum::serve(listener, service).await?)
}
