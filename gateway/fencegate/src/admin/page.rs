//! The page for people: made here as a whole, so that it works without scripts; one small script takes newer parts in.
//!
//! Every text goes through the templates' escaping; nothing is inline that a content security policy would have to allow.

mod forms;
mod guarded;
mod overview;
mod plot;

use askama::Template;
use axum::{
    Extension, Router,
    extract::{Path, Query, State},
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use tokio::task::spawn_blocking;

pub use self::forms::Csrf;
pub(super) use self::guarded::routes as of_guard;
use self::overview::Overview;
use super::{
    Seen,
    fault::{Fault, Word},
    told::One,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) fn routes() -> Router<Seen> {
    Router::new()
        .route("/", get(overview))
        .route("/locks/{key}", get(lock))
        .route("/locks/{key}/break", post(forms::break_lock))
        .route("/operations/{reference}", get(forms::operation))
        .route("/operations/{reference}/resolve", post(forms::resolve))
        .merge(assets())
}

fn assets<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let asset = |kind, text: &'static str| {
        get(async move || -> ([(HeaderName, &'static str); 1], &'static str) {
            ([(CONTENT_TYPE, kind)], text)
        })
    };
    Router::new()
        .route("/page.css", asset("text/css; charset=utf-8", include_str!("../../templates/page.css")))
        .route("/page.js", asset("text/javascript; charset=utf-8", include_str!("../../templates/page.js")))
}

/// A finished page.
struct Page<T>(T);

impl<T: Template> IntoResponse for Page<T> {
    fn into_response(self) -> Response {
        match self.0.render() {
            Ok(text) => ([(CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response(),
            // Only a value that cannot be written does that, and none of ours cannot.
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

/// As [`Fault`], for people.
struct Told(Fault);

#[derive(Template)]
#[template(path = "fault.html")]
struct NotDone<'a> {
    said: &'a str,
    version: &'static str,
}

impl From<Fault> for Told {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

impl IntoResponse for Told {
    fn into_response(self) -> Response {
        let page = Page(NotDone { said: &self.0.said, version: VERSION }).into_response();
        (self.0.word.status(), self.0.did.map(Extension), page).into_response()
    }
}

/// What was done, after a form: one of our own sentences, named by a word.
#[derive(Deserialize)]
struct After {
    done: Option<String>,
}

impl After {
    fn note(&self) -> Option<&'static str> {
        match self.done.as_deref()? {
            "broken" => Some("The lock was broken: the next one in line has it, as soon as there is one."),
            "resolved" => Some("Written down: repeats of the operation are told so from now on."),
            _ => None,
        }
    }
}

/// How the process is, in a word.
struct Condition {
    word: &'static str,
    class: &'static str,
    why: Option<String>,
}

/// One number at the top.
struct Tile {
    value: String,
    label: &'static str,
    class: &'static str,
}

/// One thing that was counted.
struct Fact {
    what: String,
    means: &'static str,
    count: u64,
}

/// An operation that nobody knows the outcome of.
struct InDoubt {
    reference: String,
    /// The reference as a segment of a path.
    link: String,
    request: String,
    keys: String,
    token: String,
    named: Option<String>,
    since: String,
    may_run: bool,
    /// For so long its keys stay closed.
    closes: Option<String>,
}

async fn overview(State(seen): State<Seen>, Query(after): Query<After>) -> Response {
    let page = Overview::of(&seen, after.note()).await;
    // With thousands of routes it is long, and probes are answered on this thread.
    match spawn_blocking(|| Page(page).into_response()).await {
        Ok(answer) => answer,
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[derive(Template)]
#[template(path = "lock.html")]
struct Lock<'a> {
    one: One,
    link: String,
    /// The node that can be broken.
    holder: Option<String>,
    forced: bool,
    csrf: &'a str,
    version: &'static str,
}

async fn lock(State(seen): State<Seen>, Path(key): Path<String>) -> Result<Response, Told> {
    let forced = !seen.compares(&key)?;
    let one = seen.one(&key).await?;
    let holder = one.line.iter().flatten().find(|node| node.holds).map(|node| node.node.clone());
    let link = super::told::encoded(&key);
    let page = Lock { one, link, holder, forced, csrf: seen.csrf.text(), version: VERSION };
    Ok(Page(page).into_response())
}

/// For people: two digits that count.
fn brief(millis: u64) -> String {
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

fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}

fn since(seconds: u64) -> String {
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(then).to_string()
}

fn wrong_form() -> Fault {
    Fault::new(Word::CrossOrigin, "the form is older than this process, or not ours: load the page again")
}
