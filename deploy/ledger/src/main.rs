//! A small payment and stock service that refuses stale fencing tokens in the transaction that would have the effect.
//!
//! It is an example of an upstream, and the witness of the demo and the tests, because it remembers every execution.
//! Reading order: `routes` is the HTTP interface, `fencing` the fields of the gateway, which `fencegate-upstream`
//! reads, `store` the database, and `watermarks` the statements that compare.

mod fencing;
mod order;
mod problem;
mod routes;
mod store;
mod watermarks;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderName;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::fencing::{FieldSettings, TokenComparison};
use crate::store::LedgerStore;

/// A sample payment and stock service that compares fencing tokens in its own transaction.
#[derive(Debug, Parser)]
#[command(version)]
struct LedgerArgs {
    /// The address to listen at; port 0 takes a free one. The address is printed as one JSON line.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The SQLite file; without it a temporary one that goes with the process.
    #[arg(long)]
    database: Option<PathBuf>,
    /// What to compare with the last execution on the same key.
    #[arg(long, value_enum, default_value_t = TokenComparison::Token)]
    compare: TokenComparison,
    /// The header field that carries the token.
    #[arg(long, default_value = "fencing-token")]
    token_field: HeaderName,
    /// The header field that carries the number.
    #[arg(long, default_value = "fencing-number")]
    number_field: HeaderName,
    /// Refuse what comes after `Fencing-Not-After` as well, before tokens are compared. The value is the most by which the
    /// wall clocks of sender and service differ.
    #[arg(long, value_parser = humantime::parse_duration)]
    clock_error: Option<Duration>,
    /// How long the business logic takes; for demos and tests.
    #[arg(long, default_value = "0ms", value_parser = humantime::parse_duration)]
    work_time: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = LedgerArgs::parse();
    let book = match &arguments.database {
        Some(file) => LedgerStore::open(file, arguments.work_time)?,
        None => LedgerStore::temporary(arguments.work_time)?,
    };
    let fields = FieldSettings {
        token: arguments.token_field,
        number: arguments.number_field,
        clock_error: arguments.clock_error,
    };
    let service = routes::router(Arc::new(book), arguments.compare, fields);

    let listener = TcpListener::bind(arguments.listen).await?;
    announce(listener.local_addr()?)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    axum::serve(listener, service).with_graceful_shutdown(stop).await?;
    Ok(())
}

/// The parent process reads this line to learn the port.
fn announce(address: SocketAddr) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", serde_json::json!({ "listening": address }))?;
    stdout.flush()
}
