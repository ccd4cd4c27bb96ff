//! One request that is to be told of: kept by its answer, and told when that is over, however it ends. Who is told is
//! what the plan says; no request waits for any of them.

mod line;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "otlp")]
mod spans;

use std::{
    io,
    rc::Rc,
    time::{Duration, Instant, SystemTime},
};

use fencegate_http::{body::ending::Ending, peer::Peer};
use fencegate_policies::{
    key::listed,
    pick,
    plan::{Access, KeysShown, Log},
};
use hyper::{Method, StatusCode, Uri};

use self::line::AccessLog;
use crate::{
    metrics::Metrics,
    refusal::{Outcome, Reason},
    stage::Notes,
};

/// Can this build send spans? Whoever asks for them is told so at once.
pub const SENDS_SPANS: bool = cfg!(feature = "otlp");

/// All who can be told in this process, from any thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tellers {
    log: AccessLog,
    #[cfg(feature = "otlp")]
    spans: otlp::Exporter,
}

/// Those of them whom a plan wants to be told.
#[derive(Debug)]
pub struct Audience {
    keys: KeysShown,
    log: Option<AccessLog>,
    #[cfg(feature = "otlp")]
    spans: Option<otlp::Spans>,
}

impl Tellers {
    /// # Errors
    /// The machine has no thread for them.
    pub fn start(metrics: &Metrics) -> io::Result<Self> {
        Ok(Self {
            log: AccessLog::start(metrics.access_lost())?,
            #[cfg(feature = "otlp")]
            spans: otlp::Exporter::start(metrics.spans_lost())?,
        })
    }

    /// `None` where nobody is.
    pub fn audience(&self, log: &Log) -> Option<Rc<Audience>> {
        let audience = Audience {
            keys: log.keys,
            log: (log.access == Access::Stdout).then(|| self.log.clone()),
            #[cfg(feature = "otlp")]
            spans: log.traces.as_ref().map(|traces| self.spans.to(traces)),
        };
        audience.listens().then(|| Rc::new(audience))
    }

    /// Waits for a moment until what was told has left. To be called when nothing tells any more.
    pub fn finish(self) {
        #[cfg(feature = "otlp")]
        self.spans.finish();
    }
}

impl Audience {
    #[cfg(feature = "otlp")]
    fn listens(&self) -> bool {
        self.log.is_some() || self.spans.is_some()
    }

    #[cfg(not(feature = "otlp"))]
    fn listens(&self) -> bool {
        self.log.is_some()
    }
}

/// What is known of one request.
pub struct Entry {
    audience: Rc<Audience>,
    method: Method,
    path: String,
    route: Option<String>,
    began: Instant,
    at: SystemTime,
    peer: Rc<Peer>,
    notes: Rc<Notes>,
    answered: Option<Answered>,
    /// Bytes of the answer's body.
    sent: u64,
    complete: bool,
}

#[derive(Debug)]
struct Answered {
    status: StatusCode,
    outcome: Outcome,
    reason: Option<Reason>,
    after: Duration,
}

/// The longest text of a client's that is written out.
const LONGEST: usize = 512;

impl Entry {
    pub fn begin(
        audience: &Rc<Audience>,
        method: &Method,
        target: &Uri,
        peer: &Rc<Peer>,
        notes: &Rc<Notes>,
    ) -> Self {
        Self {
            audience: audience.clone(),
            method: method.clone(),
            // Without the query: it is where secrets and names are.
            path: cut(target.path()),
            route: None,
            began: Instant::now(),
            at: SystemTime::now(),
            peer: peer.clone(),
            notes: notes.clone(),
            answered: None,
            sent: 0,
            complete: false,
        }
    }

    pub fn answered(&mut self, route: &str, status: StatusCode, outcome: Outcome, reason: Option<Reason>) {
        self.route = Some(route.to_owned());
        self.answered = Some(Answered { status, outcome, reason, after: self.began.elapsed() });
    }

    /// Its keys, as they may be shown.
    fn keys(&self) -> Option<String> {
        let keys = listed(self.notes.keys.get()?);
        match self.audience.keys {
            KeysShown::Plain => Some(cut(&keys)),
            KeysShown::Hash => Some(format!("{:016x}", pick::hash(&keys))),
            KeysShown::Off => None,
        }
    }

    /// On a fenced route.
    fn outcome(&self) -> Option<Outcome> {
        self.answered.as_ref().filter(|_| self.notes.fenced.get()).map(|answered| answered.outcome)
    }

    fn reason(&self) -> Option<Reason> {
        self.answered.as_ref()?.reason
    }

    /// What a client's certificate says of it: its first name, else its subject.
    fn client_identity(&self) -> Option<String> {
        let identity = self.peer.tls.as_ref()?.client.as_ref()?;
        Some(cut(identity.names.first().unwrap_or(&identity.subject)))
    }
}

impl Ending for Entry {
    fn gives(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// All of the answer was given on.
    fn complete(&mut self) {
        self.complete = true;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(log) = &self.audience.log {
            log.tell(self);
        }
        #[cfg(feature = "otlp")]
        if let Some(spans) = &self.audience.spans {
            spans.tell(self);
        }
    }
}

/// At a character, not within it.
fn cut(text: &str) -> String {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}
