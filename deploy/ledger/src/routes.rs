//! The HTTP interface: turns requests into calls of the store.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::routing::{get, post};
use axum::{Json, Router};
use fencegate_upstream::{Fence, FenceLayer, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fencing::{FencingStamp, FieldSettings, TokenComparison};
use crate::order::{BalanceDirection, LedgerResource, Order};
use crate::problem::{ApiError, ProblemResponder};
use crate::store::{LedgerStore, OrderOutcome};

#[derive(Clone)]
struct AppState {
    book: Arc<LedgerStore>,
    compare: TokenComparison,
    fields: Arc<FieldSettings>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PaymentRequest {
    operation: String,
    /// The amount in cents.
    amount: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransferRequest {
    operation: String,
    from: String,
    to: String,
    /// The amount in cents.
    amount: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReservationRequest {
    operation: String,
    /// The number of units.
    quantity: i64,
}

#[derive(Debug, Deserialize)]
struct PageQuery {
    /// The sequence number of the last execution that the client knows.
    #[serde(default)]
    after: i64,
}

#[derive(Debug, Serialize)]
struct OrderResponse {
    operation: String,
    key: String,
    /// The new balance, in cents or units.
    balance: i64,
    sequence: i64,
}

#[derive(Debug, Serialize)]
struct TransferResponse {
    operation: String,
    /// The new balance of the account that pays, in cents.
    from: i64,
    to: i64,
    sequence: i64,
}

type ApiResult<T> = Result<Json<T>, ApiError>;

pub(crate) fn router(book: Arc<LedgerStore>, compare: TokenComparison, fields: FieldSettings) -> Router {
    let keyed = Router::new()
        .route("/v1/accounts/{id}/debit", post(debit))
        .route("/v1/accounts/{id}/credit", post(credit))
        .route("/v1/transfers", post(transfer))
        .route("/v1/skus/{sku}/reservations", post(reserve))
        .route("/v1/accounts/{id}", get(account))
        .route("/v1/skus/{sku}", get(sku));
    let fenced = match compare.settings(&fields) {
        Some(settings) => keyed.route_layer(FenceLayer::new(settings).answering(ProblemResponder)),
        None => keyed,
    };
    fenced
        .route("/v1/executions", get(executions))
        .route("/v1/refusals", get(refusals))
        .route("/live", get(async || "live\n"))
        .fallback(async || ApiError::NotFound)
        .with_state(AppState { book, compare, fields: Arc::new(fields) })
}

/// The stamp has a fence if the fencing layer is on. The layer has then refused requests without one.
impl FromRequestParts<AppState> for FencingStamp {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, service: &AppState) -> Result<Self, Infallible> {
        let fence = parts.extensions.get::<Fence>().cloned();
        Ok(fence.map_or_else(|| Self::from_headers(&parts.headers, &service.fields), Self::from_fence))
    }
}

async fn debit(
    State(service): State<AppState>,
    Path(id): Path<String>,
    stamp: FencingStamp,
    body: Bytes,
) -> ApiResult<OrderResponse> {
    pay(service, &id, BalanceDirection::Take, stamp, body).await
}

async fn credit(
    State(service): State<AppState>,
    Path(id): Path<String>,
    stamp: FencingStamp,
    body: Bytes,
) -> ApiResult<OrderResponse> {
    pay(service, &id, BalanceDirection::Give, stamp, body).await
}

async fn pay(
    service: AppState,
    id: &str,
    direction: BalanceDirection,
    stamp: FencingStamp,
    body: Bytes,
) -> ApiResult<OrderResponse> {
    let PaymentRequest { operation, amount } = serde_json::from_slice(&body)?;
    let order = Order::parse(LedgerResource::account(id)?, operation, direction, amount)?;
    service.execute_single(order, stamp).await
}

async fn transfer(
    State(service): State<AppState>,
    stamp: FencingStamp,
    body: Bytes,
) -> ApiResult<TransferResponse> {
    let TransferRequest { operation, from, to, amount } = serde_json::from_slice(&body)?;
    let order = Order::transfer(
        LedgerResource::account(&from)?,
        LedgerResource::account(&to)?,
        operation.clone(),
        amount,
    )?;
    let (balances, sequence) = service.execute(order, stamp).await?;
    let [from, to] = balances.try_into().expect("a transfer changes two accounts");
    Ok(Json(TransferResponse { operation, from, to, sequence }))
}

async fn reserve(
    State(service): State<AppState>,
    Path(sku): Path<String>,
    stamp: FencingStamp,
    body: Bytes,
) -> ApiResult<OrderResponse> {
    let ReservationRequest { operation, quantity } = serde_json::from_slice(&body)?;
    let order = Order::parse(LedgerResource::sku(&sku)?, operation, BalanceDirection::Take, quantity)?;
    service.execute_single(order, stamp).await
}

async fn account(
    State(service): State<AppState>,
    Path(id): Path<String>,
    stamp: FencingStamp,
) -> ApiResult<Value> {
    let balance = service.balance(LedgerResource::account(&id)?, stamp).await?;
    Ok(Json(json!({ "account": id, "balance": balance })))
}

async fn sku(
    State(service): State<AppState>,
    Path(sku): Path<String>,
    stamp: FencingStamp,
) -> ApiResult<Value> {
    let available = service.balance(LedgerResource::sku(&sku)?, stamp).await?;
    Ok(Json(json!({ "sku": sku, "available": available })))
}

async fn executions(State(service): State<AppState>, Query(page): Query<PageQuery>) -> ApiResult<Value> {
    let executions = service.run_blocking(move |book| book.executions(page.after)).await?;
    Ok(Json(json!({ "executions": executions })))
}

async fn refusals(State(service): State<AppState>) -> Json<Value> {
    let refusals = service.book.refusals();
    Json(json!({ "stale": refusals.stale, "latest": refusals.latest }))
}

impl AppState {
    /// Executes an order for one resource.
    async fn execute_single(self, order: Order, stamp: FencingStamp) -> ApiResult<OrderResponse> {
        let [change] = order.changes.as_slice() else { unreachable!("parsed as an order for one resource") };
        let operation = order.operation.clone();
        let key = change.resource.to_string();
        let (balances, sequence) = self.execute(order, stamp).await?;
        let [balance] = balances.try_into().expect("one change, one balance");
        Ok(Json(OrderResponse { operation, key, balance, sequence }))
    }

    /// Executes an order. Returns the new balance of each resource, and the number of the execution.
    async fn execute(&self, order: Order, stamp: FencingStamp) -> Result<(Vec<i64>, i64), ApiError> {
        let compare = self.compare;
        match self.run_blocking(move |book| book.execute(&order, &stamp, compare)).await? {
            OrderOutcome::Done { balances, sequence } => Ok((balances, sequence)),
            OrderOutcome::Insufficient { available } => Err(ApiError::Insufficient { available }),
            OrderOutcome::Stale => Err(ApiError::Fence(Refusal::Stale)),
        }
    }

    /// A read without a token is not compared. A read with one is in mode `shared`, and is refused if it is stale.
    async fn balance(&self, resource: LedgerResource, stamp: FencingStamp) -> Result<i64, ApiError> {
        if stamp.fence.is_none() {
            return self.run_blocking(move |book| book.balance(&resource)).await;
        }
        let compare = self.compare;
        let read = self.run_blocking(move |book| book.read_fenced(&resource, &stamp, compare)).await?;
        read.ok_or(ApiError::Fence(Refusal::Stale))
    }

    /// Runs `work` on a thread for blocking work, because SQLite blocks. The work goes on if the client closes the
    /// connection.
    async fn run_blocking<T: Send + 'static>(
        &self,
        question: impl FnOnce(&LedgerStore) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let book = Arc::clone(&self.book);
        let answer = tokio::task::spawn_blocking(move || question(&book)).await;
        Ok(answer.expect("the book does not panic and is not cancelled")?)
    }
}

#[cfg(test)]
mod tests;
