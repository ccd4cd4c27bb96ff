//! `fencegate top`: shows the locks of a gateway as a table that refreshes itself.

use std::{
    io::{IsTerminal, stdout},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use fencegate_admin::models::{ContentionReport, LockListJson};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Style, Stylize},
    text::Line,
    widgets::{Block, Row, Table as Grid},
};
use serde_json::{Value, json};

use super::{
    admin_client::{AdminClient, AdminClientError, AdminTargetArgs, CommandHintTarget, with_client},
    locks::{self, format_millis},
    log::OutputFormat,
    out::{print_text, report_error},
    table::TextTable,
};

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Print a plain table once, also where there is no terminal.
    #[arg(long)]
    once: bool,
    /// Seconds between two looks.
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    every: u64,
    /// The form of the output; `json` for programs, which prints once.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
    #[command(flatten)]
    place: AdminTargetArgs,
}

/// The documents of the admin API that are shown together.
struct TopSnapshot {
    locks: LockListJson,
    hot: ContentionReport,
    /// The sessions of the gateway, or the error of the query.
    sessions: Result<Vec<Value>, String>,
}

/// The number of locks to request.
const ROWS: usize = 200;

pub(super) fn run(top: &TopArgs) -> Result<(), ExitCode> {
    let found = top.place.resolve(CommandHintTarget::Gateway)?;
    let once = top.once || top.format == OutputFormat::Json || !stdout().is_terminal();
    let found = if once { found } else { found.without_notes() };
    let result = with_client(&found, CommandHintTarget::Gateway, async |gateway| {
        if once {
            let shown = fetch(gateway).await?;
            return Ok(print_text(match top.format {
                OutputFormat::Text => text(&shown),
                OutputFormat::Json => render_json(&shown),
            }));
        }
        // `ratatui::init` also restores the terminal after a panic, so raw mode and the alternate screen do
        // not remain.
        let mut terminal = ratatui::init();
        let done = watch(&mut terminal, gateway, Duration::from_secs(top.every)).await;
        ratatui::restore();
        done.map(Ok)
    });
    result.map_err(|error| report_error(&error))?
}

async fn fetch(gateway: &mut AdminClient) -> Result<TopSnapshot, AdminClientError> {
    let locks = gateway.get(&format!("/api/v1/locks?limit={ROWS}&by_interest=true")).await?;
    let hot = gateway.get("/api/v1/contention?top=8").await?;
    let members = gateway.get("/api/v1/members").await;
    let sessions = members.map(|list| list["sessions"].as_array().cloned().unwrap_or_default());
    let sessions = sessions.map_err(|error| error.to_string());
    Ok(TopSnapshot { locks: gateway.parse(locks)?, hot: gateway.parse(hot)?, sessions })
}

impl TopSnapshot {
    fn sessions_line(&self) -> String {
        match &self.sessions {
            Ok(all) => {
                let least = all.iter().filter_map(|one| one["proven_for_ms"].as_u64()).min().unwrap_or(0);
                format!("{} sessions, proven for {} at least", all.len(), format_millis(least))
            }
            Err(error) => error.clone(),
        }
    }
}

fn hot_table(contention: &ContentionReport) -> TextTable {
    let mut table = TextTable::new(["HOT KEY", "REQUESTS", "REFUSED", "WAITED"]);
    for key in &contention.hot {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds")]
        let waited = format_millis(key.waited_ms as u64);
        table.push_row([key.key.clone(), key.requests.to_string(), key.refused.to_string(), waited]);
    }
    table
}

fn text(shown: &TopSnapshot) -> String {
    let mut text = format!("{}\n{}\n", shown.sessions_line(), locks::text(&shown.locks).trim_end());
    if !shown.hot.hot.is_empty() {
        text.push_str(&format!("\n{}", hot_table(&shown.hot)));
    }
    text
}

/// All shown documents as one JSON document. `sessions` is missing if the gateway did not report them.
fn render_json(shown: &TopSnapshot) -> String {
    let TopSnapshot { locks, hot, sessions } = shown;
    let mut document = json!({ "locks": locks, "contention": hot });
    if let Ok(sessions) = sessions {
        document["sessions"] = sessions.clone().into();
    }
    format!("{document:#}")
}

