//! The tools of every case: unused keys, requests, and readings of their effects.

use std::{cell::Cell, time::Duration};

use fencegate_protocol::headers::{FENCING_KEY, FENCING_MODE, FENCING_NOT_AFTER, FENCING_OUTCOME};
use hyper::header::{HeaderName, HeaderValue};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use super::{
    case_result::{CaseError, CaseStepRecord},
    connection::{ServiceConnection, ServiceRequestError},
    effects::{self, EffectCalibration, EffectReadingDiff, EffectSource, ObservedEffectValue},
    sent_request::{ServiceRequestOutcome, TestRequestRecord},
    service::{DeadlineSupport, TestedService},
    template::{RenderedRequest, RequestTemplate, RequestTemplateValues},
    token_headers::{SyntheticToken, SyntheticTokenHeaders},
};

/// The service under test, and the facts about it so far.
pub(crate) struct TestContext<'a> {
    pub service: &'a TestedService,
    /// The prefix of all keys of this run.
    run: String,
    next: Cell<u32>,
    /// How long a write takes.
    pub pace: Duration,
    pub scale: Option<EffectCalibration>,
    /// A hint for the user, if the service has refused the first request.
    pub hint: Option<String>,
}

/// The keys of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestKeys {
    pub key: String,
    /// The value of `{other}`.
    pub other: String,
    /// The keys in the form in which a gateway lists them.
    listed: String,
}

/// A request to send.
#[derive(Debug, Clone, Copy)]
pub struct TestRequestSpec<'a> {
    pub ask: RequestTemplateKind,
    pub keys: &'a TestKeys,
    pub stamp: SyntheticTokenHeaders,
    /// The index of the instance.
    pub at: usize,
    /// The value of `{operation}`. Default: a new one.
    pub operation: Option<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestTemplateKind {
    Write,
    /// The write that takes long.
    Slow,
    /// The write of another kind.
    WriteOther,
    Read,
}

/// A request with its connection, before it is sent.
pub struct PreparedTestRequest {
    socket: Result<ServiceConnection, ServiceRequestError>,
    filled: RenderedRequest,
    sent: String,
    mint: Option<SyntheticToken>,
    patience: Duration,
}

/// The name of the operation, as a guard sends it with a probe.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl<'a> TestContext<'a> {
    pub(crate) fn new(service: &'a TestedService, run: String) -> Self {
        Self { service, run, next: Cell::new(0), pace: Duration::from_millis(5), scale: None, hint: None }
    }

    fn fresh_name(&self) -> String {
        let next = self.next.get() + 1;
        self.next.set(next);
        // All keys have one length, so that none is the beginning of another.
        format!("{}{next:05}", self.run)
    }

    /// An unused key, with a second one if the request names two.
    pub(crate) fn fresh_keys(&self) -> TestKeys {
        self.keys_for_write(self.fresh_name(), self.fresh_name())
    }

    /// Two given keys, used or unused.
    pub(crate) fn keys_for_write(&self, key: String, other: String) -> TestKeys {
        let both = self.service.write.names_two_keys();
        self.test_keys(key, other, both)
    }

    /// A request that lists both keys, even if it names only one.
    pub(crate) fn keys_for_both(&self, key: String, other: String) -> TestKeys {
        self.test_keys(key, other, true)
    }

    fn test_keys(&self, key: String, other: String, both: bool) -> TestKeys {
        let called = |key: &str| self.service.fencing_key.replace("{key}", key);
        let mut listed = vec![called(&key)];
        if both {
            listed.push(called(&other));
            listed.sort();
        }
        TestKeys { listed: listed.join(", "), key, other }
    }

    /// Sends a write and returns its answer.
    pub(crate) async fn write(&self, keys: &TestKeys, token: SyntheticToken) -> TestRequestRecord {
        let stamp = SyntheticTokenHeaders::Whole(token);
        self.send(TestRequestSpec { ask: RequestTemplateKind::Write, keys, stamp, at: 0, operation: None })
            .await
    }

    pub(crate) async fn send(&self, spec: TestRequestSpec<'_>) -> TestRequestRecord {
        self.prepare(spec).await.send_now().await
    }

    /// Probes the outcome of an operation, with the fields that a guard sends.
    ///
    /// # Panics
    /// Panics if the service has no probe. Only cases that need a probe call this.
    pub(crate) async fn probe_outcome(
        &self,
        operation: &str,
        stamp: SyntheticTokenHeaders,
        at: usize,
    ) -> TestRequestRecord {
        let probe = self.service.probe.as_ref().expect("the case needs it");
        let mut filled =
            probe.ask.render(&RequestTemplateValues { operation, ..RequestTemplateValues::default() });
        let stamp = stamp.headers(&self.service.fields);
        let token = stamp.iter().map(format_header).collect::<Vec<_>>().join(", ");
        filled.fields.extend(stamp);
        let name = HeaderValue::from_str(operation).expect("letters and digits");
        filled.fields.push((IDEMPOTENCY_KEY, name));
        let socket = self.service.instances[at % self.service.instances.len()].open().await;
        let sent = format!("{} {}, {token}", filled.method, filled.target);
        PreparedTestRequest { socket, filled, sent, mint: None, patience: self.service.patience }
            .send_now()
            .await
    }

    /// Renders a request and connects to the instance, but sends nothing.
    pub(crate) async fn prepare(&self, spec: TestRequestSpec<'_>) -> PreparedTestRequest {
        let template = self.template(spec.ask);
        let operation = spec.operation.map_or_else(|| format!("op-{}", self.fresh_name()), str::to_owned);
        let places =
            RequestTemplateValues { key: &spec.keys.key, other: &spec.keys.other, operation: &operation };
        let mut filled = template.render(&places);
        let stamp = spec.stamp.headers(&self.service.fields);
        let shown = stamp.iter().map(format_header).collect::<Vec<_>>().join(", ");
        let mode = if spec.ask == RequestTemplateKind::Read { "shared" } else { "exclusive" };
        filled.fields.extend(stamp);
        let not_after = self.not_after_headers(spec.stamp);
        let deadline =
            not_after.iter().map(|field| format!(", {}", format_header(field))).collect::<String>();
        filled.fields.extend(not_after);
        filled.fields.push((FENCING_MODE, HeaderValue::from_static(mode)));
        let listed = HeaderValue::from_str(&spec.keys.listed).expect("looked at when it was read");
        filled.fields.push((FENCING_KEY, listed));
        let socket = self.service.instances[spec.at % self.service.instances.len()].open().await;
        let token = if shown.is_empty() { "without a token" } else { &shown };
        let sent = format!("{} {}, {token}{deadline}", filled.method, filled.target);
        PreparedTestRequest {
            socket,
            filled,
            sent,
            mint: spec.stamp.synthetic_token(),
            patience: self.service.patience,
        }
    }

    /// `Fencing-Not-After`, where the service claims to check it.
    fn not_after_headers(&self, stamp: SyntheticTokenHeaders) -> Vec<(HeaderName, HeaderValue)> {
        let texts = match self.service.deadlines {
            DeadlineSupport::Enforced => stamp.deadline_field().deadline_header_values(),
            DeadlineSupport::Unclaimed => Vec::new(),
        };
        let field = |text: String| {
            (
                FENCING_NOT_AFTER,
                HeaderValue::from_str(&text).expect("digits, or a text without control characters"),
            )
        };
        texts.into_iter().map(field).collect()
    }

    fn template(&self, ask: RequestTemplateKind) -> &RequestTemplate {
        match ask {
            RequestTemplateKind::Write => &self.service.write,
            RequestTemplateKind::Slow => self.service.slow.as_ref().unwrap_or(&self.service.write),
            RequestTemplateKind::WriteOther => self.service.also.as_ref().unwrap_or(&self.service.write),
            RequestTemplateKind::Read => &self.service.read,
        }
    }

    /// Reads the effects on the first key; `None` if effects cannot be seen.
    pub(crate) async fn read_effects(
        &self,
        keys: &TestKeys,
    ) -> Result<Option<ObservedEffectValue>, CaseError> {
        if self.service.sight.is_observable() {
            sleep(self.service.settle).await;
        }
        let blind = |reason: String| CaseError::Undecided(format!("effects cannot be seen: {reason}"));
        match &self.service.sight {
            EffectSource::Answers => Ok(None),
            EffectSource::File(file) => effects::count_lines(file, &keys.key).map(Some).map_err(blind),
            EffectSource::Observe { ask, pick } => {
                let places = RequestTemplateValues { key: &keys.key, other: &keys.other, operation: "look" };
                let socket = self.service.instances[0].open().await;
                let socket = socket.map_err(|error| blind(error.to_string()))?;
                let answer = socket.send(&ask.render(&places), None, self.service.patience).await;
                let answer = answer.map_err(|error| blind(error.to_string()))?;
                pick.read(&answer, &places).map(Some).map_err(blind)
            }
        }
    }

    /// The change between two readings.
    pub(crate) fn change(
        &self,
        before: Option<&ObservedEffectValue>,
        after: Option<&ObservedEffectValue>,
    ) -> Option<EffectReadingDiff> {
        Some(before?.change_to(after?, self.scale))
    }
}

