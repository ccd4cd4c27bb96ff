//! A service with accounts on SQLite, each of whose transactions claims the fence: `account token|number DATABASE [PORT]`.

use std::{
    env,
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use axum::{
    Extension, Json, Router,
    extract::{Path, Query, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use fencegate_upstream::{
    ClaimError, Compare, Fence, FenceLayer, Mark, Mode, Settings, Transaction, WatermarkOutcome,
    WatermarkUpdate,
};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, named_params, params};
use serde_json::{Value, json};

/// The page shows what stands between these two lines.
// --- page
/// A transaction that claims by the statements of `deploy/upstream/sqlite`.
struct SqliteWatermarks<'t>(&'t rusqlite::Transaction<'t>);

impl Transaction for SqliteWatermarks<'_> {
    type Error = rusqlite::Error;

    fn raise(&mut self, update: WatermarkUpdate<'_>) -> rusqlite::Result<WatermarkOutcome> {
        let WatermarkUpdate { key, mode, mark } = update;
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
        rows.map(WatermarkOutcome::from_rows_affected)
    }
}

/// First the claim, then the effect. Whatever fails on the way rolls back both.
fn debit(
    bank: &mut Connection,
    fence: &Fence,
    id: &str,
    order: &PaymentOrder,
    work: Duration,
) -> Result<i64, HandlerError> {
    let transaction = bank.transaction_with_behavior(TransactionBehavior::Immediate)?;
    fence.claim(&mut SqliteWatermarks(&transaction))?;
    let left = balance(&transaction, id)? - order.amount;
    thread::sleep(work);
    write(&transaction, id, left)?;
    if let Some(to) = &order.to {
        write(&transaction, to, balance(&transaction, to)? + order.amount)?;
    }
    transaction.commit()?;
    Ok(left)
}

fn service(bank: Bank, settings: Settings) -> Router {
    Router::new()
        .route("/v1/accounts/{id}", get(look))
        .route("/v1/accounts/{id}/debit", post(pay))
        .layer(FenceLayer::new(settings.unfenced([Method::GET])))
        .with_state(bank)
}
// --- page

type Bank = Arc<Mutex<Connection>>;

const TOKEN_SQL: &str = include_str!("../../sqlite/token.sql");
const NUMBER_SQL: &str = include_str!("../../sqlite/number.sql");

/// The answers other than a success.
enum HandlerError {
    /// The fencing layer replaces the answer to a stale request by its own.
    Stale,
    Database(rusqlite::Error),
    /// The order names an account that the gateway has not locked for this request.
    OtherKey,
    Amount,
}

#[derive(serde::Deserialize)]
struct PaymentOrder {
    /// The amount in cents.
    amount: i64,
    /// The account that receives the amount.
    to: Option<String>,
}

#[derive(serde::Deserialize)]
struct WorkQuery {
    #[serde(default)]
    work_ms: u64,
}

async fn pay(
    State(bank): State<Bank>,
    Extension(fence): Extension<Fence>,
    Path(id): Path<String>,
    Query(work): Query<WorkQuery>,
    Json(order): Json<PaymentOrder>,
) -> Result<Json<Value>, HandlerError> {
    let touched = [Some(&id), order.to.as_ref()].into_iter().flatten();
    covers(&fence, touched)?;
    if order.amount <= 0 {
        return Err(HandlerError::Amount);
    }
    // SQLite blocks, so it runs on a thread for blocking work.
    let work = Duration::from_millis(work.work_ms);
    let debit = move || debit(&mut locked(&bank), &fence, &id, &order, work);
    let left = tokio::task::spawn_blocking(debit).await.expect("it does not panic")?;
    Ok(Json(json!({ "balance": left })))
}

/// Reads a balance. The request has a fence if it came through a gateway in mode `shared`, and none otherwise.
async fn look(
    State(bank): State<Bank>,
    fence: Option<Extension<Fence>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, HandlerError> {
    let read = move || {
        let mut bank = locked(&bank);
        let transaction = bank.transaction()?;
        if let Some(Extension(fence)) = fence {
            covers(&fence, [&id])?;
            fence.claim(&mut SqliteWatermarks(&transaction))?;
        }
        let left = balance(&transaction, &id)?;
        transaction.commit()?;
        Ok(Json(json!({ "balance": left })))
    };
    tokio::task::spawn_blocking(read).await.expect("it does not panic")
}

fn covers<'a>(fence: &Fence, ids: impl IntoIterator<Item = &'a String>) -> Result<(), HandlerError> {
    let keys = &fence.stamp().keys;
    let is_ours = ids.into_iter().all(|id| keys.contains(&format!("account/{id}")));
    if is_ours { Ok(()) } else { Err(HandlerError::OtherKey) }
}

fn balance(transaction: &rusqlite::Transaction<'_>, id: &str) -> rusqlite::Result<i64> {
    let asked = transaction.query_row("SELECT cents FROM account WHERE id = ?1", [id], |row| row.get(0));
    asked.optional().map(|cents| cents.unwrap_or(1_000_000))
}

fn write(transaction: &rusqlite::Transaction<'_>, id: &str, cents: i64) -> rusqlite::Result<usize> {
    transaction.execute("INSERT OR REPLACE INTO account VALUES (?1, ?2)", params![id, cents])
}

/// The section of the SQL recipe for a request of this mode.
fn section(recipe: &'static str, mode: Mode) -> &'static str {
    let name = match mode {
        Mode::Exclusive => "write\n",
        Mode::Shared => "read\n",
    };
    recipe.split("-- ").find_map(|section| section.strip_prefix(name)).expect("it is there")
}

fn locked(bank: &Bank) -> MutexGuard<'_, Connection> {
    // A poisoned lock does no harm: SQLite rolls an unfinished transaction back.
    bank.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<rusqlite::Error> for HandlerError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<ClaimError<rusqlite::Error>> for HandlerError {
    fn from(error: ClaimError<rusqlite::Error>) -> Self {
        match error {
            ClaimError::Stale => Self::Stale,
            ClaimError::Database(error) => Self::Database(error),
        }
    }
}

impl IntoResponse for HandlerError {
    fn into_response(self) -> Response {
        match self {
            Self::OtherKey => (StatusCode::FORBIDDEN, "the fence is of another account\n").into_response(),
            Self::Amount => (StatusCode::BAD_REQUEST, "an amount in cents is wanted\n").into_response(),
            Self::Stale => StatusCode::PRECONDITION_FAILED.into_response(),
            Self::Database(error) => {
                eprintln!("the database failed: {error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

/// Makes the tables, unless another instance of the service has made them.
fn make(bank: &mut Connection, recipe: &'static str) -> rusqlite::Result<()> {
    let transaction = bank.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !transaction.table_exists(None, "account")? {
        let tables = recipe.split("-- ").find_map(|section| section.strip_prefix("table\n"));
        transaction.execute_batch(tables.expect("it is there"))?;
        let accounts = "CREATE TABLE account (id TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT";
        transaction.execute_batch(accounts)?;
    }
    transaction.commit()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = env::args().skip(1);
    let (compare, recipe) = match words.next().as_deref() {
        Some("token") => (Compare::Token, TOKEN_SQL),
        Some("number") => (Compare::Number, NUMBER_SQL),
        _ => return Err("account token|number DATABASE [PORT]".into()),
    };
    let mut bank = Connection::open(words.next().ok_or("which database?")?)?;
    bank.busy_timeout(Duration::from_secs(20))?;
    bank.pragma_update(None, "journal_mode", "WAL")?;
    make(&mut bank, recipe)?;
    let port = words.next().map_or(Ok(0), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    writeln!(io::stdout(), "listening on {}", listener.local_addr()?)?;
    let service = service(Arc::new(Mutex::new(bank)), Settings::default().comparing(compare));
    Ok(axum::serve(listener, service).await?)
}
