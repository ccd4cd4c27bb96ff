//! Shows the runbook as a page of the gateway, because at night nothing else may be reachable.

use std::sync::LazyLock;

use askama::Template;
use axum::response::{IntoResponse, Response};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use super::layout::{HtmlPage, VERSION};

const TEXT: &str = include_str!("../../../../deploy/RUNBOOK.md");

/// Rendered once, from the runbook of this build.
static WRITTEN: LazyLock<String> = LazyLock::new(|| render_html(TEXT));

#[derive(Template)]
#[template(path = "runbook.html")]
struct RunbookPage {
    /// Trusted HTML, rendered from the runbook of this build.
    text: &'static str,
    version: &'static str,
}

pub(super) async fn runbook() -> Response {
    HtmlPage(RunbookPage { text: &WRITTEN, version: VERSION }).into_response()
}

/// The runbook as HTML. Links within it work; links to other documents become text, because those are not here.
fn render_html(markdown: &str) -> String {
    let mut events: Vec<Event<'_>> = Parser::new_ext(markdown, Options::ENABLE_TABLES).collect();
    add_heading_ids(&mut events);
    let mut followed = Vec::new();
    let mut shown = Vec::new();
    for event in events {
        match event {
            Event::Start(Tag::Link { ref dest_url, .. }) => {
                followed.push(is_allowed_link(dest_url));
                shown.extend(is_allowed_link(dest_url).then_some(event));
            }
            Event::End(TagEnd::Link) => shown.extend(followed.pop().unwrap_or(true).then_some(event)),
            // Wide parts scroll on their own on a narrow screen.
            Event::Start(Tag::Table(_)) => {
                shown.extend([raw_html_event("<div class=\"wide\" tabindex=\"0\">"), event])
            }
            Event::End(TagEnd::Table) => shown.extend([event, raw_html_event("</div>")]),
            Event::Start(Tag::CodeBlock(_)) => shown.push(raw_html_event("<pre tabindex=\"0\"><code>")),
            Event::End(TagEnd::CodeBlock) => shown.push(raw_html_event("</code></pre>")),
            event => shown.push(event),
        }
    }
    let mut text = String::new();
    html::push_html(&mut text, shown.into_iter());
    text
}

fn raw_html_event(text: &'static str) -> Event<'static> {
    Event::Html(CowStr::Borrowed(text))
}

/// True for links within the document, and for links to public addresses.
fn is_allowed_link(url: &str) -> bool {
    url.starts_with('#') || url.starts_with("https://")
}

/// Gives each heading the id that links in the document use.
fn add_heading_ids(events: &mut [Event<'_>]) {
    let mut heading = String::new();
    let mut began = None;
    for at in 0..events.len() {
        match &events[at] {
            Event::Start(Tag::Heading { .. }) => {
                heading.clear();
                began = Some(at);
            }
            Event::Text(text) | Event::Code(text) if began.is_some() => heading.push_str(text),
            Event::End(TagEnd::Heading(_)) => {
                if let Some(Event::Start(Tag::Heading { id, .. })) = began.take().map(|at| &mut events[at]) {
                    *id = Some(heading_id(&heading).into());
                }
            }
            _ => {}
        }
    }
}

/// The id that GitHub makes from a heading.
fn heading_id(heading: &str) -> String {
    let kept = |letter: char| match letter {
        ' ' => Some('-'),
        letter if letter.is_alphanumeric() || "-_".contains(letter) => Some(letter.to_ascii_lowercase()),
        _ => None,
    };
    heading.chars().filter_map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::overview::SECTIONS;

    /// Every link into the runbook, from the pages and from the runbook itself, leads to one of its headings.
    #[test]
    fn runbook_links_lead_to_headings() {
        let templates = [
            include_str!("../../templates/gateway.html"),
            include_str!("../../templates/guard.html"),
            include_str!("../../templates/key.html"),
            include_str!("../../templates/operation.html"),
        ];
        let of_pages = templates.iter().flat_map(|template| template.split("href=\"/runbook#").skip(1));
        let of_it = WRITTEN.split("href=\"#").skip(1);
        let wanted: Vec<&str> =
            of_pages.chain(of_it).map(|rest| rest.split('"').next().expect("it is closed")).collect();
        let wanted = [wanted, SECTIONS.to_vec()].concat();
        assert!(wanted.len() > 30, "{wanted:?}");
        for place in wanted {
            assert!(WRITTEN.contains(&format!("id=\"{place}\"")), "nothing is called `{place}`");
        }
    }

    /// A link to another document becomes plain text, and HTML in the text is escaped.
    #[test]
    fn other_document_links_become_text() {
        let text = render_html(
            "# A `b` c\n\n[here](#a-b-c) [there](METRICS.md) [out](https://x.example/)\n\n    <b>\n",
        );
        assert!(text.contains("<h1 id=\"a-b-c\">"), "{text}");
        assert!(
            text.contains("<a href=\"#a-b-c\">here</a> there <a href=\"https://x.example/\">out</a>"),
            "{text}"
        );
        assert!(text.contains("&lt;b&gt;"), "{text}");
    }
}
