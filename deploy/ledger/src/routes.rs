//! The HTTP interface: turns requests into calls of the book.

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

use crate::book::{Book, Outcome};
use crate::order::{Direction, Order, Resource};
use crate::problem::{Problem, Problems};
use crate::stamp::{Compare, Fields, Stamp};

#[derive(Clone)]
struct Service {
    book: Arc<Book>,
    compare: Compare,
    fields: Arc<Fields>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payment {
    operation: String,
    /// Cents.
    amount: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    operation: String,
    from: String,
    to: String,
    /// Cents.
    amount: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reservation {
    operation: String,
    /// Units.
    quantity: i64,
}

#[derive(Debug, Deserialize)]
struct Page {
    /// The sequence number of the last execution that the client knows.
    #[serde(default)]
    after: i64,
}

#[derive(Debug, Serialize)]
struct Done {
    operation: String,
    key: String,
    /// Cents or units that are there now.
    balance: i64,
    sequence: i64,
}

#[derive(Debug, Serialize)]
struct Transferred {
    operation: String,
    /// Cents that are there now.
    from: i64,
    to: i64,
    sequence: i64,
}

type Answer<T> = Result<Json<T>, Problem>;

pub(crate) fn service(book: Arc<Book>, compare: Compare, fields: Fields) -> Router {
    let keyed = Router::new()
        .route("/v1/accounts/{id}/debit", post(debit))
        .route("/v1/accounts/{id}/credit", post(credit))
        .route("/v1/transfers", post(transfer))
        .route("/v1/skus/{sku}/reservations", post(reserve))
        .route("/v1/accounts/{id}", get(account))
        .route("/v1/skus/{sku}", get(sku));
    let fenced = match compare.settings(&fields) {
        Some(settings) => keyed.route_layer(FenceLayer::new(settings).answering(Problems)),
        None => keyed,
    };
    fenced
        .route("/v1/executions", get(executions))
        .route("/v1/refusals", get(refusals))
        .route("/live", get(async || "live\n"))
        .fallback(async || Problem::NotFound)
        .with_state(Service { book, compare, fields: Arc::new(fields) })
}

/// Has a fence if the layer is on, which has refused requests without one.
impl FromRequestParts<Service> for Stamp {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Infallible> {
        let fence = parts.extensions.get::<Fence>().cloned();
        Ok(fence.map_or_else(|| Self::offered(&parts.headers, &service.fields), Self::of))
    }
}

async fn debit(
    State(service): State<Service>,
    Path(id): Path<String>,
    stamp: Stamp,
    body: Bytes,
) -> Answer<Done> {
    pay(service, &id, Direction::Take, stamp, body).await
}

async fn credit(
    State(service): State<Service>,
    Path(id): Path<String>,
    stamp: Stamp,
    body: Bytes,
) -> Answer<Done> {
    pay(service, &id, Direction::Give, stamp, body).await
}

async fn pay(service: Service, id: &str, direction: Direction, stamp: Stamp, body: Bytes) -> Answer<Done> {
    let Payment { operation, amount } = serde_json::from_slice(&body)?;
    let order = Order::parse(Resource::account(id)?, operation, direction, amount)?;
    service.change(order, stamp).await
}

async fn transfer(State(service): State<Service>, stamp: Stamp, body: Bytes) -> Answer<Transferred> {
    let Transfer { operation, from, to, amount } = serde_json::from_slice(&body)?;
    let order =
        Order::transfer(Resource::account(&from)?, Resource::account(&to)?, operation.clone(), amount)?;
    let (balances, sequence) = service.execute(order, stamp).await?;
    let [from, to] = balances.try_into().expect("a transfer changes two accounts");
    Ok(Json(Transferred { operation, from, to, sequence }))
}

async fn reserve(
    State(service): State<Service>,
    Path(sku): Path<String>,
    stamp: Stamp,
    body: Bytes,
) -> Answer<Done> {
    let Reservation { operation, quantity } = serde_json::from_slice(&body)?;
    let order = Order::parse(Resource::sku(&sku)?, operation, Direction::Take, quantity)?;
    service.change(order, stamp).await
}

async fn account(State(service): State<Service>, Path(id): Path<String>, stamp: Stamp) -> Answer<Value> {
    let balance = service.balance(Resource::account(&id)?, stamp).await?;
    Ok(Json(json!({ "account": id, "balance": balance })))
}

async fn sku(State(service): State<Service>, Path(sku): Path<String>, stamp: Stamp) -> Answer<Value> {
    let available = service.balance(Resource::sku(&sku)?, stamp).await?;
    Ok(Json(json!({ "sku": sku, "available": available })))
}

async fn executions(State(service): State<Service>, Query(page): Query<Page>) -> Answer<Value> {
    let executions = service.ask(move |book| book.executions(page.after)).await?;
    Ok(Json(json!({ "executions": executions })))
}

async fn refusals(State(service): State<Service>) -> Json<Value> {
    let refusals = service.book.refusals();
    Json(json!({ "stale": refusals.stale, "latest": refusals.latest }))
}

impl Service {
    /// An order for one resource.
    async fn change(self, order: Order, stamp: Stamp) -> Answer<Done> {
        let [change] = order.changes.as_slice() else { unreachable!("parsed as an order for one resource") };
        let (operation, key) = (order.operation.clone(), change.resource.to_string());
        let (balances, sequence) = self.execute(order, stamp).await?;
        let [balance] = balances.try_into().expect("one change, one balance");
        Ok(Json(Done { operation, key, balance, sequence }))
    }

    /// The new balance of each resource, and the number of the execution.
    async fn execute(&self, order: Order, stamp: Stamp) -> Result<(Vec<i64>, i64), Problem> {
        let compare = self.compare;
        match self.ask(move |book| book.execute(&order, &stamp, compare)).await? {
            Outcome::Done { balances, sequence } => Ok((balances, sequence)),
            Outcome::Insufficient { available } => Err(Problem::Insufficient { available }),
            Outcome::Stale => Err(Problem::Fence(Refusal::Stale)),
        }
    }

    /// A read without a token is not compared. A read with one is in mode `shared`, and is refused if it is stale.
    async fn balance(&self, resource: Resource, stamp: Stamp) -> Result<i64, Problem> {
        if stamp.fence.is_none() {
            return self.ask(move |book| book.balance(&resource)).await;
        }
        let compare = self.compare;
        let read = self.ask(move |book| book.read_fenced(&resource, &stamp, compare)).await?;
        read.ok_or(Problem::Fence(Refusal::Stale))
    }

    /// SQLite blocks, so it runs on a thread for blocking work. The work goes on if the client hangs up.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Book) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Problem> {
        let book = Arc::clone(&self.book);
        let answer = tokio::task::spawn_blocking(move || question(&book)).await;
        Ok(answer.expect("the book does not panic and is not cancelled")?)
    }
}

#[cfg(test)]
mod tests;
