//! Times every operation of a session, and counts failures.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use super::client::{
    AclGrantee, CreatedNode, MultiError, MultiOp, NodeCreateMode, NodeStat, ZkClient, ZkConnectionState,
    ZkConnector, ZkError,
};
use crate::metrics::SessionMetrics;

/// A session, or a connector, whose operations are timed, and whose failures are counted.
pub struct InstrumentedZk<T> {
    inner: T,
    metrics: SessionMetrics,
}

impl<T> InstrumentedZk<T> {
    pub fn new(inner: T, metrics: &SessionMetrics) -> Self {
        Self { inner, metrics: metrics.clone() }
    }

    /// Times `sent`, which is in flight already: operations are sent when they are called.
    fn measure<R, E: ErrorLabel>(
        &self,
        op: &'static str,
        sent: impl Future<Output = Result<R, E>>,
    ) -> impl Future<Output = Result<R, E>> {
        let began = Instant::now();
        async move {
            let answer = sent.await;
            self.metrics.record_zookeeper_request(
                op,
                began.elapsed(),
                answer.as_ref().err().and_then(ErrorLabel::label),
            );
            answer
        }
    }
}

/// The kind of a failure, for the metrics.
trait ErrorLabel {
    /// `None`: an ordinary answer, which is not counted as a failure.
    fn label(&self) -> Option<&'static str>;
}

impl ErrorLabel for ZkError {
    fn label(&self) -> Option<&'static str> {
        match self {
            Self::NoNode | Self::NodeExists | Self::NotEmpty | Self::BadVersion => None,
            Self::Refused(_) | Self::Tls(_) | Self::Unreachable(_) | Self::Denied(_) => Some("refused"),
            Self::Ambiguous(_) => Some("ambiguous"),
            Self::SessionEnded => Some("over"),
        }
    }
}

impl ErrorLabel for MultiError {
    fn label(&self) -> Option<&'static str> {
        self.fault.label()
    }
}

impl<C: ZkConnector> ZkConnector for InstrumentedZk<C> {
    type Client = InstrumentedZk<C::Client>;

    async fn connect(&self) -> Result<Self::Client, ZkError> {
        let link = self.measure("connect", self.inner.connect()).await?;
        Ok(InstrumentedZk::new(link, &self.metrics))
    }
}

impl<L: ZkClient> ZkClient for InstrumentedZk<L> {
    type Watch = L::Watch;

    fn id(&self) -> i64 {
        self.inner.id()
    }

    fn negotiated_timeout(&self) -> Duration {
        self.inner.negotiated_timeout()
    }

    fn shortest_granted_timeout(&self) -> Option<Duration> {
        self.inner.shortest_granted_timeout()
    }

    fn state(&self) -> ZkConnectionState {
        self.inner.state()
    }

    fn reconnect_count(&self) -> u64 {
        self.inner.reconnect_count()
    }

    fn state_changed(&self) -> impl Future<Output = ()> {
        self.inner.state_changed()
    }

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &[u8],
        kind: NodeCreateMode,
    ) -> impl Future<Output = Result<CreatedNode, ZkError>> {
        self.measure("create", self.inner.create(path, data, kind))
    }

    fn create_with_acl_of<'a>(
        &'a self,
        path: &'a str,
        above: &'a str,
        kind: NodeCreateMode,
    ) -> impl Future<Output = Result<(), ZkError>> + 'a {
        self.measure("create", self.inner.create_with_acl_of(path, above, kind))
    }

    fn delete(&self, path: &str) -> impl Future<Output = Result<(), ZkError>> {
        self.measure("delete", self.inner.delete(path))
    }

    fn children(&self, path: &str) -> impl Future<Output = Result<Vec<String>, ZkError>> {
        self.measure("list", self.inner.children(path))
    }

    fn children_of(&self, paths: &[&str]) -> impl Future<Output = Result<Vec<Option<Vec<String>>>, ZkError>> {
        self.measure("list", self.inner.children_of(paths))
    }

    fn stat(&self, path: &str) -> impl Future<Output = Result<Option<NodeStat>, ZkError>> {
        self.measure("stat", self.inner.stat(path))
    }

    fn data(&self, path: &str) -> impl Future<Output = Result<(Vec<u8>, NodeStat), ZkError>> {
        self.measure("read", self.inner.data(path))
    }

    fn watch(&self, path: &str) -> impl Future<Output = Result<Self::Watch, ZkError>> {
        self.measure("watch", self.inner.watch(path))
    }

    fn watch_children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(Vec<String>, Self::Watch), ZkError>> {
        self.measure("watch-list", self.inner.watch_children(path))
    }

    fn sync(&self, path: &str) -> impl Future<Output = Result<(), ZkError>> {
        self.measure("sync", self.inner.sync(path))
    }

    fn commit(&self, steps: &[MultiOp<'_>]) -> impl Future<Output = Result<Vec<Option<String>>, MultiError>> {
        self.measure("commit", self.inner.commit(steps))
    }

    fn acl_grantees(&self, path: &str) -> impl Future<Output = Result<Vec<AclGrantee>, ZkError>> {
        self.inner.acl_grantees(path)
    }

    fn intended_writers(&self) -> impl Future<Output = Result<Option<Vec<String>>, ZkError>> {
        self.inner.intended_writers()
    }

    fn ephemerals(&self, path: &str) -> impl Future<Output = Result<Vec<String>, ZkError>> {
        self.measure("ephemerals", self.inner.ephemerals(path))
    }

    fn close(self) -> impl Future<Output = ()> {
        self.inner.close()
    }
}
