//! Nodes beyond the bound of watches. They are looked at again and again, many of them with one request.

use std::{cell::RefCell, collections::VecDeque, future::Future, rc::Rc, time::Duration};

use tokio::{sync::oneshot, task::spawn_local, time::sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use zookeeper_client::{Client, Error, MultiReadResult, Stat};

/// The nodes of one session that are looked at. When this is dropped, all waits for them end.
pub(super) struct PolledWatches {
    state: Rc<PollerState>,
    _ends: DropGuard,
}

struct PollerState {
    waiting: RefCell<PolledNodes>,
    ended: CancellationToken,
}

#[derive(Default)]
struct PolledNodes {
    nodes: VecDeque<PolledNode>,
    /// Whether a task looks at them.
    attended: bool,
}

struct PolledNode {
    path: String,
    was: NodeVersion,
    /// Bytes of its data: whoever asks how a node looks is sent its data, too.
    bytes: usize,
    changed: oneshot::Sender<()>,
}

/// What changes when a node is made anew or written, or when a child of it comes or goes: the transactions that did so
/// last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeVersion {
    made: i64,
    written: i64,
    children: i64,
}

/// Says that nobody looks, however the task ends.
struct PollerGuard(Rc<PollerState>);

impl Drop for PollerGuard {
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

/// The most nodes per second that one session looks at.
const LOOKS_PER_SECOND: u32 = 1000;
/// Most nodes of one request, and most bytes of their data. Nodes of other programs may have up to a megabyte each.
const AT_ONCE: usize = 250;
const MOST_BYTES: usize = 256 * 1024;
const LEAST_PAUSE: Duration = Duration::from_millis(50);

impl Default for PolledWatches {
    fn default() -> Self {
        let ended = CancellationToken::new();
        Self {
            state: Rc::new(PollerState { waiting: RefCell::default(), ended: ended.clone() }),
            _ends: ended.drop_guard(),
        }
    }
}

impl PolledWatches {
    /// Returns when the node no longer looks as it did in `stat`, when it may have changed unseen, or when the session ends.
    ///
    /// # Cancellation
    /// The node is looked at from the call on, until the future is dropped.
    pub(super) fn watch(
        &self,
        client: &Rc<Client>,
        path: String,
        stat: &Stat,
    ) -> impl Future<Output = ()> + use<> {
        let (changed, told) = oneshot::channel();
        let (was, bytes) = (NodeVersion::from(stat), usize::try_from(stat.data_length).unwrap_or_default());
        let mut waiting = self.state.waiting.borrow_mut();
        waiting.nodes.push_back(PolledNode { path, was, bytes, changed });
        if !std::mem::replace(&mut waiting.attended, true) {
            let (client, attends) = (Rc::downgrade(client), PollerGuard(self.state.clone()));
            drop(spawn_local(async move {
                let state = &attends.0;
                let looking = async {
                    while let Some(batch) = state.next_batch().await {
                        // Kept only for this request, because the session ends with its last owner.
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
        async { told.await.unwrap_or_default() }
    }
}

impl PollerState {
    /// Returns the nodes that are due, when they are due. `None`: nobody waits any more.
    async fn next_batch(&self) -> Option<Vec<PolledNode>> {
        let due = {
            let mut waiting = self.waiting.borrow_mut();
            waiting.nodes.retain(|node| !node.changed.is_closed());
            batch_len(waiting.nodes.iter().map(|node| node.bytes))
        };
        if due == 0 {
            return None;
        }
        sleep(pause(due)).await;
        let mut waiting = self.waiting.borrow_mut();
        Some(waiting.nodes.drain(..due).collect())
    }

    /// Tells those whose node has changed. The others wait again.
    async fn poll(&self, client: &Client, batch: Vec<PolledNode>) {
        let faces = read_versions(client, &batch).await;
        let faces = faces.into_iter().map(Some).chain(std::iter::repeat(None));
        for (node, face) in batch.into_iter().zip(faces) {
            if face.flatten() == Some(node.was) {
                self.waiting.borrow_mut().nodes.push_back(node);
            } else {
                // This fails if nobody waits for it any more.
                node.changed.send(()).ok();
            }
        }
    }
}

/// How many nodes with data of these sizes are looked at with one request.
fn batch_len(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let fit = sizes.take(AT_ONCE).enumerate().take_while(|(number, size)| {
        bytes += size;
        *number == 0 || bytes <= MOST_BYTES
    });
    fit.count()
}

/// How long to wait before `due` nodes are looked at.
fn pause(due: usize) -> Duration {
    let due = u32::try_from(due).unwrap_or(u32::MAX);
    (Duration::from_secs(1) * due / LOOKS_PER_SECOND).max(LEAST_PAUSE)
}

/// What the nodes look like now; `None` for each that is gone or cannot be read. Nothing if the request failed: whoever
/// waits then looks alone, and learns why.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_large_nodes_are_looked_at_with_one_request_and_many_small_ones() {
        assert_eq!(batch_len([].into_iter()), 0);
        assert_eq!(batch_len([0; 3 * AT_ONCE].into_iter()), AT_ONCE);
        assert_eq!(batch_len([MOST_BYTES + 1, 1].into_iter()), 1);
        assert_eq!(batch_len([MOST_BYTES - 1, 1, 1].into_iter()), 2);
    }

    #[test]
    fn a_session_looks_at_so_many_nodes_in_a_second_and_at_few_in_its_own_time() {
        assert_eq!(pause(1), LEAST_PAUSE);
        assert_eq!(pause(AT_ONCE), Duration::from_millis(250));
    }
}
