//! How a session loses its connection, makes another one, and ends.

use std::time::Duration;

use fencegate_zookeeper::session::client::ZkError;
use tokio::time::Instant;
use tracing::debug;

use super::{
    SessionClientSim,
    client_state::{ClientState, CloseState, ConnectionPhase, SentRequest, refuse},
};
use crate::memory::{
    server::ReconnectReply,
    wire::{ReconnectMode, UndeliveredRequestFate, WireSession},
};

/// Between a lost connection and the first try to make another one; and between tries that the server refuses.
const COMEBACK: Duration = Duration::from_millis(1);
const REFUSED: Duration = Duration::from_millis(100);

impl SessionClientSim {
    /// The connection is gone: pending requests may have been done or not.
    pub(super) fn lose_connection(&self, talk: &mut ClientState, underway: UndeliveredRequestFate) {
        if underway == UndeliveredRequestFate::Lost {
            talk.to_server.clear();
        }
        if talk.phase != ConnectionPhase::Connected {
            return;
        }
        talk.to_client.clear();
        for asked in talk.asked.drain(..) {
            if let SentRequest::Call { answer, .. } = asked {
                refuse(answer, ZkError::Ambiguous("connection lost".to_owned()));
            }
        }
        if talk.parting == CloseState::Sent {
            talk.parting = CloseState::Wanted;
        }
        self.ensemble.detach(talk.session);
        self.enter(talk, ConnectionPhase::Away { retry: Instant::now() + COMEBACK });
    }

    pub(super) fn reconnect(&self, talk: &mut ClientState, now: Instant) {
        match (self.wire.reconnect_mode(), self.ensemble.reconnect(talk.session, talk.seen)) {
            (ReconnectMode::Same, ReconnectReply::Expired) => return self.finish(talk),
            (ReconnectMode::Same, ReconnectReply::Ahead) => {
                talk.phase = ConnectionPhase::Away { retry: now + REFUSED };
                return;
            }
            (ReconnectMode::Same, ReconnectReply::Back) => {}
            (ReconnectMode::Swapped, _) => talk.session = self.ensemble.open(self.timeout),
        }
        self.attach(talk.session);
        // What was still underway on the old connection is refused from now on.
        talk.to_server.clear();
        (talk.heard, talk.spoke, talk.pinged) = (now, now, false);
        self.enter(talk, ConnectionPhase::Connected);
        for (path, aspect) in talk.watchers.active() {
            if let Some(missed) = self.ensemble.rewatch(talk.session, &path, aspect, talk.seen) {
                talk.watchers.fire(&missed);
            }
        }
        self.send_waiting(talk);
    }

    /// The session is over, for this side.
    pub(super) fn finish(&self, talk: &mut ClientState) {
        self.ensemble.detach(talk.session);
        let asked = talk.asked.drain(..).filter_map(|asked| match asked {
            SentRequest::Call { answer, .. } => Some(answer),
            SentRequest::Ping | SentRequest::Close => None,
        });
        for answer in asked.chain(talk.waiting.drain(..).map(|call| call.answer)) {
            refuse(answer, ZkError::SessionEnded);
        }
        talk.watchers.fire_all();
        self.enter(talk, ConnectionPhase::Over);
    }

    pub(super) fn enter(&self, talk: &mut ClientState, phase: ConnectionPhase) {
        debug!(session = talk.session, ?phase, "connection");
        talk.phase = phase;
        self.changes.set(self.changes.get() + 1);
        self.changed.notify_waiters();
        self.wake();
    }
}
