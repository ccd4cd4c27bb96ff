//! The record of one request and its answer, made when both are over.

use std::{
    rc::Rc,
    time::{Duration, Instant, SystemTime},
};

use fencegate_http::connection_info::ConnectionInfo;
use fencegate_policies::{key::join_keys, plan::KeyVisibility};
use fencegate_process::key_redaction::hash_digits;
use fencegate_refusal::{DispatchOutcome, RefusalReason};
use hyper::{Method, StatusCode};

use crate::request_context::RequestContext;

/// The facts about one request and its answer, for the report.
pub(super) struct RequestTelemetryRecord {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) route: Option<String>,
    pub(super) began: Instant,
    pub(super) at: SystemTime,
    pub(super) peer: Rc<ConnectionInfo>,
    pub(super) context: Rc<RequestContext>,
    /// The form in which the keys of the request may be shown.
    pub(super) shown: KeyVisibility,
    /// `None` if the client disconnected before there was an answer.
    pub(super) response: Option<ResponseSummary>,
    /// The bytes of the answer's body that were sent.
    pub(super) sent: u64,
    /// True if the whole answer was passed on.
    pub(super) complete: bool,
}

#[derive(Debug)]
pub(super) struct ResponseSummary {
    pub(super) status: StatusCode,
    pub(super) outcome: DispatchOutcome,
    pub(super) reason: Option<RefusalReason>,
    pub(super) after: Duration,
}

/// The most bytes of a text from a client that are logged.
const LONGEST: usize = 512;

impl RequestTelemetryRecord {
    /// The keys, in the form in which they may be shown.
    pub(super) fn keys(&self) -> Option<String> {
        let keys = join_keys(self.context.keys()?);
        match self.shown {
            KeyVisibility::Plain => Some(truncate(&keys)),
            KeyVisibility::Hash => Some(hash_digits(&keys)),
            KeyVisibility::Off => None,
        }
    }

    /// The outcome; `None` on an unfenced route.
    pub(super) fn outcome(&self) -> Option<DispatchOutcome> {
        self.response.as_ref().filter(|_| self.context.is_fenced()).map(|answered| answered.outcome)
    }

    pub(super) fn reason(&self) -> Option<RefusalReason> {
        self.response.as_ref()?.reason
    }

    /// The name in a client certificate: its first alternative name, else its subject.
    pub(super) fn client_identity(&self) -> Option<String> {
        let identity = self.peer.certificate()?;
        Some(truncate(identity.names.first().unwrap_or(&identity.subject)))
    }
}

/// Cuts the text to [`LONGEST`] bytes, between two characters.
pub(super) fn truncate(text: &str) -> String {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}
