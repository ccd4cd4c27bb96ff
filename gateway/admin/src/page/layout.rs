//! The common parts of all pages, and the forms of times in them. Each page is complete, and describes its own failure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use askama::Template;
use axum::{
    Extension, Router,
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Deserialize;

use crate::error::AdminRefusal;

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A finished page.
pub(super) struct HtmlPage<T>(pub(super) T);

impl<T: Template> IntoResponse for HtmlPage<T> {
    fn into_response(self) -> Response {
        match self.0.render() {
            Ok(text) => ([(CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response(),
            // Only a value that cannot be formatted fails, and the templates have no such value.
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

/// An [`AdminRefusal`] as a page for people.
pub(super) struct ErrorPage(pub(super) AdminRefusal);

#[derive(Template)]
#[template(path = "fault.html")]
struct ErrorPageTemplate<'a> {
    said: &'a str,
    version: &'static str,
}

impl From<AdminRefusal> for ErrorPage {
    fn from(fault: AdminRefusal) -> Self {
        Self(fault)
    }
}

impl IntoResponse for ErrorPage {
    fn into_response(self) -> Response {
        let page = HtmlPage(ErrorPageTemplate { said: &self.0.message, version: VERSION }).into_response();
        (self.0.code.status(), self.0.action.map(Extension), page).into_response()
    }
}

/// The result of a form: a fixed sentence, selected by a word.
#[derive(Deserialize)]
pub(super) struct FlashMessage {
    done: Option<String>,
}

impl FlashMessage {
    pub(super) fn message_text(&self) -> Option<&'static str> {
        match self.done.as_deref()? {
            "broken" => Some("The lock was broken: the next one in line has it, as soon as there is one."),
            "resolved" => Some("Written down: repeats of the operation are told so from now on."),
            _ => None,
        }
    }
}

pub(super) fn asset_routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let asset = |kind, text: &'static str| {
        get(async move || -> ([(HeaderName, &'static str); 1], &'static str) {
            ([(CONTENT_TYPE, kind)], text)
        })
    };
    Router::new()
        .route("/page.css", asset("text/css; charset=utf-8", include_str!("../../templates/page.css")))
        .route("/page.js", asset("text/javascript; charset=utf-8", include_str!("../../templates/page.js")))
}

/// A duration as people read it: with two significant digits.
pub(super) fn format_millis(millis: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
    let seconds = millis as f64 / 1000.0;
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..10_000 => format!("{seconds:.1} s"),
        10_000..120_000 => format!("{seconds:.0} s"),
        120_000..7_200_000 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

pub(super) fn format_now() -> String {
    format_time(SystemTime::now())
}

pub(super) fn format_time(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

pub(super) fn format_unix_seconds(seconds: u64) -> String {
    format_time(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// The state of the process in one word.
pub(super) struct ProcessStatusBadge {
    pub(super) word: &'static str,
    pub(super) class: &'static str,
    pub(super) why: Option<String>,
}

/// One of the numbers at the top of the page.
pub(super) struct Tile {
    pub(super) value: String,
    pub(super) label: &'static str,
    /// The meaning of the number, where the label is not enough.
    pub(super) means: &'static str,
    pub(super) class: &'static str,
}

/// One counter with its meaning.
pub(super) struct CounterRow {
    pub(super) what: String,
    pub(super) means: &'static str,
    pub(super) count: u64,
    /// The time of the last event that was counted, and its request.
    pub(super) last: Option<String>,
}

/// An operation whose outcome is unknown.
pub(super) struct UnresolvedOperationRow {
    pub(super) reference: String,
    /// The reference as a segment of a path.
    pub(super) link: String,
    pub(super) request: String,
    pub(super) keys: String,
    /// The keys of the operation, one by one.
    pub(super) of: Vec<String>,
    pub(super) token: String,
    pub(super) named: Option<String>,
    pub(super) since: String,
    pub(super) may_run: bool,
    /// The time for which the keys of the operation stay closed.
    pub(super) closes: Option<String>,
}