async fn watch(
    terminal: &mut DefaultTerminal,
    gateway: &mut AdminClient,
    every: Duration,
) -> Result<(), AdminClientError> {
    let mut shown = fetch(gateway).await?;
    let mut error = None;
    loop {
        terminal.draw(|frame| draw(frame, &shown, error.as_deref()))?;
        if wait_quit(every).await? {
            return Ok(());
        }
        match fetch(gateway).await {
            Ok(newer) => (shown, error) = (newer, None),
            // The last content stays on the screen below the error: it may show why the process ended.
            Err(gone) => error = Some(gone.to_string()),
        }
    }
}

/// Waits until the table is to be refreshed. Returns true for `q`, Escape and Ctrl-C; any other key refreshes
/// at once.
async fn wait_quit(every: Duration) -> Result<bool, AdminClientError> {
    let polled = tokio::task::spawn_blocking(move || -> std::io::Result<Option<Event>> {
        if event::poll(every)? { event::read().map(Some) } else { Ok(None) }
    });
    let event = polled.await.map_err(std::io::Error::other)??;
    let Some(Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. })) = event else {
        return Ok(false);
    };
    let interrupted = code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL);
    Ok(interrupted || matches!(code, KeyCode::Char('q') | KeyCode::Esc))
}

fn draw(frame: &mut Frame<'_>, shown: &TopSnapshot, error: Option<&str>) {
    let tall = u16::try_from(shown.hot.hot.len()).unwrap_or(8).min(8) + 3;
    let [head, keys, below] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(5), Constraint::Length(tall)])
            .areas(frame.area());
    let first = format!("{}. {}", locks::summary_line(&shown.locks), shown.sessions_line());
    let second = match error {
        Some(error) => Line::from(error.to_owned()).bold().reversed(),
        None => Line::from("q ends, any other key looks again").dim(),
    };
    frame.render_widget(ratatui::text::Text::from(vec![Line::from(first).bold(), second]), head);
    frame.render_widget(grid(&locks::rows(&shown.locks.locks)).block(Block::bordered().title("Locks")), keys);
    frame.render_widget(
        grid(&hot_table(&shown.hot)).block(Block::bordered().title("Waited for longest")),
        below,
    );
}

fn grid(table: &TextTable) -> Grid<'static> {
    let widths = table.widths();
    let widths = widths.iter().map(|width| Constraint::Length(u16::try_from(*width).unwrap_or(40).min(60)));
    let rows = table.rows.iter().map(|row| Row::new(row.clone()));
    Grid::new(rows.collect::<Vec<_>>(), widths.collect::<Vec<_>>())
        .header(Row::new(table.head.clone()).style(Style::new().bold()))
        .column_spacing(2)
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};
    use serde_json::json;

    use super::*;

    #[test]
    fn table_fits_any_terminal_size() {
        let locks = json!({"gateway": "gw-1", "held": 1, "waiting": 1, "wanted": 1, "more": false, "locks": [{
            "key": "account/7", "waiting": 1, "why": "held-elsewhere", "held": [],
            "line": [{"route": "pay", "mode": "exclusive", "waits_ms": 90}]}]});
        let hot = json!({"gateway": "gw-1", "over_ms": 1, "hot": [
            {"key": "account/7", "requests": 3, "refused": 1, "waited_ms": 12.5, "over_ms": 0.0}]});
        let shown = TopSnapshot {
            locks: serde_json::from_value(locks).expect("as the API tells it"),
            hot: serde_json::from_value(hot).expect("as the API tells it"),
            sessions: Ok(vec![json!({"proven_for_ms": 900}), json!({"proven_for_ms": 800})]),
        };
        for (width, height) in [(120, 30), (40, 10), (10, 3), (1, 1)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal of memory");
            terminal.draw(|frame| draw(frame, &shown, Some("gone"))).expect("drawn");
            if width == 120 {
                let drawn = terminal.backend().to_string();
                assert!(drawn.contains("account/7") && drawn.contains("held-elsewhere"), "{drawn}");
            }
        }
        let plain = text(&shown);
        assert!(plain.contains("account/7") && plain.contains("2 sessions, proven for 800"), "{plain}");
        let json: Value = serde_json::from_str(&render_json(&shown)).expect("JSON");
        assert_eq!(json["locks"]["locks"][0]["key"], "account/7");
        assert_eq!(json["contention"]["hot"][0]["requests"], 3);
        assert_eq!(json["sessions"][1]["proven_for_ms"], 800);
    }
}
