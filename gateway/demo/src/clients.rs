//! A client: it pays, repeats a payment that was certainly not dispatched, and records the responses.

use std::net::SocketAddr;
use std::time::Duration;

use fencegate_http_client::json_client::{JsonClient, JsonClientError, JsonClientResponse};
use hyper::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// A client's change of one account, with an operation of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Payment {
    pub(super) operation: String,
    pub(super) account: String,
    /// Cents; negative for a debit, never 0.
    pub(super) change: i64,
}

/// The outcome of a payment, as its client received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PaymentResult {
    pub(super) payment: Payment,
    pub(super) outcome: PaymentOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PaymentOutcome {
    Done {
        token: Option<String>,
    },
    /// The payment had no effect.
    Refused(String),
    /// The payment may have had an effect.
    Unknown(String),
}

/// Many clients at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct PayingClients<'a> {
    /// The gateways, over which the clients are spread.
    pub(super) gateways: &'a [SocketAddr],
    pub(super) accounts: &'a [&'a str],
    pub(super) clients: usize,
    /// How many payments each client makes, one after another.
    pub(super) payments: usize,
}

/// The time limit for one response. It is longer than a gateway waits for a lock and for the ledger together.
const PATIENCE: Duration = Duration::from_secs(25);
/// The time limit for a payment with its repetitions.
const PERSISTENCE: Duration = Duration::from_secs(30);

impl PayingClients<'_> {
    /// Returns when every client has made its payments.
    pub(super) async fn pay(self) -> Vec<PaymentResult> {
        let mut clients = JoinSet::new();
        for client in 0..self.clients {
            let mut client_of = JsonClient::new(self.gateways[client % self.gateways.len()]);
            let payments: Vec<_> = (0..self.payments).map(|_| Payment::random(self.accounts)).collect();
            clients.spawn(async move {
                let mut receipts = Vec::new();
                for payment in payments {
                    receipts.push(pay(&mut client_of, payment).await);
                }
                receipts
            });
        }
        clients.join_all().await.into_iter().flatten().collect()
    }
}

/// Pays once. Repeats the request only while the response reports that nothing was dispatched.
pub(super) async fn pay(client: &mut JsonClient, payment: Payment) -> PaymentResult {
    let deadline = Instant::now() + PERSISTENCE;
    loop {
        let answer = send_payment(client, &payment).await;
        let again = match &answer {
            Ok(answer) => answer.outcome.as_deref() == Some("not-dispatched") && is_temporary(answer.status),
            Err(unanswered) => matches!(unanswered, JsonClientError::Connect(_)),
        };
        if !again || Instant::now() > deadline {
            return PaymentResult { payment, outcome: PaymentOutcome::from_response(answer) };
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Sends the payment once.
pub(super) async fn send_payment(
    client: &mut JsonClient,
    payment: &Payment,
) -> Result<JsonClientResponse, JsonClientError> {
    let direction = if payment.change < 0 { "debit" } else { "credit" };
    let path = format!("/v1/accounts/{}/{direction}", payment.account);
    let body = json!({ "operation": payment.operation, "amount": payment.change.abs() });
    client.post_once(&path, &payment.operation, &body, PATIENCE).await
}

fn is_temporary(status: StatusCode) -> bool {
    matches!(status.as_u16(), 423 | 429 | 502 | 503)
}

impl Payment {
    pub(super) fn new(account: &str, change: i64) -> Self {
        Self { operation: format!("pay-{:016x}", random_number()), account: account.to_owned(), change }
    }

    /// A debit or credit of up to 5.00 on one of the accounts.
    fn random(accounts: &[&str]) -> Self {
        let random = random_number();
        let account = accounts[usize::try_from(random % 64).expect("below 64") % accounts.len()];
        let cents = 1 + i64::try_from((random >> 8) % 500).expect("below 500");
        Self::new(account, if random & 1 << 63 == 0 { cents } else { -cents })
    }
}

impl PaymentOutcome {
    pub(super) fn from_response(answer: Result<JsonClientResponse, JsonClientError>) -> Self {
        let answer = match answer {
            Ok(answer) => answer,
            Err(unanswered @ JsonClientError::Connect(_)) => return Self::Refused(unanswered.to_string()),
            Err(unanswered) => return Self::Unknown(unanswered.to_string()),
        };
        let summary = || {
            let reason = answer.body["reason"].as_str().unwrap_or("without a reason");
            format!("{} {reason}", answer.status.as_u16())
        };
        match answer.outcome.as_deref() {
            Some("done" | "replayed") if answer.status.is_success() => Self::Done { token: answer.token },
            Some("done" | "replayed" | "not-dispatched") => Self::Refused(summary()),
            // Without a fence the service's status is the only report.
            None if answer.status.is_success() => Self::Done { token: None },
            _ => Self::Unknown(summary()),
        }
    }
}

fn random_number() -> u64 {
    getrandom::u64().expect("the kernel has random numbers after its start")
}
