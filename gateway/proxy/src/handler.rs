//! A step of the request path. Most steps are a plain function of their settings and the request, which passes the
//! request on or stops it. A step that waits, or that inspects the response, is an async function that also receives
//! the rest of the path.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use fencegate_http::body::Reply;
use fencegate_refusal::Refusal;
use futures_util::future::Either;
use tower::Layer;

/// Something that turns a request of one stage into a reply.
///
/// No `Send` and no `poll_ready`: every worker is a current-thread runtime, and limits refuse a request instead of
/// making the caller wait.
#[expect(async_fn_in_trait, reason = "nothing here may ask for Send")]
pub trait Handler<In>: 'static {
    /// # Cancellation
    /// Above [`crate::steps::detach`] the future is dropped when the client hangs up; below it, never.
    async fn handle(&self, request: In) -> Result<Reply, Refusal>;
}

impl<In, S: Handler<In>> Handler<In> for Rc<S> {
    fn handle(&self, request: In) -> impl Future<Output = Result<Reply, Refusal>> {
        S::handle(self, request)
    }
}

/// The rest of a path, without its type. The type of a step contains the type of the rest twice: once itself, and
/// once in the type of the step's function. So its length doubles with every step, and so does the length of every
/// type that contains it. A boxed future, one for each request, avoids this.
pub(crate) struct BoxHandler<In>(Rc<dyn DynHandler<In>>);

trait DynHandler<In> {
    fn handle_boxed(&self, request: In) -> Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + '_>>;
}

impl<In: 'static, S: Handler<In>> DynHandler<In> for S {
    fn handle_boxed(&self, request: In) -> Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + '_>> {
        Box::pin(self.handle(request))
    }
}

impl<In: 'static> BoxHandler<In> {
    pub(crate) fn new(rest: impl Handler<In>) -> Self {
        Self(Rc::new(rest))
    }
}

impl<In: 'static> Handler<In> for BoxHandler<In> {
    fn handle(&self, request: In) -> impl Future<Output = Result<Reply, Refusal>> {
        self.0.handle_boxed(request)
    }
}

/// The end of a request that the gateway answers or refuses at this step. The result is boxed, so that it does not
/// enlarge the futures of the earlier steps.
pub(crate) struct ShortCircuit(Option<Box<Result<Reply, Refusal>>>);

impl ShortCircuit {
    pub(crate) fn with_reply(reply: Reply) -> Self {
        Self(Some(Box::new(Ok(reply))))
    }
}

impl From<Refusal> for ShortCircuit {
    fn from(refusal: Refusal) -> Self {
        Self(Some(Box::new(Err(refusal))))
    }
}

impl Future for ShortCircuit {
    type Output = Result<Reply, Refusal>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(*self.0.take().expect("nobody asks for the answer twice"))
    }
}

/// The layer of a step that does not wait.
#[derive(Clone)]
pub(crate) struct MapRequestLayer<C, F> {
    settings: C,
    look: F,
}

/// Makes a layer of a `fn(&settings, request)` that passes the request on, or returns the reason for which it goes no
/// further.
pub(crate) fn map_request<C, F>(settings: C, look: F) -> MapRequestLayer<C, F> {
    MapRequestLayer { settings, look }
}

impl<C: Clone, F: Clone, S> Layer<S> for MapRequestLayer<C, F> {
    type Service = MapRequest<C, F, S>;

    fn layer(&self, next: S) -> Self::Service {
        MapRequest { settings: self.settings.clone(), look: self.look.clone(), next }
    }
}

/// A step that does not wait, in front of the rest of the pipeline.
pub struct MapRequest<C, F, S> {
    settings: C,
    look: F,
    next: S,
}

impl<C, F, S, In, Out> Handler<In> for MapRequest<C, F, S>
where
    C: 'static,
    S: Handler<Out>,
    In: 'static,
    F: Fn(&C, In) -> Result<Out, ShortCircuit> + 'static,
{
    /// Returns the future of the next step itself: a future around it would be copied once more.
    fn handle(&self, request: In) -> impl Future<Output = Result<Reply, Refusal>> {
        match (self.look)(&self.settings, request) {
            Ok(request) => Either::Left(self.next.handle(request)),
            Err(stops) => Either::Right(stops),
        }
    }
}

/// The layer of one step.
#[derive(Clone)]
pub struct MiddlewareLayer<C, F> {
    settings: C,
    run: F,
}

/// Makes a layer of an `async fn(&settings, request, &next)`.
pub fn middleware<C, F>(settings: C, run: F) -> MiddlewareLayer<C, F> {
    MiddlewareLayer { settings, run }
}

impl<C: Clone, F: Clone, S> Layer<S> for MiddlewareLayer<C, F> {
    type Service = Middleware<C, F, S>;

    fn layer(&self, next: S) -> Self::Service {
        Middleware { settings: self.settings.clone(), run: self.run.clone(), next }
    }
}

/// A step in front of the rest of the pipeline.
pub struct Middleware<C, F, S> {
    settings: C,
    run: F,
    next: S,
}

impl<C, F, S, In> Handler<In> for Middleware<C, F, S>
where
    C: 'static,
    S: 'static,
    In: 'static,
    F: AsyncFn(&C, In, &S) -> Result<Reply, Refusal> + 'static,
{
    /// Returns the future of the step's function itself: a future around it would copy request and reply once more.
    fn handle(&self, request: In) -> impl Future<Output = Result<Reply, Refusal>> {
        (self.run)(&self.settings, request, &self.next)
    }
}
