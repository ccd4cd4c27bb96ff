//! The parts that the templates of both roles show.

/// The state of the process, in a word.
pub(super) struct ProcessStatus {
    pub(super) word: &'static str,
    pub(super) class: &'static str,
    pub(super) why: Option<String>,
}

/// One of the numbers at the top of the page.
pub(super) struct Tile {
    pub(super) value: String,
    pub(super) label: &'static str,
    /// The meaning, where the label is not enough.
    pub(super) means: &'static str,
    pub(super) class: &'static str,
}

/// One counter with its meaning.
pub(super) struct CounterRow {
    pub(super) what: String,
    pub(super) means: &'static str,
    pub(super) count: u64,
    /// When it last counted, and what.
    pub(super) last: Option<String>,
}

/// An operation whose outcome is unknown.
pub(super) struct UnresolvedOperationRow {
    pub(super) reference: String,
    /// The reference as a segment of a path.
    pub(super) link: String,
    pub(super) request: String,
    pub(super) keys: String,
    /// Its keys, one by one.
    pub(super) of: Vec<String>,
    pub(super) token: String,
    pub(super) named: Option<String>,
    pub(super) since: String,
    pub(super) may_run: bool,
    /// How long the keys of the operation stay closed.
    pub(super) closes: Option<String>,
}
