//! Extracts the session timeout that a server granted at each connection from the log of the client library.
//!
//! At each connection a server cuts the timeout that a session requests to its own bounds. So a reconnect may leave a
//! session with less time than before: while `maxSessionTimeout` or `tickTime` is changed one server after the other,
//! or where servers differ. The library uses the new timeout and does not pass it on (`zookeeper-client` 0.11.2:
//! `Client::session_timeout` is the timeout of the first connection), except in one log line, which it writes before
//! anything else comes over a new connection. This layer reads that line at any log level. Without the line the timeout
//! is unknown, and a session that reconnects is given up, see [`super::heartbeat_loop`].

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::{self, Write},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::{FilterFn, LevelFilter},
    layer::Context,
    registry::LookupSpan,
};

/// The timeouts of each session.
#[derive(Debug)]
struct NegotiatedTimeouts {
    heard: BTreeMap<i64, ObservedTimeout>,
    /// The ids of the sessions, in the order of their first connection.
    sessions: VecDeque<i64>,
}

#[derive(Debug, Clone, Copy)]
struct ObservedTimeout {
    /// The shortest timeout that a server ever granted to the session.
    least: Duration,
    /// The number of connections for which a timeout was observed.
    times: u64,
}

static NEGOTIATED_TIMEOUTS: Mutex<NegotiatedTimeouts> =
    Mutex::new(NegotiatedTimeouts { heard: BTreeMap::new(), sessions: VecDeque::new() });

/// The most sessions that are tracked: several times as many as a process has at once.
const MAX_SESSIONS: usize = 1024;

/// The shortest timeout that a server has granted to a session so far; `None` if one of its `connections` was not
/// observed.
pub(super) fn shortest_timeout(session: i64, connections: u64) -> Option<Duration> {
    NEGOTIATED_TIMEOUTS.lock().unwrap_or_else(PoisonError::into_inner).shortest(session, connections)
}

impl NegotiatedTimeouts {
    fn shortest(&self, session: i64, connections: u64) -> Option<Duration> {
        self.heard.get(&session).filter(|heard| heard.times >= connections).map(|heard| heard.least)
    }

    fn record(&mut self, session: i64, timeout: Duration) {
        if let Some(known) = self.heard.get_mut(&session) {
            *known = ObservedTimeout { least: timeout.min(known.least), times: known.times + 1 };
            return;
        }
        self.heard.insert(session, ObservedTimeout { least: timeout, times: 1 });
        self.sessions.push_back(session);
        if self.sessions.len() > MAX_SESSIONS
            && let Some(oldest) = self.sessions.pop_front()
        {
            self.heard.remove(&oldest);
        }
    }
}

/// The tracing layer that observes the granted timeouts. The log of a process that has sessions needs it.
pub fn negotiated_timeout_layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let told = |metadata: &Metadata<'_>| {
        metadata.is_event() && *metadata.level() == Level::DEBUG && metadata.target() == CLIENT_LOG_TARGET
    };
    NegotiatedTimeoutTracingLayer.with_filter(FilterFn::new(told).with_max_level_hint(LevelFilter::DEBUG))
}

const CLIENT_LOG_TARGET: &str = "zookeeper_client::session";

struct NegotiatedTimeoutTracingLayer;

impl<S: Subscriber> Layer<S> for NegotiatedTimeoutTracingLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = ZkConnectLogLine::default();
        event.record(&mut line);
        if let Some((session, timeout)) = parse_connect_response(&line.said) {
            NEGOTIATED_TIMEOUTS.lock().unwrap_or_else(PoisonError::into_inner).record(session, timeout);
        }
    }
}

/// The text of a log line, if it can be the connect response. Other lines come with every answer, so their text is not
/// built.
#[derive(Default)]
struct ZkConnectLogLine {
    said: String,
}

const CONNECT_RESPONSE_PREFIX: &str = "received connect response: ConnectResponse { ";
/// The most bytes of a log line that are kept: more than a connect response takes.
const MAX_LINE_LEN: usize = 512;

impl Visit for ZkConnectLogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" && write!(self, "{value:?}").is_err() {
            self.said.clear();
        }
    }
}

