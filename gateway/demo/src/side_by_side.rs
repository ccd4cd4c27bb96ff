//! Plays the story at each level, and compares the damage at each with the level's promise.

use super::{
    cluster::DemoCluster,
    error::DemoError,
    options::DemoFenceLevel,
    report::{DemoReporter, DemoSummary, format_money},
    scenario,
};

/// Plays the story at each level, in the order of the table.
pub(super) async fn run_all_levels(narrator: &DemoReporter) -> Result<Vec<DemoSummary>, DemoError> {
    let mut summaries = Vec::new();
    for level in DemoFenceLevel::ALL {
        narrator.print_line(&format!("playing the story at level {} ...", level.as_str()));
        let cluster = tokio::task::spawn_blocking(move || DemoCluster::start(level));
        let cluster = cluster.await.expect("starting neither panics nor is cancelled")?;
        let played = scenario::play(&cluster, level, narrator).await;
        cluster.stop().await;
        summaries.push(played?);
    }
    Ok(summaries)
}

impl DemoFenceLevel {
    fn token_comparer(self) -> &'static str {
        match self {
            Self::Unfenced => "nobody, and no lock",
            Self::None => "nobody, a lock alone",
            Self::Guard => "a guard",
            Self::Upstream => "the service",
        }
    }

    fn promise(self) -> &'static str {
        match self {
            Self::Unfenced => "nothing",
            Self::None => "turns while sessions live",
            Self::Guard => "never twice, never too late",
            Self::Upstream => "nothing too late has effect",
        }
    }
}

/// One line for each level, with two lines of heads above, and the overall result below.
pub(super) fn table(summaries: &[DemoSummary]) -> Vec<String> {
    let row = |level: &str, who: &str, [twice, off, refused]: [&str; 3], promised: &str, held: &str| {
        format!("{level:<9} {who:<21} {twice:>5} {off:>10} {refused:>8}  {promised:<28} {held}")
    };
    let mut lines = vec![
        String::new(),
        row("level", "who compares tokens", ["done", "money", "stale"], "what is promised", "held"),
        row("", "", ["twice", "off", "refused"], "", ""),
    ];
    for summary in summaries {
        let level = summary.level;
        let found = &summary.findings;
        let figures = [
            found.executed_twice.to_string(),
            format_money(summary.total_difference()),
            summary.stale_refused.to_string(),
        ];
        let held = match (level, summary.all_claims_hold()) {
            (_, false) => "NO",
            (DemoFenceLevel::Unfenced, true) => "-",
            (DemoFenceLevel::None | DemoFenceLevel::Guard | DemoFenceLevel::Upstream, true) => "yes",
        };
        lines.push(row(
            level.as_str(),
            level.token_comparer(),
            figures.each_ref().map(String::as_str),
            level.promise(),
            held,
        ));
    }
    let verdict = match summaries.iter().all(DemoSummary::all_claims_hold) {
        true => "Each level held what is promised of it.",
        false => "A level did not hold what is promised of it.",
    };
    lines.extend([String::new(), verdict.to_owned()]);
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::audit::{AccountStatement, PaymentAudit},
        *,
    };

    fn summary(level: DemoFenceLevel, twice: usize, has: i64, refused: u64) -> DemoSummary {
        let findings = PaymentAudit {
            payments: 300,
            executed_twice: twice,
            balance_ok: has == 0,
            ..PaymentAudit::default()
        };
        let account = AccountStatement { account: "alice".to_owned(), began: 0, has, should_have: 0 };
        DemoSummary {
            level,
            findings,
            accounts: vec![account],
            sessions_lost: 1,
            stale_refused: refused,
            tokens: vec!["v1-1".to_owned(), "v1-2".to_owned()],
            zookeeper: String::new(),
        }
    }

    /// The table shows the missing amount of each level, and whether the level held its promise.
    #[test]
    fn table_shows_losses_and_promises() {
        let good = [
            summary(DemoFenceLevel::Unfenced, 1, -123_456, 0),
            summary(DemoFenceLevel::None, 1, -2_500, 0),
            summary(DemoFenceLevel::Guard, 0, 0, 1),
            summary(DemoFenceLevel::Upstream, 0, 0, 2),
        ];
        let lines = table(&good);
        let cells: Vec<Vec<&str>> =
            lines[3..7].iter().map(|line| line.split_whitespace().collect()).collect();
        assert!(
            cells[0].starts_with(&["unfenced", "nobody,"]) && cells[0].contains(&"1,234.56"),
            "{lines:#?}"
        );
        assert!(cells[1].contains(&"25.00") && cells[1].ends_with(&["yes"]), "{lines:#?}");
        assert!(cells[2].contains(&"0.00") && cells[3].ends_with(&["effect", "yes"]), "{lines:#?}");
        assert_eq!(lines.last().map(String::as_str), Some("Each level held what is promised of it."));
    }

    /// A level that broke its promise, or showed no accident where one was due, is marked `NO`.
    #[test]
    fn broken_promise_fails_its_level() {
        let twice =
            [summary(DemoFenceLevel::Guard, 1, -2_500, 1), summary(DemoFenceLevel::Upstream, 0, 0, 1)];
        let lines = table(&twice);
        assert!(lines[3].ends_with(" NO") && lines[4].ends_with(" yes"), "{lines:#?}");
        assert!(lines.last().is_some_and(|last| last.starts_with("A level did not")));
        // A story without an accident has shown nothing, so the level counts as failed.
        assert!(table(&[summary(DemoFenceLevel::Unfenced, 0, 0, 0)])[3].ends_with(" NO"));
    }
}
