//! The admin listener: is it alive, can it grant locks, what has it counted, what does it hold; and what an operator may
//! have it do. It has a thread of its own, so it answers however busy the workers are, and none of them waits for it.
//!
//! [`door`] is who gets in, [`listen`] bounds what each may ask, [`api`] what programs are told and [`page`] what people
//! see. [`told`] is its JSON, described in `gateway/API.md`.

pub mod api;
mod asked;
pub mod bearer;
mod breaking;
pub mod command;
mod did;
pub mod door;
pub mod effective;
mod exposed;
pub mod fault;
pub mod guard;
pub mod listen;
pub mod names;
mod page;
mod places;
mod seen;
pub mod told;
pub mod trends;

use axum::{Router, extract::State, http::StatusCode, routing::get};

use self::exposed::exposed;
pub use self::{page::Csrf, seen::Seen};

/// Of a gateway.
pub fn routes(seen: Seen) -> Router {
    let metrics = seen.metrics.clone();
    Router::new()
        .route("/ready", get(ready))
        .merge(api::routes())
        .merge(page::routes())
        .with_state(seen)
        .merge(exposed(metrics, || ()))
}

/// 200 when a lock could be granted now. A gateway that is not ready still serves unfenced routes.
async fn ready(State(seen): State<Seen>) -> (StatusCode, String) {
    match seen.not_ready() {
        None => (StatusCode::OK, "ready\n".into()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}
