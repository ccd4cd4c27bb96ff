//! Determines the result of the bytes that arrived late, by querying the guard and the ledger until one of them has
//! received them.

use std::time::Duration;

use fencegate_http_client::json_client::JsonClient;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::error::DemoError;
use crate::status_queries::{SOON, fetch_executions, get};

/// The result of the late bytes.
#[derive(Debug)]
pub(super) enum LateWriteOutcome {
    Refused { presented: String, newest: String },
    Executed { token: String },
    NotFound,
}

/// The process that compares tokens and reports its latest refusal.
pub(super) enum DemoTokenChecker<'a> {
    /// The guard refuses the late bytes before the ledger sees them. It reports the account.
    Guard { guard: &'a mut JsonClient, account: &'a str },
    /// The ledger compares tokens itself. It reports the operation of the late bytes.
    Ledger,
}

/// Queries until there is a refusal of the late bytes or a second execution.
pub(super) async fn find_late_write(
    mut judge: DemoTokenChecker<'_>,
    ledger: &mut JsonClient,
    operation: &str,
) -> Result<LateWriteOutcome, DemoError> {
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        if let Some(late) = judge.find_late_refusal(ledger, operation).await? {
            return Ok(late);
        }
        if let Some(late) = find_second_execution(ledger, operation).await? {
            return Ok(late);
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(LateWriteOutcome::NotFound)
}

impl DemoTokenChecker<'_> {
    /// The latest refusal, if it concerns the late bytes.
    async fn find_late_refusal(
        &mut self,
        ledger: &mut JsonClient,
        operation: &str,
    ) -> Result<Option<LateWriteOutcome>, DemoError> {
        let (latest, is_of_the_late) = match self {
            Self::Guard { guard, account } => {
                let latest = get(guard, "/api/v1/refusals").await?["latest"].take();
                let is_of_the_late = latest["keys"][0] == format!("account/{account}");
                (latest, is_of_the_late)
            }
            Self::Ledger => {
                let latest = get(ledger, "/v1/refusals").await?["latest"].take();
                let is_of_the_late = latest["operation"] == operation;
                (latest, is_of_the_late)
            }
        };
        let late = || LateWriteOutcome::Refused {
            presented: text(&latest["presented"]),
            newest: text(&latest["newest"]),
        };
        Ok(is_of_the_late.then(late))
    }
}

async fn find_second_execution(
    ledger: &mut JsonClient,
    operation: &str,
) -> Result<Option<LateWriteOutcome>, DemoError> {
    let executions = fetch_executions(ledger).await?;
    let mut of_operation = executions.iter().filter(|execution| execution.operation == operation).skip(1);
    Ok(of_operation
        .next()
        .map(|second| LateWriteOutcome::Executed { token: second.token.clone().unwrap_or_default() }))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
