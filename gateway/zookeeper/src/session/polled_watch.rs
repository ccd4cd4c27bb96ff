//! Bounds the watches of a session. The nodes beyond the bound are polled, many of them with one request.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    pin::Pin,
    rc::Rc,
    time::Duration,
};

use tokio::{sync::oneshot, task::spawn_local, time::sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use zookeeper_client::{Client, Error, MultiReadResult, OneshotWatcher, Stat};

/// The polled nodes of one session. When this is dropped, all waits for them end.
pub(super) struct PolledWatches {
    state: Rc<NodePollerState>,
    _ends: DropGuard,
}

struct NodePollerState {
    waiting: RefCell<PolledNodes>,
    ended: CancellationToken,
}

#[derive(Default)]
struct PolledNodes {
    nodes: VecDeque<PolledNode>,
    /// Whether a task polls the nodes.
    attended: bool,
}

struct PolledNode {
    path: String,
    was: NodeVersion,
    /// The size of the node's data in bytes: a read of the node's state returns the data, too.
    bytes: usize,
    changed: oneshot::Sender<()>,
}

/// The version of a node: the transactions that last created it, wrote it, or created or removed a child of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeVersion {
    made: i64,
    written: i64,
    children: i64,
}

/// Records, when it is dropped, that no task polls the nodes any more. It is dropped however the task ends.
struct PollerRunningGuard(Rc<NodePollerState>);

impl Drop for PollerRunningGuard {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.borrow_mut();
        waiting.attended = false;
        waiting.nodes.clear();
    }
}

impl From<&Stat> for NodeVersion {
    fn from(stat: &Stat) -> Self {
        Self { made: stat.czxid, written: stat.mzxid, children: stat.pzxid }
    }
}

/// The most nodes per second that one session polls.
const LOOKS_PER_SECOND: u32 = 1000;
/// The most nodes of one request, and the most bytes of their data. Nodes of other programs may have up to a megabyte
/// each.
const AT_ONCE: usize = 250;
const MOST_BYTES: usize = 256 * 1024;
const LEAST_PAUSE: Duration = Duration::from_millis(50);

impl Default for PolledWatches {
    fn default() -> Self {
        let ended = CancellationToken::new();
        Self {
            state: Rc::new(NodePollerState { waiting: RefCell::default(), ended: ended.clone() }),
            _ends: ended.drop_guard(),
        }
    }
}

impl PolledWatches {
    /// Returns when the node's state differs from `stat`, when it may have changed unnoticed, or when the session ends.
    ///
    /// # Cancellation
    /// The node is polled from the call on, until the future is dropped.
    pub(super) fn watch(
        &self,
        client: &Rc<Client>,
        path: String,
        stat: &Stat,
    ) -> impl Future<Output = ()> + use<> {
        let (changed, receiver) = oneshot::channel();
        let was = NodeVersion::from(stat);
        let bytes = usize::try_from(stat.data_length).unwrap_or_default();
        let mut waiting = self.state.waiting.borrow_mut();
        waiting.nodes.push_back(PolledNode { path, was, bytes, changed });
        if !std::mem::replace(&mut waiting.attended, true) {
            let client = Rc::downgrade(client);
            let attends = PollerRunningGuard(self.state.clone());
            drop(spawn_local(async move {
                let state = &attends.0;
                let looking = async {
                    while let Some(batch) = state.next_batch().await {
                        // The client is kept only for this request, because the session ends when the last owner of the
                        // client drops it.
                        let Some(client) = client.upgrade() else { return };
                        state.poll(&client, batch).await;
                    }
                };
                tokio::select! {
                    () = looking => {}
                    () = state.ended.cancelled() => {}
                }
            }));
        }
        async { receiver.await.unwrap_or_default() }
    }
}

impl NodePollerState {
    /// Returns the nodes of the next request when they are due. `None`: no wait is left.
    async fn next_batch(&self) -> Option<Vec<PolledNode>> {
        let due = {
            let mut waiting = self.waiting.borrow_mut();
            waiting.nodes.retain(|node| !node.changed.is_closed());
            batch_len(waiting.nodes.iter().map(|node| node.bytes))
        };
        if due == 0 {
            return None;
        }
        sleep(rate_limit_pause(due)).await;
        let mut waiting = self.waiting.borrow_mut();
        Some(waiting.nodes.drain(..due).collect())
    }

