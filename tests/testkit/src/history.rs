//! Judges the executions of one key: two of them may overlap only if both only read, and a later one must have a
//! newer token.

/// One execution. `T` is the clock of the history, and `O` the order of its tokens.
#[derive(Debug, Clone, Copy)]
pub struct KeyExecution<T, O> {
    pub token: O,
    pub is_shared: bool,
    pub began: T,
    /// `None`: the end is not known, so the execution counts as running.
    pub ended: Option<T>,
}

/// A violation of the order of executions. It names the tokens of both executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderViolation<O> {
    /// The second began before the first had ended.
    Overlap { first: O, second: O },
    /// The second began after the first, and its token is not newer.
    NotNewer { first: O, second: O },
}

/// Returns the violations among the executions of one key, ordered by the beginning of the later execution of each.
/// Each execution is compared with the earlier one that ends last, and with the newest token before it.
pub fn find_order_violations<T: Copy + Ord, O: Copy + Ord>(
    executions: impl IntoIterator<Item = KeyExecution<T, O>>,
) -> Vec<OrderViolation<O>> {
    let mut executions: Vec<_> = executions.into_iter().collect();
    executions.sort_by_key(|execution| execution.began);
    let mut broken = Vec::new();
    let mut writers = EarlierExecutions::default();
    let mut readers = EarlierExecutions::default();
    for execution in executions {
        let second = execution.token;
        // Readers may overlap each other, and their tokens have no order, so a reader is compared with writers only.
        let before = if execution.is_shared { writers } else { readers.with(writers) };
        if let Some((end, first)) = before.latest
            && end > ExecutionEnd::At(execution.began)
        {
            broken.push(OrderViolation::Overlap { first, second });
        }
        if let Some(first) = before.newest.filter(|newest| second <= *newest) {
            broken.push(OrderViolation::NotNewer { first, second });
        }
        let end = execution.ended.map_or(ExecutionEnd::Never, ExecutionEnd::At);
        let own = if execution.is_shared { &mut readers } else { &mut writers };
        *own = own.with(EarlierExecutions { latest: Some((end, second)), newest: Some(second) });
    }
    broken
}

/// The executions of one access mode that began earlier.
#[derive(Debug, Clone, Copy)]
struct EarlierExecutions<T, O> {
    /// The end and the token of the execution that ends last.
    latest: Option<(ExecutionEnd<T>, O)>,
    newest: Option<O>,
}

/// The end of an execution. An execution without an end ends after all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ExecutionEnd<T> {
    At(T),
    Never,
}

impl<T, O> Default for EarlierExecutions<T, O> {
    fn default() -> Self {
        Self { latest: None, newest: None }
    }
}

impl<T: Copy + Ord, O: Copy + Ord> EarlierExecutions<T, O> {
    /// The later end and the newer token of both. If two executions end together, the one of `self` counts.
    fn with(self, other: Self) -> Self {
        let longer = other.latest.map(|latest| latest.0) > self.latest.map(|latest| latest.0);
        Self {
            latest: if longer { other.latest } else { self.latest },
            newest: self.newest.max(other.newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execution(token: u64, began: u64, ended: Option<u64>) -> KeyExecution<u64, u64> {
        KeyExecution { token, is_shared: false, began, ended }
    }

    /// Each overlap and each token that is not newer is reported once, whatever the order of the list.
    #[test]
    fn overlap_and_old_token_are_found() {
        let clean = [execution(3, 25, Some(30)), execution(1, 0, Some(10)), execution(2, 10, Some(20))];
        assert_eq!(find_order_violations(clean), []);
        let long = execution(1, 0, Some(29));
        let overlap = |first, second| OrderViolation::Overlap { first, second };
        assert_eq!(find_order_violations([clean[0], clean[2], long]), [overlap(1, 2), overlap(1, 3)]);
        let endless = execution(1, 0, None);
        assert_eq!(find_order_violations([clean[0], clean[2], endless]), [overlap(1, 2), overlap(1, 3)]);
        let repeated = execution(2, 40, Some(41));
        let not_newer = OrderViolation::NotNewer { first: 3, second: 2 };
        assert_eq!(find_order_violations(clean.into_iter().chain([repeated])), [not_newer]);
    }

    /// Two readers that overlap are no violation; a writer that overlaps with a reader is one.
    #[test]
    fn readers_overlap_only_readers() {
        let reader = |token, began, ended| KeyExecution { is_shared: true, ..execution(token, began, ended) };
        let readers = [reader(2, 0, Some(10)), reader(1, 5, Some(15))];
        assert_eq!(find_order_violations(readers), []);
        let broken = find_order_violations(readers.into_iter().chain([execution(3, 12, Some(20))]));
        assert_eq!(broken, [OrderViolation::Overlap { first: 1, second: 3 }]);
    }
}