impl Write for ZkConnectLogLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.said.push_str(text);
        let bytes = self.said.as_bytes();
        let begins = CONNECT_RESPONSE_PREFIX.as_bytes();
        let common = bytes.len().min(begins.len());
        if bytes[..common] == begins[..common] && bytes.len() <= MAX_LINE_LEN {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// Reads session and timeout from the log line of a connect response.
fn parse_connect_response(line: &str) -> Option<(i64, Duration)> {
    let mut fields =
        line.strip_prefix(CONNECT_RESPONSE_PREFIX)?.split(", ").filter_map(|field| field.split_once(": "));
    let mut session = None;
    let mut timeout = None;
    for (name, value) in &mut fields {
        match name {
            "session_id" => session = value.parse().ok(),
            "session_timeout" => timeout = value.parse().ok().map(Duration::from_millis),
            _ => {}
        }
    }
    session.zip(timeout)
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;

    const LINE: &str = "received connect response: ConnectResponse { protocol_version: 0, session_timeout: 4000, \
                        session_id: 72057594037927937, readonly: false, .. }";

    /// The connect response in the client library's log is parsed; any other line gives nothing.
    #[test]
    fn connect_response_line_is_parsed() {
        assert_eq!(parse_connect_response(LINE), Some((72_057_594_037_927_937, Duration::from_secs(4))));
        for other in [
            "",
            "sending connect request: ConnectRequest { timeout: 4000, session_id: 1 }",
            "received connect response: ConnectResponse { session_timeout: x, session_id: 1 }",
            "received connect response: ConnectResponse { session_timeout: 4000 }",
        ] {
            assert_eq!(parse_connect_response(other), None, "{other}");
        }
    }

    /// The shortest timeout granted to a session counts for it; only the newest `MAX_SESSIONS` sessions are
    /// remembered.
    #[test]
    fn shortest_timeout_counts_per_session() {
        let mut granted = NegotiatedTimeouts { heard: BTreeMap::new(), sessions: VecDeque::new() };
        assert_eq!(granted.shortest(1, 1), None);
        for (session, seconds) in [(1, 12), (2, 8), (1, 4), (1, 12)] {
            granted.record(session, Duration::from_secs(seconds));
        }
        let seconds =
            |granted: &NegotiatedTimeouts, session| granted.shortest(session, 1).map(|least| least.as_secs());
        assert_eq!((seconds(&granted, 1), seconds(&granted, 2)), (Some(4), Some(8)));
        for session in 0..MAX_SESSIONS as i64 {
            granted.record(session + 10, Duration::from_secs(1));
        }
        assert_eq!((granted.shortest(1, 1), granted.sessions.len()), (None, MAX_SESSIONS), "kept for ever");
    }

    /// After a reconnect whose response was not observed, earlier responses give no timeout for the session.
    #[test]
    fn unheard_reconnect_gives_no_timeout() {
        let mut granted = NegotiatedTimeouts { heard: BTreeMap::new(), sessions: VecDeque::new() };
        let twelve = Duration::from_secs(12);
        granted.record(1, twelve);
        assert_eq!((granted.shortest(1, 1), granted.shortest(1, 2)), (Some(twelve), None));
        granted.record(2, twelve);
        assert_eq!(granted.shortest(1, 2), None, "what another one was granted");
        granted.record(1, twelve);
        assert_eq!((granted.shortest(1, 2), granted.shortest(1, 3)), (Some(twelve), None));
    }

    /// The negotiated timeout is captured even if the log filter shows nothing of the client library.
    #[test]
    fn timeout_is_captured_with_log_off() {
        let quiet = tracing_subscriber::fmt::layer().with_filter(LevelFilter::OFF);
        let log = tracing_subscriber::registry().with(quiet).with(negotiated_timeout_layer());
        tracing::subscriber::with_default(log, || {
            tracing::debug!(target: CLIENT_LOG_TARGET, "received ping response");
            tracing::debug!(target: "zookeeper_client", "{LINE}");
            assert_eq!(shortest_timeout(72_057_594_037_927_937, 1), None);
            tracing::debug!(target: CLIENT_LOG_TARGET, "{LINE}");
        });
        assert_eq!(shortest_timeout(72_057_594_037_927_937, 1), Some(Duration::from_secs(4)));
    }
}
