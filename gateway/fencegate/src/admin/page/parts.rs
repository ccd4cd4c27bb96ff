//! What the templates of both roles draw.

/// How the process is, in a word.
pub(super) struct Condition {
    pub(super) word: &'static str,
    pub(super) class: &'static str,
    pub(super) why: Option<String>,
}

/// One number at the top.
pub(super) struct Tile {
    pub(super) value: String,
    pub(super) label: &'static str,
    pub(super) class: &'static str,
}

/// One thing that was counted.
pub(super) struct Fact {
    pub(super) what: String,
    pub(super) means: &'static str,
    pub(super) count: u64,
}

/// An operation that nobody knows the outcome of.
pub(super) struct InDoubt {
    pub(super) reference: String,
    /// The reference as a segment of a path.
    pub(super) link: String,
    pub(super) request: String,
    pub(super) keys: String,
    pub(super) token: String,
    pub(super) named: Option<String>,
    pub(super) since: String,
    pub(super) may_run: bool,
    /// For so long its keys stay closed.
    pub(super) closes: Option<String>,
}
