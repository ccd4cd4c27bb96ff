//! A tower layer that refuses requests which come too late to be begun. It needs no database.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response,
    header::{HeaderName, InvalidHeaderValue},
};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    answer::{Answered, Answers, Problems, Refusal, answered},
    clock::Clock,
    not_after::{self, NOT_AFTER, NotAfter},
    stamp::{KEY, are_alike},
};

/// The response field with the clock of the refusing service. The sender measures by it how far the two clocks
/// differ.
const CLOCK: HeaderName = HeaderName::from_static("fencing-clock");

/// The default for the most by which the wall clocks of sender and service differ.
pub(crate) const CLOCK_ERROR: Duration = Duration::from_millis(500);

/// A layer that makes [`DeadlineService`]s.
#[derive(Debug, Clone)]
pub struct DeadlineLayer<A = Problems> {
    timing: DeadlineClock,
    unfenced: Vec<Method>,
    answers: A,
}

/// A service whose inner handler gets requests that came in time, each with its [`Deadline`] among the extensions.
#[derive(Debug, Clone)]
pub struct DeadlineService<S, A = Problems> {
    inner: S,
    layer: DeadlineLayer<A>,
}

/// The deadline of one request, for handlers that wait once more before they begin.
#[derive(Debug, Clone)]
pub struct Deadline {
    not_after: NotAfter,
    timing: DeadlineClock,
}

/// The clock of this machine, and the most by which the sender's clock may differ from it.
#[derive(Debug, Clone)]
pub(crate) struct DeadlineClock {
    clock: Clock,
    clock_error: Duration,
}

impl Deadline {
    /// Whether the deadline has passed, so that the work must not be begun any more. Check it again after each wait
    /// before the work, such as for a thread or a database connection.
    pub fn is_over(&self) -> bool {
        !self.not_after.is_in_time(&self.timing.clock.now(), self.timing.clock_error)
    }

    pub fn not_after(&self) -> &NotAfter {
        &self.not_after
    }
}

impl DeadlineClock {
    /// `clock_error`: the most by which the wall clocks of sender and service differ.
    pub(crate) fn new(clock_error: Duration) -> Self {
        Self { clock: Clock::default(), clock_error }
    }

    /// The deadline of a request that is in time; `None` if the request has no `Fencing-Not-After`.
    ///
    /// # Errors
    /// Returns [`Refusal::NotAfterMalformed`] or [`Refusal::Expired`].
    pub(crate) fn read(&self, headers: &HeaderMap) -> Result<Option<Deadline>, Refusal> {
        let Some(not_after) = not_after::read(headers)? else { return Ok(None) };
        let deadline = Deadline { not_after, timing: self.clone() };
        if deadline.is_over() { Err(Refusal::Expired) } else { Ok(Some(deadline)) }
    }

    /// The answer to a request that the service refuses to begin, with the clock of the service.
    pub(crate) fn refused<B>(&self, answers: &impl Answers<B>, refusal: Refusal) -> Response<B> {
        let mut answer = answers.answer(refusal);
        self.stamp(&mut answer);
        answer
    }

    /// Writes the clock of the service on an answer.
    pub(crate) fn stamp<B>(&self, answer: &mut Response<B>) {
        let wall = self.clock.now().wall_ms;
        let error = self.clock_error.as_millis();
        let value: Result<HeaderValue, InvalidHeaderValue> = format!("{wall};error={error}").try_into();
        answer.headers_mut().insert(CLOCK, value.expect("digits and letters"));
    }
}

impl Default for DeadlineLayer {
    fn default() -> Self {
        Self { timing: DeadlineClock::new(CLOCK_ERROR), unfenced: Vec::new(), answers: Problems }
    }
}

impl<A> DeadlineLayer<A> {
    /// The most by which the wall clocks of sender and service differ; 500 ms by default. It is subtracted from the
    /// deadline, unless sender and service run on the same machine.
    #[must_use]
    pub fn clock_error(self, clock_error: Duration) -> Self {
        Self { timing: DeadlineClock { clock_error, ..self.timing }, ..self }
    }

    /// Lets requests of these methods pass without a deadline if they are not of a fenced route: they have neither
    /// `Fencing-Not-After` nor `Fencing-Key`, in any spelling.
    #[must_use]
    pub fn unfenced(self, methods: impl IntoIterator<Item = Method>) -> Self {
        Self { unfenced: methods.into_iter().collect(), ..self }
    }

    pub fn answering<N>(self, answers: N) -> DeadlineLayer<N> {
        DeadlineLayer { timing: self.timing, unfenced: self.unfenced, answers }
    }

    /// The deadline of the request; `None` if its method passes without one.
    ///
    /// # Errors
    /// Returns the refusals of [`DeadlineClock::read`], and [`Refusal::NotAfterMissing`].
    fn read(&self, method: &Method, headers: &HeaderMap) -> Result<Option<Deadline>, Refusal> {
        let is_ours = |name| are_alike(name, &NOT_AFTER) || are_alike(name, &KEY);
        if self.unfenced.contains(method) && !headers.keys().any(is_ours) {
            return Ok(None);
        }
        self.timing.read(headers)?.map(Some).ok_or(Refusal::NotAfterMissing)
    }
}

impl<S, A: Clone> Layer<S> for DeadlineLayer<A> {
    type Service = DeadlineService<S, A>;

    fn layer(&self, inner: S) -> DeadlineService<S, A> {
        DeadlineService { inner, layer: self.clone() }
    }
}

impl<S, A, Q, B> Service<Request<Q>> for DeadlineService<S, A>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    A: Answers<B>,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Answered<B, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        let timing = self.layer.timing.clone();
        match self.layer.read(request.method(), request.headers()) {
            Ok(Some(deadline)) => request.extensions_mut().insert(deadline),
            Ok(None) => return Box::pin(self.inner.call(request)),
            Err(refusal) => return answered(timing.refused(&self.layer.answers, refusal)),
        };
        let handled = self.inner.call(request);
        Box::pin(async move {
            let mut answer = handled.await?;
            timing.stamp(&mut answer);
            Ok(answer)
        })
    }
}
