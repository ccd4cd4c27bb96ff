//! The loss of a session's connection, the reconnect, and the end of the session.

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

/// `COMEBACK`: the time between the loss of a connection and the first attempt to reconnect. `REFUSED`: between
/// attempts that the server refuses.
const COMEBACK: Duration = Duration::from_millis(1);
const REFUSED: Duration = Duration::from_millis(100);

impl SessionClientSim {
    /// Handles the loss of the connection: requests without an answer may have been done or not.
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
        // The server refuses requests of the old connection from now on.
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

    /// Ends the session for the client.
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