impl PreparedTestRequest {
    pub(crate) async fn send_now(self) -> TestRequestRecord {
        let began = Instant::now();
        let answer = match self.socket {
            Ok(socket) => socket.send(&self.filled, None, self.patience).await,
            Err(unanswered) => Err(unanswered),
        };
        let passed_a_gateway =
            answer.as_ref().is_ok_and(|answer| answer.fields.contains_key(FENCING_OUTCOME));
        let came = ServiceRequestOutcome::from_response(answer);
        TestRequestRecord {
            sent: self.sent,
            mint: self.mint,
            began,
            ended: Instant::now(),
            came,
            passed_a_gateway,
        }
    }

    /// Sends a request, but the second half of its body only after `until`. The request counts as begun at that
    /// moment.
    pub(crate) async fn send_held(self, until: oneshot::Receiver<()>) -> TestRequestRecord {
        let (sender, released) = oneshot::channel();
        let (go, gate) = oneshot::channel();
        let pass_on = async {
            until.await.ok();
            sender.send(Instant::now()).ok();
            go.send(()).ok();
            std::future::pending::<()>().await;
        };
        let sending = async {
            let answer = match self.socket {
                Ok(socket) => socket.send(&self.filled, Some(gate), self.patience).await,
                Err(unanswered) => Err(unanswered),
            };
            ServiceRequestOutcome::from_response(answer)
        };
        let entered = Instant::now();
        let came = tokio::select! {
            came = sending => came,
            () = pass_on => unreachable!("it never ends"),
        };
        let mut released = released;
        let began = released.try_recv().unwrap_or(entered);
        TestRequestRecord {
            sent: self.sent,
            mint: self.mint,
            began,
            ended: Instant::now(),
            came,
            passed_a_gateway: false,
        }
    }
}

impl TestRequestRecord {
    pub fn event(&self, effect: Option<&EffectReadingDiff>) -> CaseStepRecord {
        CaseStepRecord {
            sent: self.sent.clone(),
            came: self.came.to_string(),
            effect: effect.map(ToString::to_string),
        }
    }
}

/// A field as the report shows it; other characters than visible ones are escaped.
fn format_header((name, value): &(HeaderName, HeaderValue)) -> String {
    format!("{name}: {}", value.as_bytes().escape_ascii())
}
