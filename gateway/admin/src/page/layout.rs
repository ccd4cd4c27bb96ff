//! The common parts of all pages. Each page is complete, and describes its own failure.

use askama::Template;
use axum::{
    Extension, Router,
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Deserialize;

use crate::error::AdminApiError;

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

/// An [`AdminApiError`] as a page for people.
pub(super) struct ErrorPage(pub(super) AdminApiError);

#[derive(Template)]
#[template(path = "fault.html")]
struct ErrorPageTemplate<'a> {
    said: &'a str,
    version: &'static str,
}

impl From<AdminApiError> for ErrorPage {
    fn from(fault: AdminApiError) -> Self {
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
