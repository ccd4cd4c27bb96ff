//! One answer in the form that is compared: transactions by their rank, and sessions by the order in which they were
//! created.

use std::collections::BTreeSet;

use fencegate_zookeeper::session::client::{NodeStat, ZkError};

/// The line of one answer, before the transactions in it are ranked.
#[derive(Debug, Clone, Default)]
pub(super) struct AnswerLine(Vec<AnswerPart>);

#[derive(Debug, Clone)]
enum AnswerPart {
    Text(String),
    Transaction(i64),
    Owner(i64),
}

impl AnswerLine {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self(vec![AnswerPart::Text(text.into())])
    }

    pub(super) fn with_text(mut self, text: impl Into<String>) -> Self {
        self.0.push(AnswerPart::Text(text.into()));
        self
    }

    pub(super) fn with_line(mut self, line: Self) -> Self {
        self.0.extend(line.0);
        self
    }

    pub(super) fn with_stat(mut self, seen: NodeStat) -> Self {
        self.0.extend([
            AnswerPart::Text(format!(" version {} by ", seen.version)),
            AnswerPart::Owner(seen.owner),
        ]);
        self.0.extend([AnswerPart::Text(" in ".to_owned()), AnswerPart::Transaction(seen.czxid)]);
        self
    }

    /// Adds the kind of an error, without its explanation, which may differ.
    pub(super) fn with_fault(self, fault: &ZkError) -> Self {
        self.with_text(match fault {
            ZkError::Refused(_) => "refused".to_owned(),
            ZkError::Ambiguous(_) => "ambiguous".to_owned(),
            definite => format!("{definite:?}"),
        })
    }
}

/// Renders lines as text. `sessions`: the ids in the order in which the sessions were created.
pub(super) fn render(lines: &[AnswerLine], sessions: &[i64]) -> Vec<String> {
    let words = || lines.iter().flat_map(|line| &line.0);
    let transactions: BTreeSet<i64> = words()
        .filter_map(|word| if let AnswerPart::Transaction(zxid) = word { Some(*zxid) } else { None })
        .collect();
    let rank = |zxid: &i64| transactions.iter().position(|one| one == zxid).expect("collected above");
    let spelled = |word: &AnswerPart| match word {
        AnswerPart::Text(text) => text.clone(),
        AnswerPart::Transaction(zxid) => format!("transaction {}", rank(zxid)),
        AnswerPart::Owner(id) => owner(*id, sessions),
    };
    lines.iter().map(|line| line.0.iter().map(spelled).collect()).collect()
}

fn owner(id: i64, sessions: &[i64]) -> String {
    match (id, sessions.iter().position(|one| *one == id)) {
        (0, _) => "nobody".to_owned(),
        (_, Some(order)) => format!("session {order}"),
        (_, None) => format!("stranger {id:#x}"),
    }
}