    /// Reads the nodes once, and wakes the waits whose node has changed. The other waits stay queued.
    async fn poll(&self, client: &Client, batch: Vec<PolledNode>) {
        let faces = read_versions(client, &batch).await;
        let faces = faces.into_iter().map(Some).chain(std::iter::repeat(None));
        for (node, face) in batch.into_iter().zip(faces) {
            if face.flatten() == Some(node.was) {
                self.waiting.borrow_mut().nodes.push_back(node);
            } else {
                // Sending fails if the wait was dropped.
                node.changed.send(()).ok();
            }
        }
    }
}

/// The number of nodes with data of these sizes that are read with one request.
fn batch_len(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let fit = sizes.take(AT_ONCE).enumerate().take_while(|(number, size)| {
        bytes += size;
        *number == 0 || bytes <= MOST_BYTES
    });
    fit.count()
}

/// The pause before `due` nodes are read.
fn rate_limit_pause(due: usize) -> Duration {
    let due = u32::try_from(due).unwrap_or(u32::MAX);
    (Duration::from_secs(1) * due / LOOKS_PER_SECOND).max(LEAST_PAUSE)
}

/// The present versions of the nodes; `None` for each node that is gone or cannot be read. The list is empty if the
/// request failed: each waiter then reads its node alone, and gets the error.
async fn read_versions(client: &Client, batch: &[PolledNode]) -> Vec<Option<NodeVersion>> {
    let mut reader = client.new_multi_reader();
    let added = batch.iter().try_for_each(|node| reader.add_get_data(&node.path));
    let read = added.map(|()| reader.commit());
    let read = match read {
        Ok(read) => read.await,
        Err(error) => Err(error),
    };
    let face = |result: &_| match result {
        MultiReadResult::Data { stat, .. } => Some(NodeVersion::from(stat)),
        _ => None,
    };
    read.unwrap_or_else(|_: Error| Vec::new()).iter().map(face).collect()
}

/// The number of bytes that the paths of live watches take.
///
/// After a reconnect the client library sets all watches again. Above 128 KiB it splits them into several requests with
/// one id, and fails on the second answer. So it fails on every further reconnect until the session expires
/// (`zookeeper-client` 0.11.2). Therefore the bytes are bounded.
#[derive(Default)]
pub(super) struct WatchBudget {
    bytes: Cell<usize>,
}

/// The most bytes of watched paths; well below the library's limit, because the library adds bytes to each path.
const MAX_WATCHED_BYTES: usize = 96 * 1024;

/// The bytes of one watch, released when it ends.
pub(super) struct WatchPermit {
    watches: Rc<WatchBudget>,
    bytes: usize,
}

impl WatchBudget {
    pub(super) fn try_acquire(self: &Rc<Self>, path: &str) -> Option<WatchPermit> {
        let bytes = self.bytes.get() + path.len() + BYTES_PER_WATCH;
        (bytes <= MAX_WATCHED_BYTES).then(|| {
            self.bytes.set(bytes);
            WatchPermit { watches: self.clone(), bytes: path.len() + BYTES_PER_WATCH }
        })
    }
}

/// The length field that the protocol adds to a path, in bytes.
const BYTES_PER_WATCH: usize = 4;

impl Drop for WatchPermit {
    fn drop(&mut self) {
        self.watches.bytes.set(self.watches.bytes.get() - self.bytes);
    }
}

/// Returns when the watch has fired, and releases its bytes.
pub(super) fn wait_fired(watcher: OneshotWatcher, room: WatchPermit) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        drop(watcher.changed().await);
        drop(room);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One read request covers many small nodes or few large ones.
    #[test]
    fn read_batch_is_bounded_by_bytes() {
        assert_eq!(batch_len([].into_iter()), 0);
        assert_eq!(batch_len([0; 3 * AT_ONCE].into_iter()), AT_ONCE);
        assert_eq!(batch_len([MOST_BYTES + 1, 1].into_iter()), 1);
        assert_eq!(batch_len([MOST_BYTES - 1, 1, 1].into_iter()), 2);
    }

    /// The pause between polls grows with the number of nodes, which bounds reads per second, and has a minimum.
    #[test]
    fn pause_grows_with_node_count() {
        assert_eq!(rate_limit_pause(1), LEAST_PAUSE);
        assert_eq!(rate_limit_pause(AT_ONCE), Duration::from_millis(250));
    }
}
