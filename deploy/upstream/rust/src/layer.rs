//! A tower layer around the handlers of fenced routes: gives each request its fence, and checks that the handler has
//! claimed it.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Request, Response, StatusCode, Uri};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    answer::{Answered, Answers, Problems, Refusal, Unclaimed, answered},
    deadline::DeadlineClock,
    fence::Fence,
    stamp::{Compare, Settings},
};

/// A layer that makes [`Fenced`] services.
#[derive(Debug, Clone)]
pub struct FenceLayer<A = Problems> {
    settings: Arc<Settings>,
    /// The clock for `Fencing-Not-After`; `None`: the field is ignored, and the token alone decides.
    timing: Option<DeadlineClock>,
    compare: Compare,
    answers: A,
}

/// A service whose inner handler gets fenced requests, each with its [`Fence`] among the extensions.
#[derive(Debug, Clone)]
pub struct Fenced<S, A = Problems> {
    inner: S,
    layer: FenceLayer<A>,
}

impl Default for FenceLayer {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl FenceLayer {
    /// A layer that answers as the contract (`deploy/upstream`) describes.
    pub fn new(settings: Settings) -> Self {
        let timing = settings.said_clock_error().map(DeadlineClock::new);
        Self { compare: settings.compare(), settings: Arc::new(settings), timing, answers: Problems }
    }
}

impl<A> FenceLayer<A> {
    pub fn answering<N>(self, answers: N) -> FenceLayer<N> {
        FenceLayer { settings: self.settings, timing: self.timing, compare: self.compare, answers }
    }
}

impl<S, A: Clone> Layer<S> for FenceLayer<A> {
    type Service = Fenced<S, A>;

    fn layer(&self, inner: S) -> Fenced<S, A> {
        Fenced { inner, layer: self.clone() }
    }
}

impl<S, A, Q, B> Service<Request<Q>> for Fenced<S, A>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    A: Answers<B> + Clone + Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Answered<B, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        let answers = self.layer.answers.clone();
        // With a clock error set, a late request is refused before its token is read. A request without
        // `Fencing-Not-After` is not late.
        if let Some(timing) = &self.layer.timing
            && let Err(refusal) = timing.read(request.headers())
        {
            return answered(timing.refused(&answers, refusal));
        }
        let stamp = match self.layer.settings.read(request.method(), request.headers()) {
            Ok(Some(stamp)) => stamp,
            Ok(None) => return Box::pin(self.inner.call(request)),
            Err(refusal) => return answered(answers.answer(refusal)),
        };
        let fence = Fence::new(stamp, self.layer.compare);
        request.extensions_mut().insert(fence.clone());
        let method = request.method().clone();
        let uri = request.uri().clone();
        let handled = self.inner.call(request);
        Box::pin(async move { judged(&fence, handled.await, &answers, &method, &uri) })
    }
}

/// The handler's answer, or the refusal that replaces it.
fn judged<B, E>(
    fence: &Fence,
    answered: Result<Response<B>, E>,
    answers: &impl Answers<B>,
    method: &Method,
    uri: &Uri,
) -> Result<Response<B>, E> {
    let status = answered.as_ref().map_or(StatusCode::INTERNAL_SERVER_ERROR, Response::status);
    let Some(refusal) = fence.overrules(status.as_u16() < 400) else { return answered };
    if refusal == Refusal::Unclaimed {
        let stamp = fence.stamp();
        let mark = stamp.token.map_or_else(|| stamp.number.to_string(), |token| token.to_string());
        answers.log(&Unclaimed { method, path: uri.path(), status, mark: &mark });
    }
    if let Ok(answer) = &answered
        && refusal == Refusal::Stale
        && is_stale(answer)
    {
        return answered;
    }
    Ok(answers.answer(refusal))
}

/// Whether the handler's own answer already reports that the request is stale.
fn is_stale<B>(answer: &Response<B>) -> bool {
    let word = answer.headers().get("fencing-refusal");
    answer.status() == StatusCode::PRECONDITION_FAILED && word.is_some_and(|word| word == "stale")
}
