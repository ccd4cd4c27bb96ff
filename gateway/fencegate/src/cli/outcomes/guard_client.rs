//! Queries the admin listener of a guard.

use fencegate_admin::{
    extract::ResolvedOutcome, models::encode_path_segment, outcomes::GuardUnresolvedEntry,
};
use fencegate_process::command_hint;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    args::OutcomesCommand,
    render::{self, GuardKeyStatus},
};
use crate::cli::{
    admin_client::{self, AdminClient, AdminClientError, AdminTarget, CommandHintTarget},
    log::OutputFormat,
};

/// Runs the verb and returns the text to print.
pub(in crate::cli) fn run(verb: &OutcomesCommand, found: &AdminTarget) -> Result<String, AdminClientError> {
    admin_client::with_client(found, CommandHintTarget::Guard, async |asker| {
        let mut guard = GuardAdminClient(asker);
        match verb {
            OutcomesCommand::Show { about, guard: running } => {
                guard.show_unknown_outcomes(about.as_deref(), running.format).await
            }
            OutcomesCommand::Resolve { reference, outcome, force, guard: running } => {
                guard.resolve(reference, *outcome, *force, running.format).await
            }
            OutcomesCommand::Forget { reference, guard: running } => {
                guard.forget(reference, running.format).await
            }
        }
    })
}

struct GuardAdminClient<'a>(&'a mut AdminClient);

#[derive(Deserialize)]
struct GuardOperationList {
    operations: Vec<GuardUnresolvedEntry>,
}

impl GuardAdminClient<'_> {
    async fn show_unknown_outcomes(
        &mut self,
        about: Option<&str>,
        format: OutputFormat,
    ) -> Result<String, AdminClientError> {
        let open = self.unknown_outcomes().await?;
        let Some(about) = about else {
            return Ok(match format {
                OutputFormat::Text => render::list_text(&open),
                OutputFormat::Json => pretty(&json!({ "operations": open })),
            });
        };
        if let Some(one) = open.iter().find(|open| open.reference == about) {
            return Ok(match format {
                OutputFormat::Text => render::describe(one),
                OutputFormat::Json => pretty(&json!(one)),
            });
        }
        let known = self.get(&format!("/api/v1/keys/{}", encode_path_segment(about))).await?;
        if format == OutputFormat::Json {
            return Ok(pretty(&known));
        }
        let key: GuardKeyStatus = self.0.parse(known)?;
        Ok(render::key_text(&key, open.iter().filter(|open| key.is_key_of_entry(open))))
    }

    async fn resolve(
        &mut self,
        reference: &str,
        outcome: ResolvedOutcome,
        force: bool,
        format: OutputFormat,
    ) -> Result<String, AdminClientError> {
        // The list is read before the request is resolved, because it no longer contains the request
        // afterwards.
        let open = self.unknown_outcomes().await?;
        let path = format!("/api/v1/operations/{}/resolve", encode_path_segment(reference));
        // `force` is left out unless needed, because a guard of an earlier build does not support it.
        let mut body = json!({ "outcome": outcome });
        if force {
            body["force"] = true.into();
        }
        self.post(&path, &body).await?;
        let about = open.iter().find(|open| open.reference == reference);
        Ok(match format {
            OutputFormat::Text => render::resolved_text(reference, outcome, about),
            OutputFormat::Json => pretty(&json!({ "resolved": reference, "as": outcome })),
        })
    }

    async fn forget(&mut self, reference: &str, format: OutputFormat) -> Result<String, AdminClientError> {
        let path = format!("/api/v1/operations/{}/forget", encode_path_segment(reference));
        self.post(&path, &json!({})).await?;
        Ok(match format {
            OutputFormat::Text => {
                format!("{reference}: forgotten, with the answer that was kept. A repeat of it runs again.")
            }
            OutputFormat::Json => pretty(&json!({ "forgotten": reference })),
        })
    }

    async fn unknown_outcomes(&mut self) -> Result<Vec<GuardUnresolvedEntry>, AdminClientError> {
        let response = self.get("/api/v1/operations").await?;
        Ok(self.0.parse::<GuardOperationList>(response)?.operations)
    }

    async fn get(&mut self, path: &str) -> Result<Value, AdminClientError> {
        self.0.get(path).await.map_err(with_show_hint)
    }

    async fn post(&mut self, path: &str, body: &Value) -> Result<Value, AdminClientError> {
        self.0.post(path, body).await.map_err(with_show_hint)
    }
}

fn with_show_hint(error: AdminClientError) -> AdminClientError {
    match error {
        AdminClientError::NotFound { said } => {
            let show = command_hint::command_line(CommandHintTarget::Guard, "guard show");
            AdminClientError::NotFound { said: format!("{said}; `{show}` lists what is unknown") }
        }
        other => other,
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}
