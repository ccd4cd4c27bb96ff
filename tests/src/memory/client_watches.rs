//! The client's list of watches. Unlike the server's list it survives the loss of a connection.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use super::server_watches::{WatchEvent, WatchKind};

/// A future that is ready when its watch has fired.
#[derive(Debug)]
pub struct SimWatch(oneshot::Receiver<()>);

/// The watches of one session, in the order of their paths.
#[derive(Debug, Default)]
pub(super) struct ClientWatches(BTreeMap<(String, WatchKind), Vec<oneshot::Sender<()>>>);

impl Future for SimWatch {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // An error means that the session is over, which counts as an event, too.
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

impl ClientWatches {
    pub(super) fn add(&mut self, path: String, aspect: WatchKind) -> SimWatch {
        let (fire, watch) = oneshot::channel();
        self.0.entry((path, aspect)).or_default().push(fire);
        SimWatch(watch)
    }

    pub(super) fn fire(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Changed { path, aspect } => self.fire_one(path, *aspect),
            WatchEvent::Deleted { path } => {
                self.fire_one(path, WatchKind::Data);
                self.fire_one(path, WatchKind::Children);
            }
        }
    }

    /// Fires all watches, because the session is over.
    pub(super) fn fire_all(&mut self) {
        for waiting in std::mem::take(&mut self.0).into_values() {
            fire(waiting);
        }
    }

    /// The watches that have to be set again after a reconnect.
    pub(super) fn active(&mut self) -> Vec<(String, WatchKind)> {
        self.0.retain(|_, waiting| {
            waiting.retain(|one| !one.is_closed());
            !waiting.is_empty()
        });
        self.0.keys().cloned().collect()
    }

    fn fire_one(&mut self, path: &str, aspect: WatchKind) {
        fire(self.0.remove(&(path.to_owned(), aspect)).unwrap_or_default());
    }
}

fn fire(waiting: Vec<oneshot::Sender<()>>) {
    for one in waiting {
        // The receiver of the watch may have been dropped, so the result is ignored.
        one.send(()).ok();
    }
}
