//! How a session loses its connection, makes another one, and ends.

use std::time::Duration;

use fencegate_lock::session::link::Fault;
use tokio::time::Instant;
use tracing::debug;

use super::{
    Conversation,
    talk::{Asked, Parting, Phase, Talk, refuse},
};
use crate::memory::{
    cable::{Carried, Comeback, Underway},
    server::Welcome,
};

/// Between a lost connection and the first try to make another one; and between tries that the server refuses.
const COMEBACK: Duration = Duration::from_millis(1);
const REFUSED: Duration = Duration::from_millis(100);

impl Conversation {
    /// The connection is gone: what was asked may have been done or not.
    pub(super) fn lose(&self, talk: &mut Talk, underway: Underway) {
        if underway == Underway::Lost {
            talk.to_server.clear();
        }
        if talk.phase != Phase::Connected {
            return;
        }
        talk.to_client.clear();
        for asked in talk.asked.drain(..) {
            if let Asked::Call { answer, .. } = asked {
                refuse(answer, Fault::Ambiguous("connection lost".to_owned()));
            }
        }
        if talk.parting == Parting::Sent {
            talk.parting = Parting::Wanted;
        }
        self.ensemble.detach(talk.session);
        self.enter(talk, Phase::Away { retry: Instant::now() + COMEBACK });
    }

    pub(super) fn come_back(&self, talk: &mut Talk, now: Instant) {
        match (self.wire.comeback(), self.ensemble.welcome(talk.session, talk.seen)) {
            (Comeback::Same, Welcome::Expired) => return self.finish(talk),
            (Comeback::Same, Welcome::Ahead) => {
                talk.phase = Phase::Away { retry: now + REFUSED };
                return;
            }
            (Comeback::Same, Welcome::Back) => {}
            (Comeback::Swapped, _) => talk.session = self.ensemble.open(self.timeout),
        }
        self.attach(talk.session);
        // What was still underway on the old connection is refused from now on.
        talk.to_server.clear();
        (talk.heard, talk.spoke, talk.pinged) = (now, now, false);
        self.enter(talk, Phase::Connected);
        for (path, aspect) in talk.watchers.wanted() {
            if let Some(missed) = self.ensemble.watch_again(talk.session, &path, aspect, talk.seen) {
                talk.watchers.fire(&missed);
            }
        }
        self.send_waiting(talk);
    }

    /// The session is over, for this side.
    pub(super) fn finish(&self, talk: &mut Talk) {
        self.ensemble.detach(talk.session);
        let asked = talk.asked.drain(..).filter_map(|asked| match asked {
            Asked::Call { answer, .. } => Some(answer),
            Asked::Ping | Asked::Close => None,
        });
        for answer in asked.chain(talk.waiting.drain(..).map(|call| call.answer)) {
            refuse(answer, Fault::Over);
        }
        talk.watchers.fire_all();
        self.enter(talk, Phase::Over);
    }

    pub(super) fn enter(&self, talk: &mut Talk, phase: Phase) {
        debug!(session = talk.session, ?phase, "connection");
        talk.phase = phase;
        self.changes.set(self.changes.get() + 1);
        self.changed.notify_waiters();
        self.wake();
    }
}
