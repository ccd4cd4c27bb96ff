//! The session's side of the keeper: serves what workers ask of one session, on the session's thread.

use std::{rc::Rc, sync::Arc};

use tokio::sync::{mpsc, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    attend::attend,
    inquiry::answers::{self},
    order::{self, Order},
    slot::Slot,
};
use crate::recipe::grant::NotGranted;
use crate::tenures::{
    inquiry::{answers::Turns, question::Question},
    slot::table::Table,
};
use crate::{
    once::{Admission, book, shelves::Shelves},
    session::{
        link::Connect,
        live::{Current, View},
        settings::Settings,
        supervise::supervise,
    },
};

/// What a worker asks of a session.
pub enum Work {
    /// Locks for one request.
    Order(Order),
    /// A key that somebody waits for and nobody works for yet.
    Attend(Arc<Slot>),
    /// An operation that is to be written down before it is sent.
    Once(Box<Admission>),
    /// Something that an operator wants to know, or to have done.
    Ask(Question),
}

/// The desk of one session.
pub struct Desk {
    work: mpsc::UnboundedReceiver<Work>,
    view: watch::Sender<View>,
    table: Arc<Table>,
}

impl Desk {
    pub(super) fn new(
        work: mpsc::UnboundedReceiver<Work>,
        view: watch::Sender<View>,
        table: Arc<Table>,
    ) -> Self {
        Self { work, view, table }
    }

    /// Serves and keeps the session until `stop`; then closes the session, and all nodes go with it. Call it on a current-thread runtime inside a `LocalSet`.
    pub async fn run<C: Connect>(self, connect: C, settings: Rc<Settings>, stop: CancellationToken) {
        let Self { mut work, view, table } = self;
        let current = Rc::new(Current::default());
        let (shelves, turns) = (Rc::new(Shelves::default()), Turns::default());
        let (tasks, close) = (TaskTracker::new(), CancellationToken::new());
        let session = supervise(connect, settings.clone(), current.clone(), view, close.clone());
        let serving = async {
            while let Some(asked) =
                tokio::select! { asked = work.recv() => asked, () = stop.cancelled() => None }
            {
                match (asked, current.live()) {
                    (Work::Order(order), Some(live)) => drop(tasks.spawn_local(order::serve(live, order))),
                    (Work::Order(order), None) => drop(order.caller.send(Err(NotGranted::Lost))),
                    (Work::Once(admission), _) => {
                        let (current, shelves) = (current.clone(), shelves.clone());
                        drop(tasks.spawn_local(book::serve(current, shelves, *admission)));
                    }
                    (Work::Ask(question), _) => {
                        drop(tasks.spawn_local(answers::answer(current.clone(), turns.clone(), question)));
                    }
                    (Work::Attend(slot), _) => {
                        drop(tasks.spawn_local(attend(slot, table.clone(), current.clone())));
                    }
                }
            }
            // Nothing is at work any more. Idle keys may be many: they go with the session, in one transaction.
            if let Some(live) = current.live() {
                live.registry.leave_to_close();
            }
            tasks.close();
            // The session stays until then: while anything holds on to it, it cannot be closed.
            tokio::time::timeout(LAST_NODES, tasks.wait()).await.ok();
            close.cancel();
        };
        tokio::join!(session, serving);
    }
}

/// How long the tasks of the keys may take to end after everything else has stopped.
const LAST_NODES: std::time::Duration = std::time::Duration::from_secs(2);
