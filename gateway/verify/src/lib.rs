//! Sends tokens to a service that claims to compare them, and judges its answers and effects from outside.
//!
//! - [`cases`]: the list of all tests. Begin here. [`case`] says what a test is, [`step`] is the language of its steps
//! - [`service`]: the service under test, with its requests from [`template`]s
//! - [`runners`]: run a case with the tools of its [`context`]; each [`sent_request`] has a [`connection`] of its own
//! - [`linearizable`]: judges overlapping requests; [`effects`]: counts their effects
//! - [`case_result`], [`report`]: the results, and how they are printed
//!
//! Neither a gateway nor ZooKeeper is needed or used: the tokens are made here ([`token_headers`]).

// `println!` panics when the reader is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod case;
pub mod case_result;
pub mod cases;
pub mod connection;
pub mod context;
pub mod effects;
pub mod linearizable;
pub mod report;
pub mod runners;
pub mod sent_request;
pub mod service;
pub mod step;
pub mod template;
pub mod token_headers;

use std::{io, time::Duration};

use tokio::time::Instant;

use self::{
    case_result::{CaseResult, PassStrength},
    context::{RequestTemplateKind, TestContext, TestRequestSpec},
    effects::{EffectCalibration, EffectSource},
    report::{CaseReport, VerifyReport},
    sent_request::ServiceRequestOutcome,
    service::TestedService,
    token_headers::{SyntheticTokenHeaders, epoch},
};

/// Nothing could be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyServiceError {
    #[error("{url}: {why}")]
    Unreachable { url: String, why: connection::ServiceRequestError },
    #[error(
        "{url} is a gateway, which replaces every token by its own: name the address of the service behind it"
    )]
    Gateway { url: String },
    #[error("cannot start the async runtime")]
    Runtime(#[from] io::Error),
}

/// The form of the generated keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestKeyAlphabet {
    /// 16 letters and digits.
    Alphanumeric,
    /// 15 digits, the first of which is not 0.
    Numeric,
}

impl TestKeyAlphabet {
    /// A beginning for all keys of one run, which no other run has.
    fn random_key_prefix(self) -> Result<String, io::Error> {
        let random = getrandom::u64().map_err(io::Error::other)?;
        Ok(match self {
            Self::Alphanumeric => {
                let letters = (0..9).map(|place| {
                    let letter = u8::try_from(random >> (5 * place) & 31).expect("five bits");
                    char::from(b"abcdefghijkmnpqrstuvwxyz23456789"[usize::from(letter)])
                });
                format!("fv{}", letters.collect::<String>())
            }
            Self::Numeric => (1_000_000_000 + random % 9_000_000_000).to_string(),
        })
    }
}

/// Runs all cases that apply. `on_result` gets each result as soon as it is known.
///
/// # Errors
/// Returns a [`VerifyServiceError`] if there was no service to test.
pub fn verify(
    service: &TestedService,
    names: TestKeyAlphabet,
    mut on_result: impl FnMut(&CaseReport),
) -> Result<VerifyReport, VerifyServiceError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let began = Instant::now();
        let context = measure_service(service, names.random_key_prefix()?).await?;
        let strength =
            if service.sight.is_observable() { PassStrength::Effects } else { PassStrength::Answers };
        let mut entries = Vec::new();
        for case in cases::all() {
            let entry = match case.skip_reason(service) {
                Some(reason) => CaseReport::skipped(case, reason),
                None => {
                    let began = Instant::now();
                    let (outcome, events) = runners::run_case(&context, case).await;
                    CaseReport {
                        case,
                        verdict: CaseResult::from_outcome(outcome, strength),
                        events,
                        took: began.elapsed(),
                    }
                }
            };
            on_result(&entry);
            entries.push(entry);
        }
        Ok(VerifyReport { entries, took: began.elapsed(), hint: context.hint.clone() })
    })
}

/// The hint for a user whose service has refused the first request, although that has a good token for a key of
/// its own. Every case is undecided then, for the same reason.
fn refusal_hint(came: &ServiceRequestOutcome, fencing_key: &str) -> Option<String> {
    let ServiceRequestOutcome::Refused(status, said) = came else { return None };
    let look = match status {
        401 => "it asks who the client is: `--header 'Authorization: ...'` says it".to_owned(),
        403 => format!(
            "it may compare the key of the request with `Fencing-Key`, which has `{fencing_key}` here. `--fencing-key` says how the \
             policy of the gateway writes it, such as `--fencing-key 'account/{{key}}'`"
        ),
        404 => {
            "it has to accept keys that it has never seen, or to make them when they are asked for".to_owned()
        }
        _ => "see `--request`, `--body` and `--header`".to_owned(),
    };
    Some(format!(
        "the first request, with a good token for a new key, was answered {status} {said:?}: {look}."
    ))
}

/// Checks that a service answers, and measures how long a write takes and what one effect changes.
async fn measure_service<'a>(
    service: &'a TestedService,
    run: String,
) -> Result<TestContext<'a>, VerifyServiceError> {
    for instance in &service.instances {
        let unreachable = |why| VerifyServiceError::Unreachable { url: instance.url.clone(), why };
        instance.open().await.map_err(unreachable)?;
    }
    let mut context = TestContext::new(service, run);
    let keys = context.fresh_keys();
    let mut seen = vec![context.read_effects(&keys).await.ok().flatten()];
    let mut paces = Vec::new();
    for number in 1..=3 {
        let spec = TestRequestSpec {
            ask: RequestTemplateKind::Write,
            keys: &keys,
            stamp: SyntheticTokenHeaders::Whole(epoch(number)),
            at: 0,
            operation: None,
        };
        let shot = context.send(spec).await;
        if shot.passed_a_gateway {
            return Err(VerifyServiceError::Gateway { url: service.instances[0].url.clone() });
        }
        paces.push(shot.ended - shot.began);
        if number == 1 {
            context.hint = refusal_hint(&shot.came, &service.fencing_key);
        }
        seen.push(context.read_effects(&keys).await.ok().flatten());
    }
    paces.sort_unstable();
    context.pace = paces[1].clamp(Duration::from_millis(1), Duration::from_secs(5));
    if let ([Some(before), Some(one), Some(two), ..], EffectSource::Observe { .. }) = (&*seen, &service.sight)
    {
        context.scale = EffectCalibration::learn(before, one, two);
    }
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a service refuses a good request, the report hints at the cause, and does not claim that the service
    /// compares badly.
    #[test]
    fn first_refusal_is_explained() {
        let refused =
            |status| ServiceRequestOutcome::Refused(status, "the fence is of another account".into());
        for (status, named) in [
            (403, "`--fencing-key 'account/{key}'`"),
            (404, "never seen"),
            (401, "Authorization"),
            (422, "`--body`"),
        ] {
            let hint = refusal_hint(&refused(status), "{key}").expect("refused");
            assert!(hint.contains(named) && hint.contains(&status.to_string()), "{hint}");
        }
        for fine in [ServiceRequestOutcome::Accepted(200), ServiceRequestOutcome::Stale] {
            assert_eq!(refusal_hint(&fine, "{key}"), None);
        }
    }
}
