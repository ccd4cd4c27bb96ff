//! A service that refuses late requests, and compares no tokens: `deadline on|off FILE [PORT]`. Each execution
//! is a line in the file; `off` leaves the layer out.

use std::{
    env,
    fs::OpenOptions,
    io::{self, Write},
    time::Duration,
};

use axum::{
    Router,
    extract::{Query, State},
    http::{Method, Uri},
    routing::any,
};
use fencegate_upstream::DeadlineLayer;

#[derive(serde::Deserialize)]
struct WorkQuery {
    #[serde(default)]
    work_ms: u64,
}

/// Executes a request: writes one line, and takes some time.
async fn work(State(file): State<String>, Query(work): Query<WorkQuery>, uri: Uri) -> String {
    let mut executed = OpenOptions::new().create(true).append(true).open(file).expect("a file");
    writeln!(executed, "{}", uri.path()).expect("a disk");
    tokio::time::sleep(Duration::from_millis(work.work_ms)).await;
    "done\n".to_owned()
}

/// The page shows what stands between these two lines.
// --- page
fn in_time(service: Router<String>) -> Router<String> {
    service.layer(DeadlineLayer::default().unfenced([Method::GET]))
}
// --- page

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = env::args().skip(1);
    let is_on = words.next().as_deref() == Some("on");
    let service = Router::new().route("/{*rest}", any(work));
    let service = if is_on { in_time(service) } else { service };
    let service = service.with_state(words.next().ok_or("which file?")?);
    let port = words.next().map_or(Ok(0), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    writeln!(io::stdout(), "listening on {}", listener.local_addr()?)?;
    Ok(axum::serve(listener, service).await?)
}
