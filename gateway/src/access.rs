//! The access log: one line of JSON per request on stdout, written by a thread of its own. Requests never wait for it:
//! what it cannot take is counted and lost.

use std::{
    io::{self, BufWriter, Write, stdout},
    net::IpAddr,
    rc::Rc,
    sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    thread,
    time::{Duration, Instant, SystemTime},
};

use fencegate_policies::{
    key::listed,
    pick,
    plan::{Access, KeysShown, Log},
};
use humantime::format_rfc3339_millis;
use hyper::{Method, StatusCode, Uri};
use prometheus::IntCounter;
use serde::Serialize;

use crate::{refusal::Outcome, refusal::Reason, stage::Notes};

/// Takes lines from any thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AccessLog {
    lines: SyncSender<Vec<u8>>,
    lost: IntCounter,
}

/// Lines that wait for whoever reads our output.
const WAITING: usize = 8192;

impl AccessLog {
    /// # Errors
    /// The machine has no thread for it.
    pub fn start(lost: IntCounter) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(WAITING);
        thread::Builder::new().name("access-log".into()).spawn(move || write_all(&waiting))?;
        Ok(Self { lines, lost })
    }

    fn tell(&self, line: Vec<u8>) {
        if self.lines.try_send(line).is_err() {
            self.lost.inc();
        }
    }
}

/// Ends with the last sender. A reader that is gone is no reason to end anything else.
fn write_all(lines: &Receiver<Vec<u8>>) {
    let mut output = BufWriter::new(stdout());
    loop {
        let line = match lines.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Empty) => {
                output.flush().ok();
                lines.recv().ok()
            }
            Err(TryRecvError::Disconnected) => None,
        };
        let Some(line) = line else {
            output.flush().ok();
            return;
        };
        output.write_all(&line).ok();
    }
}

/// One request that is to be told of: kept by its answer, and told when that is over, however it ends.
pub struct Entry {
    log: AccessLog,
    keys: KeysShown,
    method: Method,
    path: String,
    route: Option<String>,
    began: Instant,
    at: SystemTime,
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
    /// `None` where nothing is to be told.
    pub fn begin(
        log: &AccessLog,
        rules: &Log,
        method: &Method,
        target: &Uri,
        notes: &Rc<Notes>,
    ) -> Option<Self> {
        (rules.access == Access::Stdout).then(|| Self {
            log: log.clone(),
            keys: rules.keys,
            method: method.clone(),
            // Without the query: it is where secrets and names are.
            path: cut(target.path()),
            route: None,
            began: Instant::now(),
            at: SystemTime::now(),
            notes: notes.clone(),
            answered: None,
            sent: 0,
            complete: false,
        })
    }

    pub fn answered(&mut self, route: &str, status: StatusCode, outcome: Outcome, reason: Option<Reason>) {
        self.route = Some(route.to_owned());
        self.answered = Some(Answered { status, outcome, reason, after: self.began.elapsed() });
    }

    pub fn sends(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// All of the answer was given on.
    pub fn is_complete(&mut self) {
        self.complete = true;
    }

    fn line(&self) -> Line<'_> {
        let notes = &self.notes;
        let keys = notes.keys.get().map(|keys| listed(keys));
        let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
        let fenced = notes.fenced.get();
        let trace = notes.trace.get();
        Line {
            ts: format_rfc3339_millis(self.at).to_string(),
            request_id: notes.request_id.get().and_then(|name| name.to_str().ok()),
            trace_id: trace.map(|trace| trace.id()),
            span_id: trace.map(|trace| trace.span()),
            client: notes.client.get(),
            route: self.route.as_deref(),
            method: self.method.as_str(),
            path: &self.path,
            key: match self.keys {
                KeysShown::Plain => keys.map(|keys| cut(&keys)),
                KeysShown::Hash => keys.map(|keys| format!("{:016x}", pick::hash(&keys))),
                KeysShown::Off => None,
            },
            token: notes.token.get().map(|token| token.to_string()),
            wait_ms: notes.waited.get().map(millis),
            upstream_ms: notes.upstream.get().map(millis),
            status: self.answered.as_ref().map_or(499, |answered| answered.status.as_u16()),
            outcome: self.answered.as_ref().filter(|_| fenced).map(|answered| answered.outcome.word()),
            reason: self.answered.as_ref().and_then(|answered| answered.reason).map(Reason::word),
            head_ms: self.answered.as_ref().map(|answered| millis(answered.after)),
            total_ms: millis(self.began.elapsed()),
            bytes: self.sent,
            complete: self.complete,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut line = serde_json::to_vec(&self.line()).expect("plain fields serialise");
        line.push(b'\n');
        self.log.tell(line);
    }
}

/// At a character, not within it.
fn cut(text: &str) -> String {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}

/// Absent fields are not known, or not for this request.
#[derive(Serialize)]
struct Line<'a> {
    ts: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    method: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_ms: Option<f64>,
    /// 499: the client went away before there was an answer.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head_ms: Option<f64>,
    total_ms: f64,
    bytes: u64,
    complete: bool,
}
