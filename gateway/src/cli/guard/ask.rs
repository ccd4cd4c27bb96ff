//! Talks to the admin listener of a guard.

use std::{io, time::Duration};

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Outcome, Verb,
    text::{self, Key},
};
use crate::{
    admin::guard::Open,
    cli::log::Format,
    client::{Answer, Client, Unanswered},
};

/// Why nothing could be said or done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("start a runtime")]
    Runtime(#[source] io::Error),
    #[error("find the guard at {admin}")]
    NoHost { admin: String, source: io::Error },
    #[error("ask the guard at {admin}")]
    Unanswered { admin: String, source: Unanswered },
    #[error("{said}; `fencegate guard show` lists what is unknown")]
    NotFound { said: String },
    #[error("the guard at {admin} answers {status}: {said}")]
    Refused { admin: String, status: StatusCode, said: String },
    #[error("{admin} is not the admin address of a guard")]
    NoGuard { admin: String },
}

/// What is to be printed.
pub(super) fn run(verb: &Verb, admin: &str) -> Result<String, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Trouble::Runtime)?.block_on(async {
        let mut guard = Guard::at(admin).await?;
        match verb {
            Verb::Show { about, guard: running } => guard.show(about.as_deref(), running.format).await,
            Verb::Resolve { reference, outcome, guard: running } => {
                guard.resolve(reference, *outcome, running.format).await
            }
            Verb::Forget { reference, guard: running } => guard.forget(reference, running.format).await,
        }
    })
}

/// For one answer: what is decided has to be written to a disk.
const PATIENCE: Duration = Duration::from_secs(30);

struct Guard<'a> {
    admin: &'a str,
    client: Client,
}

#[derive(Deserialize)]
struct Operations {
    operations: Vec<Open>,
}

impl<'a> Guard<'a> {
    async fn at(admin: &'a str) -> Result<Self, Trouble> {
        let no_host = |source| Trouble::NoHost { admin: admin.to_owned(), source };
        let mut found = tokio::net::lookup_host(admin).await.map_err(no_host)?;
        let address = found.next().ok_or_else(|| no_host(io::ErrorKind::NotFound.into()))?;
        Ok(Self { admin, client: Client::of(address) })
    }

    async fn show(&mut self, about: Option<&str>, format: Format) -> Result<String, Trouble> {
        let open = self.open().await?;
        let Some(about) = about else {
            return Ok(match format {
                Format::Text => text::all(&open),
                Format::Json => pretty(&json!({ "operations": open })),
            });
        };
        if let Some(one) = open.iter().find(|open| open.reference == about) {
            return Ok(match format {
                Format::Text => text::one(one),
                Format::Json => pretty(&json!(one)),
            });
        }
        let known = self.get(&format!("/api/v1/keys/{}", encoded(about))).await?;
        if format == Format::Json {
            return Ok(pretty(&known));
        }
        let key: Key = self.read(known)?;
        Ok(text::key(&key, open.iter().filter(|open| key.is_of(open))))
    }

    async fn resolve(
        &mut self,
        reference: &str,
        outcome: Outcome,
        format: Format,
    ) -> Result<String, Trouble> {
        // Before: afterwards it is not open any more.
        let open = self.open().await?;
        let path = format!("/api/v1/operations/{}/resolve", encoded(reference));
        self.post(&path, &json!({ "outcome": outcome })).await?;
        let about = open.iter().find(|open| open.reference == reference);
        Ok(match format {
            Format::Text => text::resolved(reference, outcome, about),
            Format::Json => pretty(&json!({ "resolved": reference, "as": outcome })),
        })
    }

    async fn forget(&mut self, reference: &str, format: Format) -> Result<String, Trouble> {
        let path = format!("/api/v1/operations/{}/forget", encoded(reference));
        self.post(&path, &json!({})).await?;
        Ok(match format {
            Format::Text => {
                format!("{reference}: forgotten, with the answer that was kept. A repeat of it runs again.")
            }
            Format::Json => pretty(&json!({ "forgotten": reference })),
        })
    }

    async fn open(&mut self) -> Result<Vec<Open>, Trouble> {
        let told = self.get("/api/v1/operations").await?;
        Ok(self.read::<Operations>(told)?.operations)
    }

    async fn get(&mut self, path: &str) -> Result<Value, Trouble> {
        let answer = self.client.get(path, PATIENCE).await;
        self.body(answer)
    }

    async fn post(&mut self, path: &str, body: &Value) -> Result<Value, Trouble> {
        let answer = self.client.post(path, body, PATIENCE).await;
        self.body(answer)
    }

    fn body(&self, answer: Result<Answer, Unanswered>) -> Result<Value, Trouble> {
        let admin = self.admin.to_owned();
        let answer = match answer {
            Ok(answer) => answer,
            Err(source) => return Err(Trouble::Unanswered { admin, source }),
        };
        match (answer.status, answer.body["error"].as_str().map(str::to_owned)) {
            (StatusCode::OK, _) => Ok(answer.body),
            (StatusCode::NOT_FOUND, Some(said)) => Err(Trouble::NotFound { said }),
            (status, Some(said)) => Err(Trouble::Refused { admin, status, said }),
            (_, None) => Err(Trouble::NoGuard { admin }),
        }
    }

    fn read<T: serde::de::DeserializeOwned>(&self, told: Value) -> Result<T, Trouble> {
        serde_json::from_value(told).map_err(|_| Trouble::NoGuard { admin: self.admin.to_owned() })
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

/// As one segment of a path: the slashes of a key mean nothing there.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
