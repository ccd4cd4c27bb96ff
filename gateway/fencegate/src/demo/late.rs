//! What became of the bytes that arrived late: asked of the guard and of the ledger, until one of them has seen them.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    told::{SOON, executions, get},
    trouble::Trouble,
};
use crate::client::Client;

/// What became of the late bytes.
#[derive(Debug)]
pub(super) enum Late {
    Refused { presented: String, newest: String },
    Executed { token: String },
    Nowhere,
}

/// The guard turns them away before the ledger sees them.
pub(super) async fn at_guard(
    guard: &mut Client,
    ledger: &mut Client,
    account: &str,
    operation: &str,
) -> Result<Late, Trouble> {
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        let latest = get(guard, "/api/v1/refusals").await?["latest"].take();
        if latest["keys"][0] == format!("account/{account}") {
            return Ok(Late::Refused {
                presented: text(&latest["presented"]),
                newest: text(&latest["newest"]),
            });
        }
        if let Some(late) = executed_again(ledger, operation).await? {
            return Ok(late);
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(Late::Nowhere)
}

async fn executed_again(ledger: &mut Client, operation: &str) -> Result<Option<Late>, Trouble> {
    let executions = executions(ledger).await?;
    let mut of_operation = executions.iter().filter(|execution| execution.operation == operation).skip(1);
    Ok(of_operation.next().map(|second| Late::Executed { token: second.token.clone().unwrap_or_default() }))
}

pub(super) async fn at_ledger(ledger: &mut Client, operation: &str) -> Result<Late, Trouble> {
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        let latest = get(ledger, "/v1/refusals").await?["latest"].take();
        if latest["operation"] == operation {
            return Ok(Late::Refused {
                presented: text(&latest["presented"]),
                newest: text(&latest["newest"]),
            });
        }
        if let Some(late) = executed_again(ledger, operation).await? {
            return Ok(late);
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(Late::Nowhere)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
